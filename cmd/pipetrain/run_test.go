package main

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/data"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/record"
)

// A run leaves what the documentation promises, and its parts agree.
func TestRunFolder(t *testing.T) {
	job := writeJob(t, tinyJob)
	out := filepath.Join(t.TempDir(), "run")
	e := mustRun(t, "--out", out, job)
	for _, want := range []string{"bubble    predicted", "measured (a step", "rank  3 |", "loss "} {
		if !strings.Contains(e.stdout, want) {
			t.Errorf("the output lacks %q:\n%s", want, e.stdout)
		}
	}
	for _, f := range []string{"job.toml", "environment.json", "metrics.jsonl", "trace.json", "summary.json", "exit.json", "logs/rank-3.log",
		"checkpoints/step-00000000/model.safetensors.index.json", "checkpoints/step-00000004/manifest.json", "checkpoints/step-00000012/optimizer-00004-of-00004.safetensors"} {
		if info, err := os.Stat(filepath.Join(out, f)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", f, err)
		}
	}
	s, err := record.ReadSummary(filepath.Join(out, record.SummaryName))
	if err != nil {
		t.Fatal(err)
	}
	l := losses(t, out)
	if s.Status != "finished" || s.Steps != 12 || s.LossFirst != l[0] || s.LossLast != l[11] || s.LossLast >= s.LossFirst {
		t.Errorf("summary %+v, losses %v", s, l)
	}
	if len(s.TFLOPS) != 4 || len(s.PeakBytesByCategory) != 4 || s.PeakBytesByCategory[0]["weights"] == 0 || s.TFLOPSBusy[0] < s.TFLOPS[0] || s.TFLOPS[0] <= 0 {
		t.Errorf("compute %v, while busy %v TFLOP/s; memory for %v", s.TFLOPS, s.TFLOPSBusy, s.PeakBytesByCategory)
	}
	if len(s.PeakBytesMeasured) != 4 || !slices.Equal(s.PeakBytesMeasured, s.PeakBytesPredicted) || s.PeakBytesMeasured[0] < 1<<16 {
		t.Errorf("memory measured %v, planned %v", s.PeakBytesMeasured, s.PeakBytesPredicted)
	}
	if !(s.MakespanPredictedSeconds > 0 && s.MakespanMeasuredSeconds > 0 && s.BubblePredicted > 0 && s.BubbleMeasured > 0) {
		t.Errorf("prediction and measurement are missing: %+v", s)
	}
	var trace struct {
		TraceEvents []struct {
			Name, Ph, Cat string
			PID           int
			Dur           float64
		}
	}
	b, err := os.ReadFile(filepath.Join(out, "trace.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &trace); err != nil {
		t.Fatalf("trace.json: %v", err)
	}
	seen := map[string]bool{}
	for _, ev := range trace.TraceEvents {
		if ev.Ph == "X" {
			seen[ev.Cat+" "+ev.Name] = true
		}
	}
	for _, want := range []string{"compute 0F0", "compute 3I7", "compute 2W5", "transfer 1SEND_F3", "transfer 1RECV_B0"} {
		if !seen[want] {
			t.Errorf("the trace lacks %q", want)
		}
	}
	// The resolved job runs again to the same losses.
	again := filepath.Join(t.TempDir(), "again")
	mustRun(t, "--quiet", "--out", again, filepath.Join(out, "job.toml"))
	if got := losses(t, again); !slices.Equal(got, l) {
		t.Errorf("the resolved job gives other losses: %v, %v", got, l)
	}
}

// A run too short to predict its steps has measured them all the same.
func TestShortRun(t *testing.T) {
	job := writeJob(t, tinyJob)
	for _, steps := range []string{"1", "3"} {
		out := filepath.Join(t.TempDir(), "run")
		mustRun(t, "--quiet", "--set", "optimizer.warmup=0", "--set", "train.steps="+steps, "--out", out, job)
		s, err := record.ReadSummary(filepath.Join(out, record.SummaryName))
		if err != nil {
			t.Fatal(err)
		}
		if !(s.StepSecondsMedian > 0 && s.TokensPerSecond > 0 && s.MakespanMeasuredSeconds > 0 && s.BubbleMeasured > 0) || !math.IsNaN(s.BubblePredicted) {
			t.Errorf("%s steps: %+v", steps, s)
		}
	}
}

// The same binary and job give the same bits after 20 steps alone, under both
// MPIs, and on 1, 2, 4 and 8 ranks.
func TestSameLossesEverywhere(t *testing.T) {
	job := writeJob(t, tinyJob)
	dir := t.TempDir()
	common := []string{"--set", "model.layers=8", "--set", "train.steps=20", "--set", "checkpoint.every=0", job}
	ref := filepath.Join(dir, "one")
	mustRun(t, append([]string{"--quiet", "--out", ref, "--set", "parallel.stages=1", "--set", "schedule.kind=naive", "--set", "schedule.backward_p2=fused"}, common...)...)
	want, wantWeights := losses(t, ref), weights(t, ref)
	same := func(t *testing.T, out string, e ending) {
		t.Helper()
		if e.code != 0 {
			t.Fatal(e)
		}
		if got := losses(t, out); !slices.Equal(got, want) {
			t.Errorf("losses %v, want %v", got, want)
		}
		got := weights(t, out)
		if len(got) == 0 || len(got) != len(wantWeights) {
			t.Fatalf("%d tensors, want %d", len(got), len(wantWeights))
		}
		for name, w := range wantWeights {
			if string(got[name]) != string(w) {
				t.Errorf("%s differs", name)
			}
		}
	}
	cases := []struct{ ranks, kind, p2 string }{{"2", "gpipe", "end"}, {"4", "1f1b", "cooldown"}, {"8", "1f1b", "lagged"}}
	for _, c := range cases {
		n, err := strconv.Atoi(c.ranks)
		if err != nil {
			t.Fatal(err)
		}
		args := append([]string{"--quiet", "--set", "parallel.stages=" + c.ranks, "--set", "schedule.kind=" + c.kind, "--set", "schedule.backward_p2=" + c.p2}, common...)
		t.Run("local/"+c.ranks, func(t *testing.T) {
			out := filepath.Join(dir, "local"+c.ranks)
			same(t, out, pipetrain(t, append([]string{"--out", out}, args...)...))
		})
		for family := range mpiruns {
			t.Run(family+"/"+c.ranks, func(t *testing.T) {
				before := sharedMemory(t)
				out := filepath.Join(dir, family+c.ranks)
				same(t, out, begin(t, append(append(mpirun(t, family, n), "--out", out), args...)...).wait())
				nothingLeft(t, before)
				if s, err := record.ReadSummary(filepath.Join(out, record.SummaryName)); err != nil || s.Transport != "mpi" {
					t.Errorf("summary %+v, %v", s, err)
				}
			})
		}
	}
}

// weights returns the bytes of every tensor of a run's last checkpoint.
func weights(t testing.TB, run string) map[string][]byte {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(run, "checkpoints", "step-????????"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("%s has no checkpoint: %v", run, err)
	}
	out := map[string][]byte{}
	files, err := filepath.Glob(filepath.Join(slices.Max(dirs), "model*.safetensors"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no weights: %v", slices.Max(dirs), err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		n := binary64(b)
		var header map[string]struct {
			Offsets []int `json:"data_offsets"`
		}
		if err := json.Unmarshal(b[8:8+n], &header); err != nil {
			t.Fatal(err)
		}
		for name, h := range header {
			if name != "__metadata__" {
				out[name] = b[8+n+h.Offsets[0] : 8+n+h.Offsets[1]]
			}
		}
	}
	return out
}

func binary64(b []byte) int { return int(binary.LittleEndian.Uint64(b)) }

// A run that was stopped and resumed, also on another number of stages, is the one that never was.
func TestResume(t *testing.T) {
	job := writeJob(t, tinyJob)
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	mustRun(t, "--quiet", "--out", whole, job)
	want := losses(t, whole)

	// Another seed or another corpus would not be the same run.
	other := filepath.Join(dir, "other.txt")
	if err := os.WriteFile(other, []byte(strings.Repeat("another text, long enough to train on. ", 100)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, set := range []string{"seed=4", "data.path=" + other} {
		e := pipetrain(t, "--quiet", "--out", whole, "--resume", "--set", set, "--set", "train.steps=20", job)
		if e.code != int(exitcode.Environment) || !strings.Contains(e.stderr, "start a new run") {
			t.Errorf("resumed with %s: %v", set, e)
		}
	}

	for _, second := range [][]string{{}, {"--set", "parallel.stages=2"}, {"--set", "parallel.stages=1", "--set", "schedule.backward_p2=fused"}} {
		out := filepath.Join(dir, "parts"+strings.Join(second, ""))
		// The schedule of the learning rate belongs to the job, so the first part
		// must not know that it is shorter: it loses its last checkpoint instead.
		mustRun(t, "--quiet", "--out", out, job)
		if err := os.RemoveAll(filepath.Join(out, "checkpoints", "step-00000012")); err != nil {
			t.Fatal(err)
		}
		mustRun(t, append(append([]string{"--quiet", "--out", out, "--resume"}, second...), job)...)
		if got := losses(t, out); !slices.Equal(got, want) {
			t.Errorf("%v: losses %v, want %v", second, got, want)
		}
		a, b := weights(t, whole), weights(t, out)
		for name := range a {
			if string(a[name]) != string(b[name]) {
				t.Errorf("%v: %s differs", second, name)
			}
		}
	}
}

// Another program, which shares nothing with this one, reads the weights and finds the same loss.
func TestWeightsReadByAnotherProgram(t *testing.T) {
	python := "/usr/bin/python3"
	if err := exec.Command(python, "-c", "import numpy").Run(); err != nil {
		t.Skip("no Python with numpy: apt-get install python3-numpy")
	}
	job := writeJob(t, tinyJob)
	for _, tied := range []string{"false", "true"} {
		out := filepath.Join(t.TempDir(), "run")
		// Step 12's loss is that of the weights after step 11.
		mustRun(t, "--quiet", "--out", out, "--set", "checkpoint.every=11", "--set", "model.tied="+tied, job)
		want := losses(t, out)[11]

		spec, err := jobs.Load(job, nil)
		if err != nil {
			t.Fatal(err)
		}
		src, err := data.Open(spec.DataConfig())
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		var windows []byte
		for i := range spec.Train.Batch {
			seq := spec.Model.Seq
			sample := data.Sample{data.IDs: make([]byte, 4*seq), data.Targets: make([]byte, 4*seq)}
			if err := src.Sample(int64(11*spec.Train.Batch+i), sample); err != nil {
				t.Fatal(err)
			}
			windows = append(append(windows, sample[data.IDs]...), sample[data.Targets][4*seq-4:]...)
		}
		file := filepath.Join(t.TempDir(), "windows.bin")
		if err := os.WriteFile(file, windows, 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(python, "../../scripts/eval_safetensors.py", filepath.Join(out, "checkpoints", "step-00000011"), file, "--seq", strconv.Itoa(spec.Model.Seq))
		b, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		var got struct{ Loss float64 }
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if math.Abs(got.Loss-want) > 1e-5*want {
			t.Errorf("tied %s: the other program finds a loss of %v, the run had %v", tied, got.Loss, want)
		}
	}
}

// Replicas of a pipeline under real MPI agree with the embedded launcher's.
func TestReplicasUnderMPI(t *testing.T) {
	job := writeJob(t, tinyJob)
	dir := t.TempDir()
	sets := []string{"--set", "parallel.stages=2", "--set", "parallel.replicas=2", "--set", "schedule.microbatches=4", job}
	ref := filepath.Join(dir, "local")
	mustRun(t, append([]string{"--quiet", "--out", ref}, sets...)...)
	for family := range mpiruns {
		t.Run(family, func(t *testing.T) {
			out := filepath.Join(dir, family)
			e := begin(t, append(append(mpirun(t, family, 4), "--quiet", "--out", out), sets...)...).wait()
			if e.code != 0 {
				t.Fatal(e)
			}
			if got, want := losses(t, out), losses(t, ref); !slices.Equal(got, want) {
				t.Errorf("losses %v, want %v", got, want)
			}
		})
	}
}

// A rehearsal performs the schedule over real messages without computing.
func TestRehearse(t *testing.T) {
	job := writeJob(t, tinyJob)
	out := filepath.Join(t.TempDir(), "run")
	e := mustRun(t, "--out", out, "--set", "device.kind=rehearse", "--set", "parallel.stages=4", job)
	if !strings.Contains(e.stdout, "nothing was computed") {
		t.Error(e)
	}
	s, err := record.ReadSummary(filepath.Join(out, record.SummaryName))
	if err != nil || s.Device != "rehearse" || s.MakespanMeasuredSeconds < s.MakespanPredictedSeconds || s.MakespanPredictedSeconds <= 0 {
		t.Errorf("summary %+v, %v", s, err)
	}
}
