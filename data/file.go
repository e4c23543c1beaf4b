package data

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// FileError says what is wrong with a file of tokens, and what to do about it.
type FileError struct {
	Path   string
	Offset int64 // of the byte that is wrong; negative: the file as a whole
	What   string
	Right  string // what to do; may be empty
}

func (e *FileError) Error() string {
	s := "data: " + e.Path + ": "
	if e.Offset >= 0 {
		s += fmt.Sprintf("at byte %d: ", e.Offset)
	}
	s += e.What
	if e.Right != "" {
		s += " (" + e.Right + ")"
	}
	return s
}

// whole makes a FileError about a file as a whole.
func whole(path, what, right string) *FileError {
	return &FileError{Path: path, Offset: -1, What: what, Right: right}
}

// expand returns the files that a path or a pattern names, by name.
func expand(path string) ([]string, error) {
	if _, err := os.Lstat(path); err == nil || !strings.ContainsAny(path, "*?[") {
		return []string{path}, nil
	}
	found, err := filepath.Glob(path)
	switch {
	case err != nil:
		return nil, whole(path, "is no valid pattern", "*, ? and [a-z] stand for parts of a name")
	case len(found) == 0:
		return nil, whole(path, "matches no file", "paths are relative to the job file's folder, after --set to the working directory")
	}
	slices.Sort(found)
	return found, nil
}

// openRegular opens a file that many ranks can read at many places.
func openRegular(path string) (*os.File, int64, error) {
	// Looked at before it is opened: to open a pipe would wait for its writer.
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, whole(path, "does not exist", "paths are relative to the job file's folder, after --set to the working directory")
	case err != nil:
		return nil, 0, unreadable(path, err)
	case info.IsDir():
		return nil, 0, whole(path, "is a folder", "name its files by a pattern: "+filepath.Join(path, "*"))
	case !info.Mode().IsRegular():
		return nil, 0, whole(path, "is no regular file: ranks read it at many places at once", "save it in a file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, unreadable(path, err)
	}
	// Of the file that is open: the path may have another by now.
	if info, err = f.Stat(); err != nil {
		f.Close()
		return nil, 0, unreadable(path, err)
	}
	return f, info.Size(), nil
}

func unreadable(path string, err error) *FileError {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return whole(path, "cannot be read: "+err.Error(), "")
}
