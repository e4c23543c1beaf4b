package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/costs"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cpu"
	"github.com/pipetrain/pipetrain/kernels/cuda"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/plan"
	"github.com/pipetrain/pipetrain/progress"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/schedule"
)

func planCommand(stdout, stderr io.Writer) *cli.Command {
	d := costs.DefaultDevice()
	return &cli.Command{
		Name: "plan", Usage: "predict a job: timeline, bubble, memory, step time; compare every schedule; nothing is started",
		ArgsUsage:                 "JOB.toml",
		DisableSliceFlagSeparator: true,
		OnUsageError:              usageError,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "set", Usage: "override a key of the job: `KEY=VALUE` (may be repeated)"},
			&cli.StringFlag{Name: "cost", Usage: "times in units instead of seconds: `F=1,I=1,W=1,transfer=0`, of a rank's share of the model"},
			&cli.StringFlag{Name: "profile", Usage: "measured op times from `FILE`, see pipetrain profile (default: schedule.profile of the job)"},
			&cli.FloatFlag{Name: "tflops", Usage: "assumed `RATE` of a rank in TFLOP/s", Value: d.FLOPS / 1e12},
			&cli.FloatFlag{Name: "gbps", Usage: "assumed `RATE` of a rank's memory in GB/s", Value: d.Bandwidth / 1e9},
			&cli.FloatFlag{Name: "link-gbps", Usage: "assumed `RATE` of a link between ranks in GB/s", Value: d.LinkBytes / 1e9},
			&cli.DurationFlag{Name: "link-latency", Usage: "assumed latency of a link", Value: d.LinkLatency},
			&cli.IntFlag{Name: "node-ranks", Usage: "ranks of a node (default: slurm.gpus_per_node, else all on one)"},
			&cli.FloatFlag{Name: "inter-gbps", Usage: "assumed `RATE` of a link between nodes in GB/s (default: as --link-gbps)"},
			&cli.DurationFlag{Name: "inter-latency", Usage: "assumed latency between nodes (default: as --link-latency)"},
			&cli.BoolFlag{Name: "auto", Usage: "search for a schedule of its own also where that takes long"},
			&cli.BoolFlag{Name: "alone", Usage: "the job's own schedule only, without the table of all others"},
			&cli.BoolFlag{Name: "json", Usage: "one JSON object on standard output"},
			&cli.StringFlag{Name: "html", Usage: "write one self-contained page to `FILE`: timelines to zoom and compare"},
			&cli.IntFlag{Name: "width", Usage: "`COLUMNS` of the drawing (default: the terminal's)"},
		},
		Action: func(_ context.Context, c *cli.Command) error { return makePlan(c, stdout, stderr) },
	}
}

func makePlan(c *cli.Command, stdout, stderr io.Writer) error {
	if c.Args().Len() != 1 {
		return usage("plan: want one job file, got %d arguments", c.Args().Len())
	}
	spec, err := jobs.LoadToPlan(c.Args().First(), c.StringSlice("set"))
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	source, err := costSource(c, spec)
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	ops, err := scratchOps(spec)
	if err != nil {
		return err
	}
	defer ops.Close()
	count := &progress.Count{Out: stderr, Terminal: isTerminal(stderr), Title: "plan"}
	p, err := plan.Make(spec, plan.Options{Source: source, Ops: ops, Auto: c.Bool("auto"), Alone: c.Bool("alone"), Progress: count.At})
	count.Close()
	if err != nil {
		return exitcode.With(exitcode.Usage, fmt.Errorf("plan: %w", err))
	}
	if path := c.String("html"); path != "" {
		var b bytes.Buffer
		if err := p.WriteHTML(&b); err != nil {
			return err
		}
		if err := record.WriteFile(path, b.Bytes()); err != nil {
			return exitcode.With(exitcode.Environment, err)
		}
	}
	if c.Bool("json") {
		return printJSON(stdout, p)
	}
	columns := min(width(stdout), 200)
	if c.IsSet("width") {
		columns = c.Int("width")
	}
	return p.WriteText(stdout, schedule.DrawOptions{Width: columns, Color: colors(stdout)})
}

