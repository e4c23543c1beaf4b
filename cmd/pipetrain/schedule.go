package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/costs"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/schedule"
)

func scheduleCommand(stdout io.Writer) *cli.Command {
	asJSON := &cli.BoolFlag{Name: "json", Usage: "one JSON object on standard output"}
	format := &cli.StringFlag{Name: "format", Usage: "`FORM` of the file: text, csv (torch.distributed.pipelining's) or json", Value: string(schedule.FormText)}
	output := &cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to `FILE` instead of standard output"}
	sub := func(c *cli.Command, args string, action func(*cli.Command) error) *cli.Command {
		c.ArgsUsage, c.Action = args, func(_ context.Context, c *cli.Command) error { return action(c) }
		c.OnUsageError = usageError
		return c
	}
	return &cli.Command{
		Name: "schedule", Usage: "export, check, convert, draw and list schedules",
		OnUsageError: usageError,
		Action: func(_ context.Context, c *cli.Command) error {
			return usage("schedule: want one of export, check, convert, draw, list; not %q (see pipetrain schedule --help)", c.Args().First())
		},
		Commands: []*cli.Command{
			sub(&cli.Command{Name: "export", Usage: "write a schedule of the family as a file",
				Flags: append(builtFlags(), format, output, asJSON)}, "", func(c *cli.Command) error { return exportSchedule(c, stdout) }),
			sub(&cli.Command{Name: "check", Usage: "say whether a schedule can be performed; else show where and why, exit code 2",
				Flags: []cli.Flag{asJSON}}, "FILE", func(c *cli.Command) error { return checkSchedule(c, stdout) }),
			sub(&cli.Command{Name: "convert", Usage: "write a schedule file in another form",
				Flags: []cli.Flag{format, output, asJSON}}, "FILE", func(c *cli.Command) error { return convertSchedule(c, stdout) }),
			sub(&cli.Command{Name: "draw", Usage: "draw a schedule file, or one of the family",
				Flags: append(builtFlags(),
					&cli.StringFlag{Name: "cost", Usage: "times of an op: `F=1,I=1,W=1,transfer=0`"},
					&cli.BoolFlag{Name: "grid", Usage: "a column a unit step, every op with its name"},
					&cli.IntFlag{Name: "width", Usage: "`COLUMNS` of the drawing (default: the terminal's)"})},
				"[FILE]", func(c *cli.Command) error { return drawSchedule(c, stdout) }),
			sub(&cli.Command{Name: "list", Usage: "list the kinds of schedules", Flags: []cli.Flag{asJSON}}, "",
				func(c *cli.Command) error { return listSchedules(c, stdout) }),
		},
	}
}

func usageError(_ context.Context, _ *cli.Command, err error, _ bool) error {
	return usage("%w (see --help)", err)
}

// usage is an error of the command line or of a file named on it.
func usage(format string, args ...any) error { return exitcode.Errorf(exitcode.Usage, format, args...) }

// builtFlags name a schedule of the family.
func builtFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "kind", Usage: "`KIND` of schedule, see pipetrain schedule list"},
		&cli.IntFlag{Name: "ranks", Usage: "`P` ranks of the pipeline"},
		&cli.IntFlag{Name: "microbatches", Usage: "`M` micro-batches"},
		&cli.IntFlag{Name: "chunks", Usage: "`V` stages a rank (default: the kind's own)"},
		&cli.StringFlag{Name: "p2", Usage: "where backward-p2 goes: fused, lagged, cooldown, end, or native, as the `KIND` places it", Value: string(schedule.PlaceNative)},
		&cli.StringFlag{Name: "concat", Usage: "largest `NUMBER` of micro-batches that one backward-p2 joins, or \"all\"", Value: "1"},
		&cli.BoolFlag{Name: "lowered", Usage: "with transfers and reductions, as ranks perform it"},
	}
}

