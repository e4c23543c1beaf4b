// Package durable writes files so that a reader, or a crash at any instant, finds the old
// content or the new, and makes names survive a power failure.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
)

// begun is what Create names files that are being written.
var begun = regexp.MustCompile(`.\.[0-9a-f]{8}\.tmp$`)

// File is a file that is written beside the one it replaces. Any number of processes may
// write to one name: each has its own file, and the last to commit is seen.
type File struct {
	*os.File
	path string
}

// Create begins to replace the file at path. End it with Commit, CommitNew or Discard.
func Create(path string) (*File, error) { return create(path, 0o644) }

func create(path string, mode fs.FileMode) (*File, error) {
	for {
		f, err := os.OpenFile(fmt.Sprintf("%s.%08x.tmp", path, rand.Uint32()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &File{f, path}, nil
	}
}

// Path is the name that the file will have.
func (f *File) Path() string { return f.path }

// Discard removes what was written.
func (f *File) Discard() {
	f.File.Close()
	_ = os.Remove(f.Name())
}

// finish brings the content to the disk.
func (f *File) finish() error {
	err := f.Sync()
	if e := f.File.Close(); err == nil {
		err = e // some network file systems report a failed write only here
	}
	return err
}

// Commit gives the file its name, also where another has it, and makes the name durable.
// A file that cannot be committed is removed.
func (f *File) Commit() error {
	err := f.finish()
	if err == nil {
		err = os.Rename(f.Name(), f.path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return SyncDir(filepath.Dir(f.path))
}

// CommitNew gives the file its name unless there is one of that name; won says whether it did.
func (f *File) CommitNew() (won bool, err error) {
	defer os.Remove(f.Name())
	if err := f.finish(); err != nil {
		return false, err
	}
	// link(2) is the atomic "create with this content unless it exists", on NFS too.
	if err = os.Link(f.Name(), f.path); err != nil && !errors.Is(err, fs.ErrExist) {
		// A file system without hard links: exclusive creation, then a rename over it.
		var claim *os.File
		if claim, err = os.OpenFile(f.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err == nil {
			claim.Close()
			err = os.Rename(f.Name(), f.path)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, SyncDir(filepath.Dir(f.path))
}

// WriteFile replaces the file at path as a whole.
func WriteFile(path string, content []byte) error { return write(path, content, 0o644) }

// WritePrivate does so with a file that only its owner can read.
func WritePrivate(path string, content []byte) error { return write(path, content, 0o600) }

func write(path string, content []byte, mode fs.FileMode) error {
	f, err := create(path, mode)
	if err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		f.Discard()
		return err
	}
	return f.Commit()
}

// SyncDir makes the names in a folder durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	// Some file systems cannot sync a folder and say so; they order names themselves.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}

// Sweep removes what a process that was killed had begun to write in a folder that nobody writes to now.
func Sweep(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.Type().IsRegular() && begun.MatchString(e.Name()) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