// costSource returns where op times come from, as the flags say.
func costSource(c *cli.Command, spec *jobs.Spec) (costs.Source, error) {
	if c.IsSet("cost") {
		if c.IsSet("profile") {
			return nil, errors.New("--cost gives units, --profile seconds: give one of them")
		}
		return costs.ParseUnits(c.String("cost"))
	}
	for _, name := range []string{"tflops", "gbps"} {
		if c.IsSet(name) && c.IsSet("profile") {
			return nil, fmt.Errorf("--%s describes an assumed device, --profile has measured times: give one of them", name)
		}
		if c.IsSet(name) {
			spec.Schedule.Profile = "" // the flag says otherwise
		}
	}
	assumed, err := assumedDevice(c, spec)
	if err != nil {
		return nil, err
	}
	path := cmp.Or(c.String("profile"), spec.Schedule.Profile)
	if path == "" {
		return assumed, nil
	}
	within, between := c.IsSet("link-gbps") || c.IsSet("link-latency"), c.IsSet("inter-gbps") || c.IsSet("inter-latency")
	if between && assumed.NodeRanks == 0 {
		return nil, errors.New("--inter-gbps and --inter-latency are of links between nodes: say with --node-ranks how many ranks a node has")
	}
	p, err := costs.ReadProfile(path)
	if err != nil {
		return nil, err
	}
	if within || between {
		return costs.Linked{Profile: p, Links: assumed, Within: within}, nil
	}
	return p, nil
}

// assumedDevice returns the device and links that the flags describe, or the defaults.
func assumedDevice(c *cli.Command, spec *jobs.Spec) (costs.Device, error) {
	d := costs.DefaultDevice()
	d.NodeRanks = spec.Slurm.GPUsPerNode
	for _, f := range []struct {
		name string
		unit float64
		to   *float64
	}{
		{"tflops", 1e12, &d.FLOPS}, {"gbps", 1e9, &d.Bandwidth}, {"link-gbps", 1e9, &d.LinkBytes}, {"inter-gbps", 1e9, &d.InterBytes},
	} {
		if !c.IsSet(f.name) {
			continue
		}
		x := c.Float(f.name)
		if !(x > 0) || x > 1e12 || math.IsInf(x, 0) {
			return costs.Device{}, fmt.Errorf("--%s: want a rate above 0, not %v", f.name, x)
		}
		*f.to = x * f.unit
	}
	for name, to := range map[string]*time.Duration{"link-latency": &d.LinkLatency, "inter-latency": &d.InterLatency} {
		if c.IsSet(name) {
			if *to = c.Duration(name); *to < 0 {
				return costs.Device{}, fmt.Errorf("--%s: want a time from 0, not %v", name, *to)
			}
		}
	}
	if c.IsSet("node-ranks") {
		if d.NodeRanks = c.Int("node-ranks"); d.NodeRanks < 0 {
			return costs.Device{}, fmt.Errorf("--node-ranks: want 0 or more, not %d", d.NodeRanks)
		}
	}
	return d, nil
}

// scratchOps returns a device with the threads that a rank on this host would have: it is
// asked for the scratch memory of passes and computes nothing.
func scratchOps(spec *jobs.Spec) (kernels.Device, error) {
	n := spec.Device.Threads
	if n == 0 {
		n = max(1, runtime.NumCPU()/spec.World())
	}
	d, err := cpu.New(cpu.Options{Threads: n, BLAS: "go"})
	if err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	if wantsGPU(spec, launcher.World{LocalSize: spec.World()}) {
		return gpuScratch{d}, nil
	}
	return d, nil
}

// gpuScratch is asked for scratch memory as a GPU would be, here where there may be none.
type gpuScratch struct{ kernels.Device }

func (gpuScratch) AttentionWork(s kernels.Attention, _ kernels.DType) int64 {
	return cuda.AttentionWork(s)
}
