package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

const manyJob = `
name = "many"
[model]
layers = 16
dim = 32
heads = 4
seq = 32
[data]
kind = "synthetic"
[train]
steps = 2
batch = 512
[parallel]
stages = 16
[schedule]
microbatches = 16
[device]
kind = "rehearse"
messages = "small"
threads = 1
`

// 128 ranks start on a host of few cores; PIPETRAIN_RANKS=512 tries that many, which takes minutes.
func TestManyRanks(t *testing.T) {
	if testing.Short() {
		t.Skip("starts 128 processes")
	}
	ranks, limit := 128, 80*time.Second
	if s := os.Getenv("PIPETRAIN_RANKS"); s != "" {
		var err error
		if ranks, err = strconv.Atoi(s); err != nil || ranks%16 != 0 {
			t.Fatalf("PIPETRAIN_RANKS=%q: want a multiple of 16", s)
		}
		limit = 20 * time.Minute
	}
	before := sharedMemory(t)
	job := filepath.Join(t.TempDir(), "job.toml")
	if err := os.WriteFile(job, []byte(manyJob), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "run")
	e := beginWithin(t, limit, pipetrainPath, "--quiet", "--out", out, "--set", "parallel.replicas="+strconv.Itoa(ranks/16), job).wait()
	if e.code != 0 || len(losses(t, out)) != 2 {
		t.Errorf("%d ranks: %v", ranks, e)
	}
	t.Logf("%d ranks: %v", ranks, e.took)
	nothingLeft(t, before)
}