// built makes the schedule that builtFlags name.
func built(c *cli.Command) (*schedule.Schedule, error) {
	for _, name := range []string{"kind", "ranks", "microbatches"} {
		if !c.IsSet(name) {
			return nil, usage("schedule %s: --%s is missing; want --kind, --ranks and --microbatches", c.Name, name)
		}
	}
	policy := schedule.Policy{}
	var err error
	if policy.Placement, err = schedule.ParsePlacement(c.String("p2")); err != nil {
		return nil, usage("--p2: %w", err)
	}
	if text := c.String("concat"); text != "all" {
		if policy.Concat, err = strconv.Atoi(text); err != nil || policy.Concat < 1 {
			return nil, usage("--concat: want a number from 1, or \"all\"; not %q", text)
		}
	}
	const most = 1 << 23 // ops; far above any use, and within a few GiB
	p, m, v := c.Int("ranks"), c.Int("microbatches"), max(1, c.Int("chunks"))
	if p > 0 && m > 0 && p <= schedule.MaxRanks && m <= schedule.MaxMicrobatches && v <= schedule.MaxChunks && 3*p*m > most/v {
		return nil, usage("schedule %s: %d ranks × %d micro-batches × %d chunks make more than %d ops", c.Name, p, m, v, most)
	}
	if c.IsSet("chunks") && c.Int("chunks") < 1 {
		return nil, usage("--chunks: want 1 or more, not %d", c.Int("chunks"))
	}
	s, err := schedule.Build(c.String("kind"), schedule.Config{Ranks: p, Microbatches: m, Chunks: c.Int("chunks")})
	if err != nil {
		return nil, exitcode.With(exitcode.Usage, err)
	}
	if s, err = schedule.TwoBP(s, policy); err != nil {
		return nil, exitcode.With(exitcode.Usage, err)
	}
	if c.Bool("lowered") {
		if s, err = schedule.Lower(s); err != nil {
			return nil, exitcode.With(exitcode.Usage, err)
		}
	}
	return s, nil
}

func exportSchedule(c *cli.Command, stdout io.Writer) error {
	if c.Args().Len() > 0 {
		return usage("schedule export takes no file; name the schedule with --kind, --ranks and --microbatches (and -o FILE)")
	}
	s, err := built(c)
	if err != nil {
		return err
	}
	return writeSchedule(c, stdout, s)
}

// writeSchedule writes s as --format, --json and --output say.
func writeSchedule(c *cli.Command, stdout io.Writer, s *schedule.Schedule) error {
	form := schedule.Form(c.String("format"))
	if c.Bool("json") {
		form = schedule.FormJSON
	}
	text, err := schedule.Write(s, form)
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	if path := c.String("output"); path != "" && path != "-" {
		return exitcode.With(exitcode.Environment, record.WriteFile(path, text))
	}
	_, err = stdout.Write(text)
	return err
}

// maxScheduleFile is above what the largest schedule that is written has.
const maxScheduleFile = 512 << 20

// readSchedule reads the one file that the arguments name ("-": standard input), not checked.
func readSchedule(c *cli.Command) (*schedule.Schedule, string, error) {
	if c.Args().Len() != 1 {
		return nil, "", usage("schedule %s: want one schedule file, got %d arguments", c.Name, c.Args().Len())
	}
	path := c.Args().First()
	in, name := io.Reader(os.Stdin), "standard input"
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, "", usage("schedule %s: %w", c.Name, err)
		}
		defer f.Close()
		in, name = f, path
	}
	text, err := io.ReadAll(io.LimitReader(in, maxScheduleFile+1))
	if err != nil {
		return nil, "", usage("schedule %s: %w", c.Name, err)
	}
	if len(text) > maxScheduleFile {
		return nil, "", usage("%s: more than the %d bytes that a schedule file may have", name, maxScheduleFile)
	}
	s, _, err := schedule.Read(text)
	if err != nil {
		return nil, name, exitcode.With(exitcode.Usage, fmt.Errorf("%s: %w", name, err))
	}
	return s, name, nil
}

// verdict is what schedule check prints with --json.
type verdict struct {
	Valid        bool   `json:"valid"`
	Schedule     string `json:"schedule,omitempty"`
	Ranks        int    `json:"ranks,omitempty"`
	Stages       int    `json:"stages,omitempty"`
	Microbatches int    `json:"microbatches,omitempty"`
	Ops          int    `json:"ops,omitempty"`
	Lowered      bool   `json:"lowered,omitempty"`
	// PeakMicrobatches is by rank, in activations of one stage.
	PeakMicrobatches []int  `json:"peak_microbatches,omitempty"`
	Rank             *int   `json:"rank,omitempty"`
	Index            *int   `json:"index,omitempty"`
	Op               string `json:"op,omitempty"`
	Reason           string `json:"reason,omitempty"`
	Grid             string `json:"grid,omitempty"`
}

