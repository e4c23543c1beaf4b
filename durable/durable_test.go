package durable

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// names lists a folder.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// Many write to one name at once: readers see one of the contents whole, nothing else is left.
func TestManyWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for range 20 {
				if err := WriteFile(path, bytes.Repeat([]byte{byte('a' + w)}, 10_000*(w+1))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	over := make(chan struct{})
	go func() { writers.Wait(); close(over) }()
	for running := true; running; {
		select {
		case <-over:
			running = false
		default:
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && running {
			continue
		}
		if err != nil || len(b) == 0 || len(b) != 10_000*int(b[0]-'a'+1) || len(bytes.Trim(b, string(b[:1]))) > 0 {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
	}
	if left := names(t, filepath.Dir(path)); len(left) != 1 {
		t.Errorf("%q are left", left)
	}
}

// Of many who want to be first one is.
func TestCommitNew(t *testing.T) {
	dir := t.TempDir()
	var won atomic.Int32
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			f, err := Create(filepath.Join(dir, "file"))
			if err != nil {
				t.Error(err)
				return
			}
			if first, err := f.CommitNew(); err != nil {
				t.Error(err)
			} else if first {
				won.Add(1)
			}
		})
	}
	writers.Wait()
	if left := names(t, dir); won.Load() != 1 || len(left) != 1 {
		t.Errorf("%d were first, %q are left", won.Load(), left)
	}
}

// Files have the rights that the user's umask gives.
func TestUmask(t *testing.T) {
	for _, mask := range []int{0o022, 0o027, 0o077} {
		path := filepath.Join(t.TempDir(), "file")
		old := syscall.Umask(mask)
		err := WriteFile(path, []byte("x"))
		syscall.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != os.FileMode(0o644&^mask) {
			t.Errorf("umask %03o: %v %v", mask, st.Mode(), err)
		}
	}
}

// What cannot be written leaves nothing, and what a dead process left goes; a user's own files stay.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "taken"), nil); err == nil {
		t.Error("a folder was replaced")
	}
	f, err := Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	f.Discard()
	if err := WriteFile(filepath.Join(dir, "none", "file"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if left := names(t, dir); len(left) != 1 {
		t.Errorf("%q are left", left)
	}
	if _, err = Create(filepath.Join(dir, "file")); err != nil { // and dies
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mine.tmp"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	Sweep(dir)
	if left := names(t, dir); len(left) != 2 || left[0] != "mine.tmp" {
		t.Errorf("%q are left", left)
	}
}
