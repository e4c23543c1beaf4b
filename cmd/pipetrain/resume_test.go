package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/checkpoint"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/launcher"
)

// A run goes on as it began or not at all: a key that changes what is computed is named, and no checkpoint is touched.
func TestResumeRefused(t *testing.T) {
	job := writeJob(t, tinyJob)
	out := filepath.Join(t.TempDir(), "run")
	mustRun(t, "--quiet", "--out", out, "--set", "train.steps=4", job)
	checkpoints := func() string {
		entries, err := os.ReadDir(filepath.Join(out, "checkpoints"))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(entries)
	}
	before := checkpoints()
	for _, c := range []struct{ set, want string }{
		{"seed=4", "seed was 3 and is 4"},
		{"model.layers=2", "model.layers was 4 and is 2"},
		{"model.heads=2", "model.heads was 4 and is 2"},
		{"model.rope_base=5000.0", "model.rope_base was 10000.0 and is 5000.0"},
		{"model.norm_eps=1e-6", "model.norm_eps was 1e-05 and is 1e-06"},
		{"model.tied=true", "model.tied was false and is true"},
		{"train.batch=16", "train.batch was 8 and is 16"},
		{"train.precision=bf16", "train.precision was fp32 and is bf16"},
		{"optimizer.lr=1e-3", "optimizer.lr was 0.003 and is 0.001"},
	} {
		args := []string{"--quiet", "--out", out, "--resume", "--set", c.set, "--set", "checkpoint.keep=1", "--set", "train.steps=8"}
		if c.set == "model.layers=2" {
			args = append(args, "--set", "parallel.stages=2")
		}
		e := pipetrain(t, append(args, job)...)
		if e.code != int(exitcode.Environment) || !strings.Contains(e.stderr, c.want) || !strings.Contains(e.stderr, "start a new run") {
			t.Errorf("--set %s: %v\nwant %q", c.set, e, c.want)
		}
	}
	if now := checkpoints(); now != before {
		t.Errorf("the checkpoints were %s and are %s", before, now)
	}
	// These may change: ranks, order of work, length, what is kept.
	mustRun(t, "--quiet", "--out", out, "--resume", "--set", "train.steps=6", "--set", "parallel.stages=2", "--set", "schedule.kind=gpipe",
		"--set", "schedule.microbatches=4", "--set", "checkpoint.keep=1", "--set", "checkpoint.every=1", "--set", "name=longer", job)
}

// Checkpoints of versions that did not keep the job's keys are judged by what they say themselves.
func TestResumeOfOldForm(t *testing.T) {
	job := writeJob(t, tinyJob)
	out := filepath.Join(t.TempDir(), "run")
	mustRun(t, "--quiet", "--out", out, "--set", "train.steps=4", job)
	c, _, err := checkpoint.Open(filepath.Join(out, "checkpoints"), checkpoint.Want{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all := func(s *checkpoint.Set) (tensors []checkpoint.Tensor) {
		for _, name := range s.Names() {
			info, _ := s.Info(name)
			b, err := s.Rows(name, 0, -1)
			if err != nil {
				t.Fatal(err)
			}
			tensors = append(tensors, checkpoint.Tensor{Name: name, DType: info.DType, Shape: info.Shape, Bytes: b})
		}
		return tensors
	}
	m := c.Manifest
	for _, old := range []struct {
		config     []byte
		sets, want []string
	}{
		{c.Config, []string{"model.heads=2"}, []string{"config.json's num_attention_heads was 4 and is 2"}},
		{c.Config, []string{"model.rope_base=5000.0"}, []string{"rope_theta"}},
		{c.Config, []string{"train.batch=16"}, []string{"train.batch = 16", "sequence 32", "sequence 64"}},
		{c.Config, []string{"seed=4"}, []string{"seed was 3 and is 4"}},
		{nil, []string{"model.layers=2", "parallel.stages=2"}, []string{"tensors that the job's model has not", "model.layers.2."}},
		{nil, []string{"model.tied=true"}, []string{"lm_head.weight"}},
	} {
		err := checkpoint.Save(t.Context(), checkpoint.SaveConfig{Dir: filepath.Join(out, "checkpoints"), Step: m.Step, Shards: 1}, all(c.Model), all(c.Optimizer),
			checkpoint.Meta{Job: m.Job, Seed: m.Seed, DataPosition: m.DataPosition, Config: old.config})
		if err != nil {
			t.Fatal(err)
		}
		args := []string{"--quiet", "--out", out, "--resume", job}
		for _, set := range old.sets {
			args = append(args, "--set", set)
		}
		e := pipetrain(t, args...)
		for _, want := range old.want {
			if e.code != int(exitcode.Environment) || !strings.Contains(e.stderr, want) {
				t.Errorf("%v: %v\nwant %q", old.sets, e, want)
			}
		}
	}
	mustRun(t, "--quiet", "--out", out, "--resume", job)
}

// rankOf is the world rank of a process, by what its launcher told it.
func rankOf(t testing.TB, pid int) int {
	t.Helper()
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	for kv := range strings.SplitSeq(string(env), "\x00") {
		name, value, _ := strings.Cut(kv, "=")
		if name == launcher.EnvRank || name == "OMPI_COMM_WORLD_RANK" || name == "PMI_RANK" {
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("process %d is no rank", pid)
	return -1
}

// Text of the same length that differs where the fingerprint does not look is found before a checkpoint goes.
func TestChangedText(t *testing.T) {
	job := writeJob(t, tinyJob)
	text := filepath.Join(filepath.Dir(job), "corpus.txt")
	b, err := os.ReadFile(text)
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Repeat(b, 1<<20/len(b)+1) // three samples of 64 KiB are not all of it
	if err := os.WriteFile(text, b, 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "run")
	mustRun(t, "--quiet", "--out", out, "--set", "train.steps=4", job)
	at := len(b) / 4
	b[at]++
	if err := os.WriteFile(text, b, 0o644); err != nil {
		t.Fatal(err)
	}
	line := []string{"--quiet", "--out", out, "--resume", "--set", "checkpoint.keep=1", job}
	if e := pipetrain(t, line...); e.code != int(exitcode.Environment) || !strings.Contains(e.stderr, "the data have changed") {
		t.Errorf("another text: %v", e)
	}
	if entries, err := os.ReadDir(filepath.Join(out, "checkpoints")); err != nil || len(entries) != 2 {
		t.Errorf("the checkpoints are %v, %v", entries, err)
	}
	b[at]--
	if err := os.WriteFile(text, b, 0o644); err != nil {
		t.Fatal(err)
	}
	mustRun(t, line...)
}

// The rank that cannot write is named, though all ranks tell of the save that failed.
func TestSaveNamesRank(t *testing.T) {
	for name, command := range launchers() {
		t.Run(name, func(t *testing.T) {
			job := writeJob(t, slowJob)
			out := filepath.Join(t.TempDir(), "run")
			p := begin(t, append(command(t), "--quiet", "--out", out, job)...)
			started(t, out, 6)
			for _, pid := range processes(t, false) {
				if rankOf(t, pid) != 2 {
					continue
				}
				if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: 4096}, nil); err != nil {
					t.Fatal(err)
				}
			}
			e := p.wait()
			if rec, err := exitcode.Read(out); err != nil || rec.Code != exitcode.Environment || rec.Rank != 2 || !strings.Contains(rec.Reason, "file too large") {
				t.Errorf("exit record %+v, %v\n%v", rec, err, e)
			}
			whole(t, out)
		})
	}
}
