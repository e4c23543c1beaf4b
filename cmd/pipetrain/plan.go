package main

import (
	"io"

	"github.com/urfave/cli/v3"
)

func planCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{Name: "plan", Hidden: true}
}
