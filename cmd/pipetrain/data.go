package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/data"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/progress"
)

func dataCommand(stdout, stderr io.Writer) *cli.Command {
	var names []string
	for _, f := range data.Formats() {
		names = append(names, f.Name)
	}
	return &cli.Command{
		Name: "data", Usage: "look at the files that a job trains on",
		OnUsageError: usageError,
		Action: func(_ context.Context, c *cli.Command) error {
			return usage("data: want show, not %q (see pipetrain data --help)", c.Args().First())
		},
		Commands: []*cli.Command{{
			Name: "show", Usage: "say what token files hold; a damaged one: where and why, exit code 2", ArgsUsage: "FILE or PATTERN",
			OnUsageError: usageError,
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "format", Usage: "`FORMAT` of the tokens: auto, text, " + strings.Join(names, ", "), Value: data.FormatAuto},
				&cli.IntFlag{Name: "tokens", Usage: "first `N` tokens to print", Value: 16},
				&cli.BoolFlag{Name: "scan", Usage: "read all tokens, for the smallest and the largest"},
				&cli.BoolFlag{Name: "json", Usage: "one JSON object on standard output"},
			},
			Action: func(_ context.Context, c *cli.Command) error { return showData(c, stdout, stderr) },
		}},
	}
}

// shown is what `data show` tells.
type shown struct {
	*data.Files
	First []int64
	Range *data.Range `json:",omitempty"` // nil without --scan
}

func showData(c *cli.Command, stdout, stderr io.Writer) error {
	if c.Args().Len() != 1 || c.Int("tokens") < 0 {
		return usage("data show: want one file or pattern, and --tokens from 0; a pattern stands in quotes (see pipetrain data show --help)")
	}
	kind, format, path := data.KindTokens, c.String("format"), c.Args().First()
	if format == data.KindText {
		kind = data.KindText
	}
	s := shown{}
	var err error
	if s.Files, err = data.Inspect(kind, format, path); err == nil {
		s.First, err = data.Head(kind, format, path, c.Int("tokens"))
	}
	if err == nil && c.Bool("scan") {
		bar := progress.NewBar(stderr, "reading", s.Tokens)
		s.Range, err = data.Scan(kind, format, path, bar.Set)
		bar.Finish()
	}
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	if c.Bool("json") {
		return json.NewEncoder(stdout).Encode(s)
	}
	return s.print(stdout)
}

func (s shown) print(w io.Writer) error {
	fmt.Fprintf(w, "format: %s, %d tokens in %s\n\n", s.Format, s.Tokens, files(len(s.Files.Files)))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "tokens\ttype\tbytes\tfirst byte\t  file")
	for _, f := range s.Files.Files {
		fmt.Fprintf(t, "%d\t%s\t%d\t%d\t  %s\n", f.Tokens, f.Type, f.Bytes, f.Offset, f.Path)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(s.First) > 0 {
		fmt.Fprintf(w, "\nbegins with %s\n", strings.Trim(fmt.Sprint(s.First), "[]"))
	}
	if r := s.Range; r != nil {
		fmt.Fprintf(w, "\nsmallest token %d, the first at byte %d of %s\nlargest token %d, the first at byte %d of %s: model.vocab is at least %d\n",
			r.Least, r.LeastAt.Byte, r.LeastAt.Path, r.Most, r.MostAt.Byte, r.MostAt.Path, r.Most+1)
	}
	return nil
}

func files(n int) string {
	if n == 1 {
		return "one file"
	}
	return fmt.Sprintf("%d files", n)
}
