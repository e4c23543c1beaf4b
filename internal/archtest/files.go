package archtest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Lengths in lines: a file that a person can hold in mind.
const (
	WarnLines = 400
	MaxLines  = 500
)

// generated is Go's own mark; other languages' comments may start differently.
var generated = regexp.MustCompile(`(?m)^(//|#|;|<!--) Code generated .* DO NOT EDIT\.`)

// sources are the kinds of files that people write and read.
var sources = []string{".go", ".s", ".h", ".c", ".cu", ".cuh", ".py", ".sh", ".md", ".toml", ""}

// CheckLengths returns the hand-written files that are too long, and those that are close to it.
func CheckLengths(root string, files []string) (bad, warn []string) {
	for _, name := range files {
		if inTestdata(name) || path.Base(name) == "LICENSE" || !slices.Contains(sources, path.Ext(name)) {
			continue
		}
		text := read(root, name)
		if !isText(text) || generated.MatchString(text) {
			continue
		}
		lines := strings.Count(text, "\n")
		switch {
		case lines > MaxLines:
			bad = append(bad, fmt.Sprintf("%s has %d lines, more than %d: split it by subject", name, lines, MaxLines))
		case lines > WarnLines:
			warn = append(warn, fmt.Sprintf("%s has %d lines, close to the limit of %d", name, lines, MaxLines))
		}
	}
	return bad, warn
}

// forbidden is what no tracked file may contain. The patterns are put together
// from pieces so that this file does not contain them itself.
var forbidden = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`(^|[^\w.~$}])/` + `work/`), "the path of one developer's machine"},
	{regexp.MustCompile(`/` + `home/\w+/|/` + `Users/\w+/`), "the path of one developer's home"},
	{regexp.MustCompile(`bash_` + `jobs|\.\./` + `shared\b`), "the path of one developer's machine"},
	{regexp.MustCompile(`GOPROXY\s*[:=]\s*"?` + `http|index-` + `url|pypi` + `\.org|files\.python` + `hosted|registry\.npm` + `js|proxy\.golang` + `\.org`), "a package registry: whoever builds chooses it"},
	{regexp.MustCompile(`(?i)\bBEGIN [A-Z ]*PRIVATE ` + `KEY\b`), "a private key"},
	{regexp.MustCompile(`^(<<<<<<` + `<|>>>>>>` + `>) `), "a merge left undone"},
}

// CheckForbidden returns the lines of text files that hold something forbidden.
func CheckForbidden(root string, files []string) []string {
	var bad []string
	for _, name := range files {
		text := read(root, name)
		if !isText(text) {
			continue
		}
		n := 0
		for line := range strings.Lines(text) {
			n++
			for _, f := range forbidden {
				if f.pattern.MatchString(line) {
					bad = append(bad, fmt.Sprintf("%s:%d: %s: %s", name, n, f.why, strings.TrimSpace(line)))
				}
			}
		}
	}
	return bad
}

// MaxFileBytes bounds a tracked file: results and test data are small, corpora and weights stay outside.
const MaxFileBytes = 1 << 20

// CheckSizes returns the tracked files that are too big for a source repository.
func CheckSizes(root string, files []string) []string {
	var bad []string
	for _, name := range files {
		if info, err := os.Stat(filepath.Join(root, filepath.FromSlash(name))); err == nil && info.Size() > MaxFileBytes {
			bad = append(bad, fmt.Sprintf("%s has %d bytes, more than %d", name, info.Size(), MaxFileBytes))
		}
	}
	return bad
}

// CheckScripts returns the shell scripts that cannot be started or that go on after an error.
func CheckScripts(root string, files []string) []string {
	var bad []string
	for _, name := range files {
		text := read(root, name)
		if !strings.HasPrefix(text, "#!") || inTestdata(name) {
			continue
		}
		if info, err := os.Stat(filepath.Join(root, filepath.FromSlash(name))); err == nil && info.Mode()&0o111 == 0 {
			bad = append(bad, fmt.Sprintf("%s has a #! line but is not executable: chmod +x", name))
		}
		first, _, _ := strings.Cut(text, "\n")
		if strings.HasSuffix(first, "bash") && !strings.Contains(text, "\nset -euo pipefail") {
			bad = append(bad, fmt.Sprintf("%s: no `set -euo pipefail`, so it would go on after an error", name))
		}
	}
	return bad
}

// CheckLicense returns what is wrong with the repository's licence.
func CheckLicense(root string) []string {
	text := read(root, "LICENSE")
	if !strings.Contains(text, "Apache License") || !strings.Contains(text, "Version 2.0, January 2004") || !strings.Contains(text, "END OF TERMS AND CONDITIONS") {
		return []string{"LICENSE is not the text of the Apache License 2.0"}
	}
	return nil
}
