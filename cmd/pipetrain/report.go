package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/report"
	"github.com/pipetrain/pipetrain/study"
)

func reportCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name: "report", Usage: "one self-contained page of a run, a study, or a folder of nights", ArgsUsage: "DIR…",
		OnUsageError: usageError,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "o", Usage: "write to `FILE` (default: " + report.PageName + " in the folder); - is standard output"},
			&cli.BoolFlag{Name: "md", Usage: "Markdown instead of a page; of a study"},
		},
		Action: func(_ context.Context, c *cli.Command) error { return makeReport(c, stdout) },
	}
}

func makeReport(c *cli.Command, stdout io.Writer) error {
	dirs := c.Args().Slice()
	if len(dirs) == 0 {
		return usage("report: want the folder of a run, a study, or of studies")
	}
	if len(dirs) > 1 && c.String("o") != "" {
		return usage("report: -o names one file, and there are %d folders", len(dirs))
	}
	for _, dir := range dirs {
		var b bytes.Buffer
		_, isStudy := os.Stat(filepath.Join(dir, study.FileName))
		var err error
		switch {
		case c.Bool("md") && isStudy != nil:
			return usage("report: --md is for studies, and %s holds none", dir)
		case c.Bool("md"):
			err = report.Markdown(&b, dir)
		case isStudy == nil:
			err = report.Study(&b, dir)
		case study.IsRun(dir):
			err = report.Run(&b, dir)
		default:
			err = report.Nights(&b, dir)
		}
		if err != nil {
			return err
		}
		if err := placeReport(c, dir, b.Bytes(), stdout); err != nil {
			return err
		}
	}
	return nil
}

// placeReport writes a report where -o says, or into its folder.
func placeReport(c *cli.Command, dir string, text []byte, stdout io.Writer) error {
	path := c.String("o")
	switch {
	case path == "-" || path == "" && c.Bool("md"):
		_, err := stdout.Write(text)
		return err
	case path == "":
		path = filepath.Join(dir, report.PageName)
	}
	if err := record.WriteFile(path, text); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	_, err := fmt.Fprintln(stdout, path)
	return err
}
