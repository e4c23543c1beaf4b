package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// WriteFile replaces the file at path as a whole: a reader, or a crash at any
// instant, leaves the old content or the new.
func WriteFile(path string, content []byte) error {
	f, err := startReplace(path)
	if err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		f.discard()
		return writeError(path, err)
	}
	return f.commit()
}

// replacement is a file that is written beside the one it replaces.
type replacement struct {
	*os.File
	path string
}

func startReplace(path string) (*replacement, error) {
	// One writer a folder (the lock holder): a fixed name cannot collide, and
	// what a dead run left is overwritten.
	f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, writeError(path, err)
	}
	return &replacement{f, path}, nil
}

func (r *replacement) discard() {
	r.File.Close()
	_ = os.Remove(r.path + ".tmp")
}

// commit syncs the content, gives the file its name and makes the name durable.
func (r *replacement) commit() error {
	err := r.Sync()
	if e := r.File.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(r.path+".tmp", r.path)
	}
	if err != nil {
		_ = os.Remove(r.path + ".tmp")
		return writeError(r.path, err)
	}
	d, err := os.Open(filepath.Dir(r.path))
	if err != nil {
		return writeError(r.path, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return writeError(r.path, err)
	}
	return nil
}

// writeError adds what to do; err has the path in it when the system gave it.
func writeError(path string, err error) error {
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
