package main

import (
	"strings"

	"github.com/pipetrain/pipetrain/manage"
)

var lastMetrics = manage.LastMetrics

// globEscape keeps a folder's name from being read as a pattern.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}