func checkSchedule(c *cli.Command, stdout io.Writer) error {
	s, name, err := readSchedule(c)
	if err == nil {
		if err = schedule.Check(s); err != nil {
			err = exitcode.With(exitcode.Usage, fmt.Errorf("%s: %w", name, err))
		}
	} else if name == "" { // nothing was read: no verdict on a schedule
		return err
	}
	if !c.Bool("json") {
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdout, "%s: valid: %s, %d ranks, %d stages, %d micro-batches, %d ops%s; live micro-batches at most %d\n",
			name, nameOr(s), s.Ranks, s.Stages, s.Microbatches, s.Ops(), loweredText(s), slices.Max(peakLive(s)))
		return err
	}
	v := verdict{Valid: err == nil}
	if s != nil {
		v.Schedule, v.Ranks, v.Stages, v.Microbatches, v.Ops, v.Lowered = s.Name, s.Ranks, s.Stages, s.Microbatches, s.Ops(), s.Lowered
	}
	var wrong *schedule.CheckError
	switch {
	case err == nil:
		v.PeakMicrobatches = peakLive(s)
	case errors.As(err, &wrong):
		v.Reason, v.Grid = wrong.Reason, wrong.Grid
		if wrong.Rank >= 0 {
			v.Rank = &wrong.Rank
		}
		if wrong.Index >= 0 {
			v.Index, v.Op = &wrong.Index, wrong.Op.String()
		}
	default:
		v.Reason = err.Error()
	}
	return errors.Join(printJSON(stdout, v), err)
}

func nameOr(s *schedule.Schedule) string {
	if s.Name == "" {
		return "no name"
	}
	return s.Name
}

func loweredText(s *schedule.Schedule) string {
	if s.Lowered {
		return " with transfers"
	}
	return ""
}

func peakLive(s *schedule.Schedule) []int {
	var live []int
	for _, p := range schedule.PeakMicrobatches(s) {
		live = append(live, p.Live)
	}
	return live
}

func printJSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

func convertSchedule(c *cli.Command, stdout io.Writer) error {
	if !c.IsSet("format") && !c.Bool("json") {
		return usage("schedule convert: --format is missing: text, csv or json")
	}
	s, name, err := readSchedule(c)
	if err != nil {
		return err
	}
	// A form such as CSV needs the times, and a file that cannot run has none.
	if err := schedule.Check(s); err != nil {
		return usage("%s: %w", name, err)
	}
	return writeSchedule(c, stdout, s)
}

func drawSchedule(c *cli.Command, stdout io.Writer) error {
	var s *schedule.Schedule
	var err error
	if c.IsSet("kind") {
		if c.Args().Len() > 0 {
			return usage("schedule draw: want a file or --kind, not both")
		}
		s, err = built(c)
	} else {
		var name string
		if s, name, err = readSchedule(c); err == nil {
			if err = schedule.Check(s); err != nil {
				err = usage("%s: %w", name, err)
			}
		}
	}
	if err != nil {
		return err
	}
	if c.Bool("grid") {
		if c.IsSet("cost") {
			return usage("schedule draw: --grid draws unit steps; leave --cost out")
		}
		var b bytes.Buffer
		if err := schedule.DrawGrid(&b, s); err != nil {
			return err
		}
		_, err := stdout.Write(b.Bytes())
		return err
	}
	units := costs.DefaultUnits()
	if c.IsSet("cost") {
		if units, err = costs.ParseUnits(c.String("cost")); err != nil {
			return exitcode.With(exitcode.Usage, err)
		}
	}
	t, err := schedule.Simulate(s, units.PerOp())
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	columns := width(stdout)
	if c.IsSet("width") {
		columns = c.Int("width")
	}
	return schedule.Draw(stdout, t, schedule.DrawOptions{Width: columns, Color: colors(stdout)})
}

// colors says whether w is a terminal whose user wants colours.
func colors(w io.Writer) bool { return isTerminal(w) && os.Getenv("NO_COLOR") == "" }

func listSchedules(c *cli.Command, stdout io.Writer) error {
	kinds := schedule.Kinds()
	if c.Bool("json") {
		type kind struct {
			Name    string `json:"name"`
			Summary string `json:"summary"`
			Needs   string `json:"needs"`
			Source  string `json:"source"`
			Chunks  int    `json:"chunks"` // by default
			// ChunksFree says that --chunks may be another number.
			ChunksFree bool `json:"chunks_free"`
			SplitsP2   bool `json:"places_p2_itself"`
			Async      bool `json:"asynchronous"`
			Both       bool `json:"bidirectional"`
		}
		list := []kind{}
		for _, k := range kinds {
			list = append(list, kind{k.Name, k.Summary, k.Rule, k.Source, k.DefaultChunks, k.Chunks, k.Split, k.Async, k.Bidirectional})
		}
		return printJSON(stdout, map[string]any{"schedules": list, "p2": schedule.Placements()})
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KIND\tCHUNKS\tORDER OF WORK\tNEEDS")
	for _, k := range kinds {
		chunks := strconv.Itoa(max(1, k.DefaultChunks))
		if k.Chunks {
			chunks += "+"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", k.Name, chunks, k.Summary, k.Rule)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	var places []string
	for _, p := range schedule.Placements() {
		places = append(places, string(p))
	}
	_, err := fmt.Fprintf(stdout, "\nbackward-p2 goes: %s\n", strings.Join(places, ", "))
	return err
}
