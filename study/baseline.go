package study

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pipetrain/pipetrain/durable"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/record"
)

// Names in a baseline's folder; study.toml, job.toml and points.jsonl are the study's.
const (
	baselineName   = "baseline.json"
	baselineBinary = "pipetrain"
)

// Baseline is what a gate compares with: a program, and what it measured.
type Baseline struct {
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Commit  string    `json:"commit"`
	Host    string    `json:"host"`
	Saved   time.Time `json:"saved"`
	Study   string    `json:"study"` // the folder that it was saved from

	Dir    string  `json:"-"`
	Points []Point `json:"-"`
}

// Binary is the program that the baseline carries.
func (b *Baseline) Binary() string { return filepath.Join(b.Dir, baselineBinary) }

// LoadBaseline reads root/name and tries whether its program runs here.
func LoadBaseline(ctx context.Context, root, name string) (*Baseline, error) {
	dir, err := filepath.Abs(filepath.Join(root, name))
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, baselineName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, exitcode.Errorf(exitcode.Usage, "--gate %s: there is no baseline %s: pipetrain study … --save-baseline %s makes one", name, dir, name)
	case err != nil:
		return nil, exitcode.With(exitcode.Environment, err)
	}
	b := &Baseline{Dir: dir}
	if err := json.Unmarshal(text, b); err != nil {
		return nil, exitcode.With(exitcode.Environment, fmt.Errorf("%s: %w", filepath.Join(dir, baselineName), err))
	}
	if b.Points, err = ReadPoints(dir); err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(within, b.Binary(), "--version").CombinedOutput(); err != nil {
		return nil, exitcode.Errorf(exitcode.Environment, "the baseline's program %s does not run here (%v: %s): save a new baseline on this machine", b.Binary(), err, firstLine(out))
	}
	return b, nil
}

func firstLine(b []byte) string {
	s := string(b)
	for i, r := range s {
		if r == '\n' {
			return s[:i]
		}
	}
	return s
}

// SaveBaseline keeps a study's points, the program that made them and its environment as root/name. An
// existing one is replaced only as a whole.
func SaveBaseline(root, name string, f *Folder, binary string, e End) (string, error) {
	dir := filepath.Join(root, name)
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", exitcode.With(exitcode.Environment, err)
	}
	tmp, err := os.MkdirTemp(root, "."+name+"-")
	if err != nil {
		return "", exitcode.With(exitcode.Environment, err)
	}
	defer os.RemoveAll(tmp) // gone after the rename
	if err := fillBaseline(tmp, name, f, binary, e); err != nil {
		return "", exitcode.With(exitcode.Environment, err)
	}
	old := tmp + ".old"
	if err := os.Rename(dir, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", exitcode.With(exitcode.Environment, err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return "", exitcode.With(exitcode.Environment, err)
	}
	return dir, exitcode.With(exitcode.Environment, errors.Join(os.RemoveAll(old), durable.SyncDir(root)))
}

func fillBaseline(dir, name string, f *Folder, binary string, e End) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for _, n := range []string{FileName, JobName, PointsName} {
		if err := copyFile(f.File(n), filepath.Join(dir, n), 0o644); err != nil {
			return err
		}
	}
	if err := copyFile(binary, filepath.Join(dir, baselineBinary), 0o755); err != nil {
		return err
	}
	found, _ := filepath.Glob(filepath.Join(f.Path, RunsName, "*", "r1", record.EnvironmentName))
	if len(found) > 0 {
		if err := copyFile(found[0], filepath.Join(dir, record.EnvironmentName), 0o644); err != nil {
			return err
		}
	}
	b, err := json.MarshalIndent(Baseline{Name: name, Version: e.Version, Commit: e.Commit, Host: e.Host, Saved: time.Now(), Study: filepath.Base(f.Path)}, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, baselineName), append(b, '\n'))
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if e := out.Sync(); err == nil {
		err = e
	}
	if e := out.Close(); err == nil {
		err = e
	}
	return err
}
