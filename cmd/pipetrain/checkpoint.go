package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/checkpoint"
	"github.com/pipetrain/pipetrain/exitcode"
)

func checkpointCommand(stdout io.Writer) *cli.Command {
	asJSON := &cli.BoolFlag{Name: "json", Usage: "JSON on standard output"}
	sub := func(name, usage, args string, flags []cli.Flag, action func(context.Context, *cli.Command, io.Writer) error) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: args, Flags: flags, OnUsageError: usageError,
			Action: func(ctx context.Context, c *cli.Command) error { return action(ctx, c, stdout) }}
	}
	return &cli.Command{
		Name: "checkpoint", Usage: "list, show, verify, compare and convert checkpoints",
		OnUsageError: usageError,
		Action: func(_ context.Context, c *cli.Command) error {
			return usage("checkpoint: want one of list, show, verify, diff, convert; not %q (see pipetrain checkpoint --help)", c.Args().First())
		},
		Commands: []*cli.Command{
			sub("list", "list a run's checkpoints", "RUN", []cli.Flag{asJSON}, listCheckpoints),
			sub("show", "say what a checkpoint holds; of a RUN: its newest", "RUN or CHECKPOINT", []cli.Flag{asJSON}, showCheckpoint),
			sub("verify", "read every byte and compare checksums; of a RUN: all its checkpoints. Exit code 3 and each bad file", "RUN or CHECKPOINT…", nil, verifyCheckpoints),
			sub("diff", "compare the tensors of two bit by bit. Exit code 3 where they differ", "A B", []cli.Flag{asJSON,
				&cli.BoolFlag{Name: "weights-only", Usage: "leave the optimizer's state out"}}, diffCheckpoints),
			sub("convert", "write a checkpoint anew, in OUT", "RUN or CHECKPOINT OUT", []cli.Flag{
				&cli.IntFlag{Name: "shards", Usage: "`N` files of weights", Value: 1},
				&cli.StringFlag{Name: "dtype", Usage: "`TYPE` of the weights: f32 or bf16; another than before leaves the optimizer's state out"},
				&cli.BoolFlag{Name: "weights-only", Usage: "leave out what only a resume needs"}}, convertCheckpoint),
		},
	}
}

// aCheckpoint returns the checkpoint that a path means: itself, or a run's newest that can be loaded.
func aCheckpoint(path string) (string, error) {
	dir := filepath.Join(path, "checkpoints")
	if _, err := os.Stat(dir); err != nil {
		return path, nil
	}
	all, err := checkpoint.List(dir)
	if err != nil {
		return "", exitcode.With(exitcode.Environment, err)
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Wrong == "" {
			return all[i].Path, nil
		}
	}
	return "", exitcode.Errorf(exitcode.Environment, "%s has no checkpoint that can be loaded (pipetrain checkpoint list %s)", path, path)
}

func openCheckpoint(ctx context.Context, path string, full bool) (*checkpoint.Checkpoint, error) {
	path, err := aCheckpoint(path)
	if err != nil {
		return nil, err
	}
	c, err := checkpoint.OpenPath(ctx, path, full)
	return c, exitcode.With(exitcode.Environment, err)
}

func listCheckpoints(_ context.Context, c *cli.Command, stdout io.Writer) error {
	if c.Args().Len() != 1 {
		return usage("checkpoint list: want one run folder (see --help)")
	}
	run := c.Args().First()
	dir := filepath.Join(run, "checkpoints")
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		dir = run
	}
	all, err := checkpoint.List(dir)
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	if c.Bool("json") {
		return json.NewEncoder(stdout).Encode(all)
	}
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "step\tbytes\tshards\tsaved\t  state")
	for _, e := range all {
		if e.Wrong != "" {
			fmt.Fprintf(t, "%s\t\t\t\t  cannot be loaded: %s\n", filepath.Base(e.Path), e.Wrong)
			continue
		}
		fmt.Fprintf(t, "%d\t%d\t%d\t%s\t  whole by its sizes\n", e.Step, e.Bytes, e.Shards, e.Saved.Format(time.DateTime))
	}
	return t.Flush()
}

// contents is what `checkpoint show` tells.
type contents struct {
	Path       string
	Manifest   checkpoint.Manifest
	Parameters int64
	Tensors    []checkpoint.TensorInfo
	Config     json.RawMessage `json:",omitempty"`
}

