package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/pipetrain/pipetrain/durable"
)

// WriteFile is durable.WriteFile with an error that says what to do.
func WriteFile(path string, content []byte) error {
	return writeError(path, durable.WriteFile(path, content))
}

// WriteJob writes a job's text, or a script with it, so that only its owner can read it where it
// holds variables for the ranks: there may be a password among them.
func WriteJob(path string, text []byte, variables bool) error {
	if !variables {
		return WriteFile(path, text)
	}
	return writeError(path, durable.WritePrivate(path, text))
}

// writeError adds what to do; err has the path in it when the system gave it.
func writeError(path string, err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		hint = " (free space there)"
	case errors.Is(err, syscall.EROFS), errors.Is(err, os.ErrPermission):
		hint = " (choose a folder that can be written, with --out)"
	case errors.Is(err, syscall.EIO):
		hint = " (the disk or file system failed: see the kernel's log)"
	}
	return fmt.Errorf("writing %s: %w%s", filepath.Base(path), err, hint)
}
