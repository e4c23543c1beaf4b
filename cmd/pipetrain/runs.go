package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/manage"
	"github.com/pipetrain/pipetrain/slurm"
)

// onRun makes the action of a command for one run, which it reads from the command's only argument.
func onRun(act func(context.Context, *cli.Command, manage.Run, slurm.Tools) error) cli.ActionFunc {
	return func(ctx context.Context, c *cli.Command) error {
		if c.Args().Len() != 1 {
			return exitcode.Errorf(exitcode.Usage, "%s: want one run, its folder or its number in Slurm, got %d arguments", c.Name, c.Args().Len())
		}
		tools := slurmTools()
		r, err := manage.Find(ctx, c.Args().First(), tools)
		if err != nil {
			return err
		}
		return act(ctx, c, r, tools)
	}
}

func slurmTools() slurm.Tools { return slurm.Tools{Conf: os.Getenv("SLURM_CONF")} }

func statusCommand(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "where a run is: in the queue, at which step, how it ended", ArgsUsage: "RUN",
		Description: "RUN is a run folder or the number of a job of Slurm (12, or 12_3 for one task of an array).",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "one JSON object on standard output"}},
		Action: onRun(func(ctx context.Context, c *cli.Command, r manage.Run, tools slurm.Tools) error {
			report, err := r.Status(ctx, tools)
			if err != nil {
				fmt.Fprintf(stderr, "pipetrain: the queue cannot be asked: %v\n", err)
			}
			if c.Bool("json") {
				return printJSON(stdout, report)
			}
			return report.WriteText(stdout)
		}),
	}
}

func logsCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name: "logs", Usage: "what a run's batch script and its ranks have written", ArgsUsage: "RUN",
		Description: "Without --rank: the batch script's log and rank 0's output, for a run outside of Slurm rank 0's log.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on showing what is added, until the run is over"},
			&cli.IntFlag{Name: "rank", Value: -1, Usage: "everything of rank `N`"},
			&cli.IntFlag{Name: "lines", Aliases: []string{"n"}, Value: -1, Usage: "only the last `N` lines of each file"},
		},
		Action: onRun(func(ctx context.Context, c *cli.Command, r manage.Run, tools slurm.Tools) error {
			if c.Bool("follow") {
				followed, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
				defer stop()
				ctx = followed
			}
			return r.Logs(ctx, manage.LogOptions{Rank: c.Int("rank"), Lines: c.Int("lines"), Follow: c.Bool("follow")}, tools, stdout)
		}),
	}
}

func cancelCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name: "cancel", Usage: "have a run save its state and stop", ArgsUsage: "RUN",
		Description: "The ranks finish their step, save and stop with exit code 7. A job that waits leaves the queue. --now does not wait for the step.",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "now", Usage: "end it at once: what was done since the last checkpoint is lost"}},
		Action: onRun(func(ctx context.Context, c *cli.Command, r manage.Run, tools slurm.Tools) error {
			return r.Cancel(ctx, c.Bool("now"), tools, stdout)
		}),
	}
}

func requeueCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name: "requeue", Usage: "put a run back into Slurm's queue, to go on from its newest checkpoint", ArgsUsage: "RUN",
		Description: "A running job saves first. One that Slurm has forgotten is submitted again, by the script in the run folder. Restarts without progress are counted anew.",
		Action: onRun(func(ctx context.Context, _ *cli.Command, r manage.Run, tools slurm.Tools) error {
			return r.Requeue(ctx, tools, stdout)
		}),
	}
}
