// Package archtest holds the rules of the repository as a whole: who may import
// whom (the table in docs/architecture.md), how long a file may be, what no
// tracked file may contain, and that the pages agree with the code.
//
// Each rule is a function from a repository's root to the list of places that
// break it, so that the tests can try it on a small bad repository too.
package archtest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Files returns the repository's tracked files that exist, as slash-separated
// paths relative to root, sorted. Where root is no git checkout (a source
// archive), it returns all files but the build's own folders.
func Files(root string) ([]string, error) {
	var files []string
	cmd := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z")
	cmd.Dir = root
	if _, err := os.Stat(filepath.Join(root, ".git")); err == nil {
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("list tracked files of %s: %w", root, err)
		}
		for name := range bytes.SplitSeq(out, []byte{0}) {
			if len(name) == 0 {
				continue
			}
			// A file deleted but not yet committed is still listed.
			if info, err := os.Lstat(filepath.Join(root, string(name))); err == nil && info.Mode().IsRegular() {
				files = append(files, string(name))
			}
		}
	} else {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			if d.IsDir() && slices.Contains([]string{".git", "bin", "build", "runs"}, rel) {
				return filepath.SkipDir
			}
			if d.Type().IsRegular() {
				files = append(files, filepath.ToSlash(rel))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(files)
	return files, nil
}

// read returns a file's text; a file that vanished meanwhile is empty.
func read(root, name string) string {
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return ""
	}
	return string(b)
}

// isText says whether s looks like text: no zero byte in its beginning.
func isText(s string) bool {
	return !strings.Contains(s[:min(len(s), 8000)], "\x00")
}

// inTestdata says whether a path lies in a testdata folder.
func inTestdata(name string) bool {
	return strings.HasPrefix(name, "testdata/") || strings.Contains(name, "/testdata/")
}
