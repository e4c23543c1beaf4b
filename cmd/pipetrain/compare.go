package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/study"
)

func compareCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name: "compare", Usage: "compare runs, studies, baselines or Go benchmarks: first step that differs, figures, benchstat's table",
		ArgsUsage:    "OLD NEW…",
		OnUsageError: usageError,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "metric", Usage: "only this `METRIC` (may be repeated): " + study.MetricNames()},
			&cli.BoolFlag{Name: "gate", Usage: "print verdicts, and end with 9 where something regressed, 10 where something is missing"},
			&cli.FloatFlag{Name: "threshold", Usage: "`SHARE` from which a change counts", Value: study.DefaultThreshold},
			&cli.BoolFlag{Name: "json", Usage: "one JSON object on standard output"},
			&cli.BoolFlag{Name: "csv", Usage: "tables as CSV"},
			&cli.BoolFlag{Name: "benchfmt", Usage: "the last side's figures in Go's benchmark format"},
		},
		Action: func(_ context.Context, c *cli.Command) error { return compare(c, stdout) },
	}
}

func compare(c *cli.Command, stdout io.Writer) error {
	paths := c.Args().Slice()
	forms := 0
	for _, f := range []string{"json", "csv", "benchfmt"} {
		if c.Bool(f) {
			forms++
		}
	}
	threshold := c.Float("threshold")
	switch {
	case len(paths) < 2 && !c.Bool("benchfmt") || len(paths) < 1:
		return usage("compare: want an old side and at least one new one, got %d", len(paths))
	case forms > 1:
		return usage("compare: --json, --csv and --benchfmt are three forms: give one of them")
	case !(threshold > 0) || threshold > 10:
		return usage("compare: --threshold: want a share above 0, such as 0.05, not %v", threshold)
	}
	runs := true
	for _, p := range paths {
		runs = runs && study.IsRun(p)
	}
	if runs && !c.Bool("gate") && !c.Bool("csv") && !c.Bool("benchfmt") {
		return compareRuns(paths, c.Bool("json"), stdout)
	}
	var sides []*study.Results
	for _, p := range paths {
		r, err := study.ReadResults(p)
		if err != nil {
			return err
		}
		sides = append(sides, r)
	}
	return compareSides(c, sides, threshold, stdout)
}

// compareRuns compares single runs: the first with each of the others.
func compareRuns(paths []string, asJSON bool, stdout io.Writer) error {
	var all []*study.RunDifference
	for _, p := range paths[1:] {
		d, err := study.CompareRuns(paths[0], p)
		if err != nil {
			return err
		}
		all = append(all, d)
	}
	if asJSON {
		return printJSON(stdout, all)
	}
	for i, d := range all {
		if i > 0 {
			fmt.Fprintln(stdout)
		}
		if err := d.WriteText(stdout); err != nil {
			return err
		}
	}
	return nil
}

func compareSides(c *cli.Command, sides []*study.Results, threshold float64, stdout io.Writer) error {
	var units []string
	var findings []study.Finding
	for _, s := range sides[min(1, len(sides)-1):] {
		comparison, err := study.Compare(sides[0], s, c.StringSlice("metric"), threshold)
		if err != nil {
			return err
		}
		units = comparison.Units()
		findings = append(findings, comparison.Findings...)
	}
	switch {
	case c.Bool("benchfmt"):
		return sides[len(sides)-1].WriteBenchmarks(stdout, units)
	case c.Bool("json"):
		if err := printJSON(stdout, findings); err != nil {
			return err
		}
	case c.Bool("csv"):
		for _, t := range study.Tables(sides, units) {
			if err := t.WriteCSV(stdout); err != nil {
				return err
			}
			fmt.Fprintln(stdout)
		}
	default:
		for _, s := range sides {
			fmt.Fprintf(stdout, "%s: %s\n", s.Name, strings.Join(s.From, "; "))
		}
		for _, t := range study.Tables(sides, units) {
			fmt.Fprintln(stdout)
			if err := t.WriteText(stdout); err != nil {
				return err
			}
		}
	}
	if !c.Bool("gate") {
		return nil
	}
	if !c.Bool("json") && !c.Bool("csv") {
		fmt.Fprintln(stdout)
		if err := study.WriteFindings(stdout, findings); err != nil {
			return err
		}
	}
	return gateError(study.Code(findings))
}

// gateError ends the process with the code of verdicts that have been printed.
func gateError(code exitcode.Code) error {
	if code == exitcode.Finished {
		return nil
	}
	return &exitcode.ReportedError{Err: exitcode.With(code, errors.New(code.Meaning()))}
}
