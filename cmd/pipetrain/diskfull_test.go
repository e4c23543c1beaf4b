package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/checkpoint"
	"github.com/pipetrain/pipetrain/exitcode"
)

// smallDisk mounts a file system of the given size.
func smallDisk(t testing.TB, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("pipetrain-test", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("no right to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A disk that is full, at the start or in the middle of a save, ends the run with one
// clear message and the code of the environment; the checkpoints before are whole and
// nothing half-written has a checkpoint's name.
func TestDiskFull(t *testing.T) {
	job := writeJob(t, tinyJob)
	ways := map[string]func() []string{"local": func() []string { return []string{pipetrainPath} }}
	for family := range mpiruns {
		ways[family] = func() []string { return mpirun(t, family, 4) }
	}
	for name, command := range ways {
		t.Run(name+"/at the start", func(t *testing.T) {
			disk := smallDisk(t, "size=64k")
			fillUp(t, filepath.Join(disk, "full"))
			out := filepath.Join(disk, "run")
			e := begin(t, append(command(), "--quiet", "--out", out, job)...).wait()
			if e.code != int(exitcode.Environment) || !strings.Contains(e.stderr, "no space left") || !strings.Contains(e.stderr, out) {
				t.Errorf("a full disk: %v", e)
			}
			if n := strings.Count(e.stderr, "no space left"); n > 2 { // the system's words and ours
				t.Errorf("said %d times: %v", n, e)
			}
		})
		t.Run(name+"/at a checkpoint", func(t *testing.T) {
			// A checkpoint of the tiny job has some 400 KiB, and all are kept.
			disk := smallDisk(t, "size=2m")
			out := filepath.Join(disk, "run")
			e := begin(t, append(command(), "--quiet", "--out", out, "--set", "checkpoint.every=2", "--set", "train.steps=200", job)...).wait()
			if e.code != int(exitcode.Environment) || !strings.Contains(e.stderr, "no space left") || !strings.Contains(e.stderr, "free") {
				t.Errorf("a disk that fills up: %v", e)
			}
			c, skipped, err := checkpoint.Open(filepath.Join(out, "checkpoints"), checkpoint.Want{})
			if err != nil || c.Manifest.Step < 2 || len(skipped) > 0 {
				t.Errorf("no checkpoint to go on from: %v, skipped %v", err, skipped)
			}
			if err == nil {
				c.Close()
			}
			rec, err := exitcode.Read(out)
			// The full disk may have no room for the record either: then there is none, whole or half.
			if err == nil && rec.Code != exitcode.Environment || err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("exit record %+v, %v", rec, err)
			}
			if left, _ := filepath.Glob(filepath.Join(out, ".exit.json.*")); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
	t.Run("no more files", func(t *testing.T) { // a quota of inodes, as home directories have
		disk := smallDisk(t, "size=4m,nr_inodes=6")
		out := filepath.Join(disk, "run")
		e := begin(t, pipetrainPath, "--quiet", "--out", out, job).wait()
		if e.code != int(exitcode.Environment) || !strings.Contains(e.stderr, "no space left") || !strings.Contains(e.stderr, out) {
			t.Errorf("a disk without inodes: %v", e)
		}
	})
}

// fillUp writes a file until its file system is full.
func fillUp(t testing.TB, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return
		}
	}
}
