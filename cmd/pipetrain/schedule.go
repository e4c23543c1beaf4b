package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v3"
)

func scheduleCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{Name: "schedule", Usage: "export, check, convert and draw schedules", Action: func(context.Context, *cli.Command) error {
		_, err := fmt.Fprintln(stdout)
		return err
	}}
}

func planCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{Name: "plan"}
}
