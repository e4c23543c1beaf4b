package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/record"
)

// affinities reads what CPUs the ranks of a run had.
func affinities(t testing.TB, run string) (all []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(run, record.EnvironmentName))
	if err != nil {
		t.Fatal(err)
	}
	var env struct{ Hosts []record.Host }
	if err := json.Unmarshal(b, &env); err != nil {
		t.Fatal(err)
	}
	for _, h := range env.Hosts {
		all = append(all, h.Affinity)
	}
	return all
}

// Ranks share out the CPUs as the job says, whoever started them.
func TestBind(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU")
	}
	job := writeJob(t, tinyJob)
	two := []string{"--quiet", "--set", "parallel.stages=2", "--set", "train.steps=2"}
	ways := map[string][]string{"local": {pipetrainPath}}
	for family := range mpiruns {
		ways[family] = mpirun(t, family, 2)
	}
	for name, way := range ways {
		out := filepath.Join(t.TempDir(), "run")
		e := begin(t, append(append(way, two...), "--set", "device.bind=cores", "--out", out, job)...).wait()
		if e.code != 0 {
			t.Errorf("%s: %v", name, e)
			continue
		}
		if got := affinities(t, out); len(got) != 2 || got[0] == got[1] || got[0] == "" {
			t.Errorf("%s: CPUs %v, %v", name, got, e)
		}
		out = filepath.Join(t.TempDir(), "run")
		e = begin(t, append(append(way, two...), "--set", "device.bind=none", "--out", out, job)...).wait()
		if e.code != 0 {
			t.Errorf("%s: %v", name, e)
			continue
		}
		if got := affinities(t, out); got[0] != got[1] {
			t.Errorf("%s, not bound: CPUs %v, %v", name, got, e)
		}
	}
	// mpirun has shared them out itself.
	out := filepath.Join(t.TempDir(), "run")
	e := begin(t, append(append([]string{"mpirun.openmpi", "--oversubscribe", "--bind-to", "core", "-n", "2", pipetrainPath}, two...), "--set", "device.bind=cores", "--out", out, job)...).wait()
	if e.code != int(exitcode.Environment) || !strings.Contains(e.stderr, "has bound rank") {
		t.Errorf("bound twice: %v", e)
	}
}