func showCheckpoint(ctx context.Context, c *cli.Command, stdout io.Writer) error {
	if c.Args().Len() != 1 {
		return usage("checkpoint show: want one run or checkpoint folder (see --help)")
	}
	k, err := openCheckpoint(ctx, c.Args().First(), false)
	if err != nil {
		return err
	}
	defer k.Close()
	s := contents{Path: k.Path, Manifest: k.Manifest, Config: k.Config}
	for _, name := range k.Model.Names() {
		t, _ := k.Model.Info(name)
		n := int64(1)
		for _, d := range t.Shape {
			n *= int64(d)
		}
		s.Parameters += n
		s.Tensors = append(s.Tensors, t)
	}
	if c.Bool("json") {
		return json.NewEncoder(stdout).Encode(s)
	}
	fmt.Fprintf(stdout, "%s\n", s.Path)
	if m := s.Manifest; m.Shards > 0 {
		fmt.Fprintf(stdout, "step %d of job %s, seed %d, %d sequences of data read; %d shards, written by %s\n", m.Step, m.Job, m.Seed, m.DataPosition, m.Shards, m.Program)
	} else {
		fmt.Fprintln(stdout, "weights alone: it has no manifest")
	}
	fmt.Fprintf(stdout, "%d parameters in %d tensors\n\n", s.Parameters, len(s.Tensors))
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	for _, x := range s.Tensors {
		fmt.Fprintf(t, "%s\t%s\t%v\n", x.Name, x.DType, x.Shape)
	}
	return t.Flush()
}

func verifyCheckpoints(ctx context.Context, c *cli.Command, stdout io.Writer) error {
	if c.Args().Len() == 0 {
		return usage("checkpoint verify: want run or checkpoint folders (see --help)")
	}
	var paths []string
	for _, path := range c.Args().Slice() {
		all, err := checkpoint.List(filepath.Join(path, "checkpoints"))
		if errors.Is(err, os.ErrNotExist) {
			paths = append(paths, path)
		} else if err != nil {
			return exitcode.With(exitcode.Environment, err)
		}
		for _, e := range all {
			paths = append(paths, e.Path)
		}
	}
	bad := 0
	for _, path := range paths {
		faults, err := checkpoint.Verify(ctx, path)
		if err != nil {
			faults = []checkpoint.FaultError{{File: path, Reason: err.Error()}}
		}
		if len(faults) == 0 {
			fmt.Fprintf(stdout, "%s: whole\n", path)
			continue
		}
		bad++
		for _, f := range faults {
			fmt.Fprintf(stdout, "%s: %s\n", path, f.Error())
		}
	}
	if bad > 0 {
		return exitcode.Errorf(exitcode.Environment, "%d of %d checkpoints cannot be relied on", bad, len(paths))
	}
	return nil
}

func diffCheckpoints(ctx context.Context, c *cli.Command, stdout io.Writer) error {
	if c.Args().Len() != 2 {
		return usage("checkpoint diff: want two run or checkpoint folders (see --help)")
	}
	a, err := openCheckpoint(ctx, c.Args().Get(0), false)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := openCheckpoint(ctx, c.Args().Get(1), false)
	if err != nil {
		return err
	}
	defer b.Close()
	found, err := checkpoint.Diff(ctx, a.Model, b.Model)
	if err == nil && !c.Bool("weights-only") {
		var more []checkpoint.Difference
		more, err = checkpoint.Diff(ctx, a.Optimizer, b.Optimizer)
		found = append(found, more...)
	}
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	if c.Bool("json") {
		if err := json.NewEncoder(stdout).Encode(found); err != nil {
			return err
		}
	} else {
		for _, d := range found {
			fmt.Fprintln(stdout, d)
		}
	}
	if len(found) > 0 {
		return exitcode.Errorf(exitcode.Environment, "%d tensors differ", len(found))
	}
	if !c.Bool("json") {
		fmt.Fprintln(stdout, "the same bits")
	}
	return nil
}

func convertCheckpoint(ctx context.Context, c *cli.Command, stdout io.Writer) error {
	if c.Args().Len() != 2 || c.Int("shards") < 1 {
		return usage("checkpoint convert: want a run or checkpoint folder, OUT, and --shards from 1 (see --help)")
	}
	dtype, ok := map[string]string{"": "", "f32": "F32", "bf16": "BF16"}[c.String("dtype")]
	if !ok {
		return usage("checkpoint convert: --dtype %q: want f32 or bf16", c.String("dtype"))
	}
	k, err := openCheckpoint(ctx, c.Args().Get(0), true)
	if err != nil {
		return err
	}
	defer k.Close()
	out := c.Args().Get(1)
	if err := checkpoint.Convert(ctx, k, out, checkpoint.ConvertConfig{Shards: c.Int("shards"), DType: dtype, WeightsOnly: c.Bool("weights-only")}); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	_, err = fmt.Fprintf(stdout, "%s written as %s\n", k.Path, out)
	return err
}
