package main

import (
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/record"
)

// awareMPI compiles a library that claims to be CUDA-aware on top of the family's real one.
func awareMPI(t *testing.T, family string) string {
	t.Helper()
	below := map[string]string{"openmpi": "libmpi.so.40", "mpich": "libmpich.so.12"}[family]
	path := filepath.Join(t.TempDir(), "libaware.so")
	out, err := exec.Command("g++", "-x", "c", "-shared", "-fPIC", "-o", path, "testdata/awarempi.c", "-Wl,--no-as-needed", "-l:"+below, "-ldl").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// Messages leave and reach emulated GPUs by each way and each transport; the losses are the CPU's. What a way that was
// asked for cannot do is told in one line; "auto" goes another way.
func TestGPUTransfers(t *testing.T) {
	if testing.Short() {
		t.Skip("trains several times")
	}
	gpu := emulatedGPU(t)
	job := writeJob(t, gpuJob)
	steps := []string{"--quiet", "--set", "train.steps=6"}
	ref := filepath.Join(t.TempDir(), "cpu")
	mustRun(t, append(steps, "--out", ref, job)...)
	want := losses(t, ref)
	for _, c := range []struct {
		name, mpi, transfer string
		aware, spoils       bool
		way                 string // as the run's record has it
		refused             string
	}{
		{name: "local staged", transfer: "staged", way: "staged"},
		{name: "local ipc", transfer: "ipc", way: "ipc"},
		{name: "local direct", transfer: "direct", refused: "transport local takes no device memory"},
		{name: "openmpi staged", mpi: "openmpi", transfer: "staged", way: "staged"},
		{name: "mpich ipc", mpi: "mpich", transfer: "ipc", way: "ipc"},
		{name: "openmpi direct", mpi: "openmpi", transfer: "direct", aware: true, way: "direct"},
		{name: "mpich direct", mpi: "mpich", transfer: "direct", aware: true, way: "direct"},
		{name: "openmpi direct, which it cannot", mpi: "openmpi", transfer: "direct", refused: "MPIX_Query_cuda_support of Open MPI"},
		{name: "openmpi direct, claimed", mpi: "openmpi", transfer: "direct", aware: true, spoils: true, refused: "device memory arrived wrong"},
		{name: "mpich auto, claimed", mpi: "mpich", transfer: "auto", aware: true, spoils: true, way: "ipc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run")
			args := []string{"env", "PIPETRAIN_EMULATION_DELAY=20", "PIPETRAIN_EMULATION_GPUS=2"}
			if c.spoils {
				args = append(args, "AWARE_SPOILS=1")
			}
			if c.mpi != "" {
				args = append(args, mpirun(t, c.mpi, 2)...)
			} else {
				args = append(args, pipetrainPath)
			}
			args = append(append(append(args, steps...), "--out", out, "--set", "device.transfer="+c.transfer), gpu...)
			if c.aware {
				args = append(args, "--set", "transport.libmpi="+awareMPI(t, c.mpi))
			}
			e := begin(t, append(args, job)...).wait()
			if c.refused != "" {
				line := `device.transfer = "` + c.transfer + `" does not reach rank `
				if e.code != int(exitcode.Environment) || !strings.Contains(e.stderr, line) || !strings.Contains(e.stderr, c.refused) || strings.Contains(e.stdout+e.stderr, "step ") {
					t.Error(e)
				}
				return
			}
			if e.code != 0 {
				t.Fatal(e)
			}
			got := losses(t, out)
			if len(got) != len(want) || len(got) != 6 {
				t.Fatalf("%d steps, %d on the CPU", len(got), len(want))
			}
			for i := range want {
				if !(math.Abs(got[i]-want[i]) < 1e-4*want[i]) {
					t.Errorf("step %d: loss %g, on the CPU %g", i+1, got[i], want[i])
				}
			}
			if s, err := record.ReadSummary(filepath.Join(out, record.SummaryName)); err != nil || !slices.Equal(s.Transfers, []string{c.way, c.way}) {
				t.Errorf("messages went by %q, want %s: %v", s.Transfers, c.way, err)
			}
		})
	}
}
