package main

import (
	"strings"

	"github.com/pipetrain/pipetrain/manage"
	"github.com/pipetrain/pipetrain/process"
)

var lastMetrics = manage.LastMetrics

const scheduleName = process.ScheduleName

// globEscape keeps a folder's name from being read as a pattern.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}
