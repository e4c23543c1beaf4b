package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A checkpoint of four stages, converted to one file, is what a run on other ranks continues from, to the same bits.
func TestConvertedCheckpointResumes(t *testing.T) {
	job, dir := writeJob(t, tinyJob), t.TempDir()
	whole, branch := filepath.Join(dir, "whole"), filepath.Join(dir, "branch")
	mustRun(t, "--quiet", "--out", whole, job)
	if err := os.CopyFS(branch, os.DirFS(whole)); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(branch, "checkpoints")
	if err := os.RemoveAll(kept); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(kept, 0o755); err != nil {
		t.Fatal(err)
	}
	at := func(run, step string) string { return filepath.Join(run, "checkpoints", step) }
	if s := call("checkpoint", "convert", at(whole, "step-00000004"), at(branch, "step-00000004")); s.code != 0 {
		t.Fatal(s)
	}
	if _, err := os.Stat(filepath.Join(at(branch, "step-00000004"), "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "--quiet", "--resume", "--out", branch, "--set", "parallel.stages=2", job)
	if s := call("checkpoint", "diff", whole, branch); s.code != 0 || s.stdout != "the same bits\n" {
		t.Errorf("%+v", s)
	}
	if s := call("checkpoint", "diff", "--weights-only", at(whole, "step-00000004"), whole); s.code != 3 || !strings.Contains(s.stdout, "lm_head.weight: ") || !strings.Contains(s.stderr, "tensors differ") {
		t.Errorf("%+v", s)
	}
	checkpointTells(t, whole)
}

var spaces = regexp.MustCompile(" +")

// checkpointTells holds what list, show and verify say of a run of 12 steps against its files.
func checkpointTells(t *testing.T, run string) {
	t.Helper()
	var all []struct {
		Step, Shards int
		Wrong        string
	}
	s := call("checkpoint", "list", "--json", run)
	if err := json.Unmarshal([]byte(s.stdout), &all); err != nil || len(all) != 4 || all[3].Step != 12 || all[3].Shards != 4 || all[3].Wrong != "" {
		t.Errorf("%+v, %v", s, err)
	}
	s = call("checkpoint", "show", run)
	for _, want := range []string{"step-00000012\n", "step 12 of job tiny, seed 3, 96 sequences", "4 shards", "model.layers.0.self_attn.q_proj.weight F32 [32 32]"} {
		if s.code != 0 || !strings.Contains(spaces.ReplaceAllString(s.stdout, " "), want) {
			t.Errorf("%+v lacks %q", s, want)
		}
	}
	if s = call("checkpoint", "verify", run); s.code != 0 || strings.Count(s.stdout, ": whole\n") != 4 {
		t.Errorf("%+v", s)
	}
	file := filepath.Join(run, "checkpoints", "step-00000008", "optimizer-00002-of-00004.safetensors")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if s = call("checkpoint", "verify", run); s.code != 3 || !strings.Contains(s.stdout, "step-00000008: optimizer-00002-of-00004.safetensors is damaged") || !strings.Contains(s.stderr, "1 of 4 checkpoints") {
		t.Errorf("%+v", s)
	}
	for want, args := range map[string][]string{
		"want one run":        {"list"},
		"holds neither":       {"show", filepath.Dir(run)},
		"--dtype \"f8\"":      {"convert", "--dtype", "f8", run, "x"},
		"is damaged":          {"convert", filepath.Dir(file), filepath.Join(run, "x")},
		"want two run":        {"diff", run},
		"1 of 1 checkpoints":  {"verify", filepath.Dir(run)},
		"not \"remove\" (see": {"remove"},
	} {
		if s := call(append([]string{"checkpoint"}, args...)...); s.code == 0 || !strings.Contains(s.stderr, want) {
			t.Errorf("%v: %+v, want %q", args, s, want)
		}
	}
}

// GPT-2's files hold some matrices transposed. A run that continues from them on other ranks goes on to the same bits.
func TestGPT2Resumes(t *testing.T) {
	job, dir := writeJob(t, strings.ReplaceAll(strings.ReplaceAll(tinyJob, `kind = "transformer"`, `kind = "gpt2"`), "kv_heads = 2\n", "")), t.TempDir()
	whole, again := filepath.Join(dir, "whole"), filepath.Join(dir, "again")
	mustRun(t, "--quiet", "--out", whole, job)
	if err := os.CopyFS(again, os.DirFS(whole)); err != nil {
		t.Fatal(err)
	}
	for _, later := range []string{"step-00000012", "step-00000008"} {
		if err := os.RemoveAll(filepath.Join(again, "checkpoints", later)); err != nil {
			t.Fatal(err)
		}
	}
	mustRun(t, "--quiet", "--resume", "--out", again, "--set", "parallel.stages=2", job)
	if s := call("checkpoint", "diff", whole, again); s.code != 0 {
		t.Errorf("%+v", s)
	}
	if s := call("checkpoint", "show", whole); !strings.Contains(spaces.ReplaceAllString(s.stdout, " "), "transformer.h.0.attn.c_attn.weight F32 [32 96]") {
		t.Errorf("%+v", s)
	}
}
