package main

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/kernels/cuda"
	"github.com/pipetrain/pipetrain/kernels/cuda/emulation/emutest"
	"github.com/pipetrain/pipetrain/record"
)

// The GPU of these tests is the stand-in: the real kernels, compiled for the host.

const gpuJob = `
name = "gpu"
seed = 3
[model]
kind = "transformer"
layers = 2
dim = 16
heads = 2
kv_heads = 1
ffn = 32
seq = 16
[data]
kind = "text"
path = "corpus.txt"
[train]
steps = 50
batch = 8
[optimizer]
kind = "adamw"
lr = 3e-3
warmup = 2
clip = 1.0
[parallel]
stages = 2
[schedule]
kind = "1f1b"
microbatches = 4
backward_p2 = "cooldown"
concat = "all"
[device]
kind = "cpu"
[checkpoint]
every = 0
`

// emulatedGPU returns the arguments with which a job runs on the stand-in.
func emulatedGPU(t testing.TB) []string {
	t.Helper()
	libcuda, err := emutest.Build(emutest.Options{Fast: true})
	var cublasLt string
	if err == nil {
		cublasLt, err = emutest.BuildCublasLt()
	}
	if errors.Is(err, emutest.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--set", "device.kind=cuda", "--set", "device.libcuda=" + libcuda, "--set", "device.cublaslt=" + cublasLt}
}

// Two stages on emulated GPUs train as on the CPU, whoever starts them, whichever
// way their messages go, and with backward-p2 on a second stream or as graphs.
func TestGPUParity(t *testing.T) {
	if testing.Short() {
		t.Skip("trains 50 steps, several times")
	}
	gpu := emulatedGPU(t)
	job := writeJob(t, gpuJob)
	ref := filepath.Join(t.TempDir(), "cpu")
	mustRun(t, "--quiet", "--out", ref, job)
	ref16 := filepath.Join(t.TempDir(), "cpu16")
	mustRun(t, "--quiet", "--out", ref16, "--set", "train.precision=bf16", job)
	for _, c := range []struct {
		name string
		mpi  string
		gpus string
		sets []string
	}{
		{"ipc", "", "2", nil},
		{"one card, own products", "", "1", []string{"device.share=true", "device.cublaslt=none", "device.p2_stream=true"}},
		{"staged, graphs", "", "2", []string{"device.transfer=staged", "device.p2_graph=true", "device.p2_stream=true"}},
		{"mpirun", "openmpi", "2", nil},
		{"bf16", "", "2", []string{"train.precision=bf16"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run")
			args := []string{"env", "PIPETRAIN_EMULATION_DELAY=20", "PIPETRAIN_EMULATION_GPUS=" + c.gpus}
			if c.mpi != "" {
				args = append(args, mpirun(t, c.mpi, 2)...)
			} else {
				args = append(args, pipetrainPath)
			}
			args = append(append(args, "--quiet", "--out", out), gpu...)
			for _, s := range c.sets {
				args = append(args, "--set", s)
			}
			if e := begin(t, append(args, job)...).wait(); e.code != 0 {
				t.Fatal(e)
			}
			got, want, most := losses(t, out), losses(t, ref), 1e-4
			if c.name == "bf16" { // the same roundings, of sums in another order
				want, most = losses(t, ref16), 2e-3
			}
			if len(got) != len(want) || len(want) != 50 {
				t.Fatalf("%d steps, %d on the CPU", len(got), len(want))
			}
			worst := 0.0
			for i := range want {
				worst = max(worst, math.Abs(got[i]-want[i])/want[i])
			}
			t.Logf("losses differ by %.1e of the CPU's at most", worst)
			if !(worst < most) {
				t.Errorf("losses differ by %g", worst)
			}
			if want[49] > 0.95*want[0] {
				t.Errorf("the loss fell from %g to %g only: this compares little", want[0], want[49])
			}
			// pipetrain plan, which needs no GPU, knows the arenas to the byte.
			set := []string{"plan", "--json", "--set", "device.kind=cuda"}
			for _, v := range c.sets {
				set = append(set, "--set", v)
			}
			var plan struct {
				Bytes []int64 `json:"peak_bytes"`
			}
			summary, err := record.ReadSummary(filepath.Join(out, record.SummaryName))
			if perr := json.Unmarshal([]byte(mustRun(t, append(set, job)...).stdout), &plan); err != nil || perr != nil || !slices.Equal(plan.Bytes, summary.PeakBytesMeasured) {
				t.Errorf("planned %v bytes, measured %v: %v, %v", plan.Bytes, summary.PeakBytesMeasured, perr, err)
			}
			text, err := os.ReadFile(filepath.Join(out, "environment.json"))
			if err != nil || !strings.Contains(string(text), "Emulated GPU") {
				t.Errorf("the environment does not tell the GPU: %v", err)
			}
		})
	}
}

// What can be wrong with a GPU is told in one line before the first step, with its exit code.
func TestGPURefused(t *testing.T) {
	gpu := emulatedGPU(t)
	job := writeJob(t, gpuJob)
	for _, c := range []struct {
		name string
		env  string
		sets []string
		code exitcode.Code
		want []string
	}{
		{"no driver", "", []string{"device.libcuda=/no/libcuda.so.1"}, exitcode.Environment, []string{"no NVIDIA driver here", "device.libcuda"}},
		{"no GPU", "PIPETRAIN_EMULATION_GPUS=0", nil, exitcode.Environment, []string{"no GPU"}},
		{"hidden GPU", "CUDA_VISIBLE_DEVICES=-1", nil, exitcode.Environment, []string{"no GPU", "CUDA_VISIBLE_DEVICES"}},
		{"old driver", "PIPETRAIN_EMULATION_DRIVER=11080", nil, exitcode.Environment, []string{"the driver is for CUDA 11.8", "update the driver"}},
		{"old card", "PIPETRAIN_EMULATION_CAPABILITY=70", nil, exitcode.Environment, []string{"compute capability 7.0", "8.0 or later"}},
		{"driver and module differ", "PIPETRAIN_EMULATION_MISMATCH=1", nil, exitcode.Environment, []string{"of different versions", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "restart the machine"}},
		{"another PTX", "PIPETRAIN_EMULATION_PTX=74", []string{"device.share=true"}, exitcode.Environment,
			[]string{"does not take the kernels", "for compute capability 8.0", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "unsupported .version 8.0", "update the driver"}},
		{"in use", "PIPETRAIN_EMULATION_BUSY=1", []string{"device.share=true"}, exitcode.Environment, []string{"in use by another process"}},
		{"too few GPUs", "", nil, exitcode.Environment, []string{"2 ranks and this host 1 GPUs", "device.share"}},
		{"too little memory", "PIPETRAIN_EMULATION_MEMORY=30000000", []string{"device.share=true", "model.dim=512", "model.ffn=2048", "model.heads=8"}, exitcode.OutOfMemory,
			[]string{"the plan needs", "weights", "CUDA_ERROR_OUT_OF_MEMORY", "are free"}},
		{"another library", "", []string{"device.libcuda=libm.so.6"}, exitcode.Environment, []string{"libm.so.6 has no cu", "no CUDA driver"}},
		{"no cublasLt", "", []string{"device.share=true", "device.cublaslt=/no/libcublasLt.so"}, exitcode.Environment, []string{"device.cublaslt", "/no/libcublasLt.so"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"env", "PIPETRAIN_EMULATION_DELAY=0", c.env + "X=", pipetrainPath, "--quiet", "--out", filepath.Join(t.TempDir(), "run")}, gpu...)
			args[2] = strings.TrimSuffix(args[2], "X=")
			if c.env == "" {
				args[2] = "PIPETRAIN_UNUSED="
			}
			for _, s := range c.sets {
				args = append(args, "--set", s)
			}
			e := begin(t, append(args, job)...).wait()
			if e.code != int(c.code) {
				t.Fatalf("want exit code %d: %v", c.code, e)
			}
			// One line says it all, the last; before it there is the log's at most.
			lines := strings.Split(strings.TrimSpace(e.stderr), "\n")
			last := lines[len(lines)-1]
			for _, w := range c.want {
				if !strings.Contains(last, w) {
					t.Errorf("%q is not in: %s", w, last)
				}
			}
			if !strings.HasPrefix(last, "pipetrain: ") || len(lines) > 2 || len(lines) == 2 && !strings.Contains(lines[0], " ERR ") {
				t.Errorf("more than one line: %v", e)
			}
			if strings.Contains(e.stdout+e.stderr, "step ") {
				t.Errorf("a step was made: %v", e)
			}
		})
	}
}

// Under mpirun nobody counts the ranks of a card before they meet.
func TestGPUTwiceUnderMPI(t *testing.T) {
	gpu := emulatedGPU(t)
	args := append([]string{"env", "PIPETRAIN_EMULATION_DELAY=0"}, mpirun(t, "openmpi", 2)...)
	e := begin(t, append(append(append(args, "--quiet", "--out", filepath.Join(t.TempDir(), "run")), gpu...), writeJob(t, gpuJob))...).wait()
	if e.code != int(exitcode.Environment) || !strings.Contains(e.stderr, "ranks 0 and 1 have one GPU") {
		t.Error(e)
	}
}

// "auto" computes on GPUs where each rank has one.
func TestGPUAuto(t *testing.T) {
	gpu := emulatedGPU(t)
	job := writeJob(t, gpuJob)
	for gpus, want := range map[string]string{"2": "Emulated GPU", "1": "isa"} {
		out := filepath.Join(t.TempDir(), "run")
		args := append([]string{"env", "PIPETRAIN_EMULATION_DELAY=0", "PIPETRAIN_EMULATION_GPUS=" + gpus, pipetrainPath, "--quiet", "--out", out}, gpu...)
		if e := begin(t, append(args, "--set", "device.kind=auto", "--set", "train.steps=2", job)...).wait(); e.code != 0 {
			t.Fatal(e)
		}
		if text, err := os.ReadFile(filepath.Join(out, "environment.json")); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s GPUs: %v, no %q in %s", gpus, err, want, text)
		}
	}
}

func TestSharingText(t *testing.T) {
	dir := t.TempDir()
	env := func(string) string { return dir }
	if mpsRuns(env) {
		t.Error("MPS runs in an empty folder")
	}
	if err := os.WriteFile(filepath.Join(dir, "control"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if text := sharingText(4, cuda.Card{Number: 1, Name: "NVIDIA H200"}, mpsRuns(env)); text != "4 ranks share GPU 1 (NVIDIA H200), at once, through MPS" {
		t.Error(text)
	}
	if text := sharingText(2, cuda.Card{}, false); !strings.Contains(text, "turns") {
		t.Error(text)
	}
}

// The script that checks and measures on a real card, at tiny sizes on the stand-in.
func TestGPUCheckScript(t *testing.T) {
	if testing.Short() {
		t.Skip("runs two dozen jobs")
	}
	gpu := emulatedGPU(t)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed: scripts/install-test-deps.sh")
	}
	bin := t.TempDir()
	if err := os.Symlink(pipetrainPath, filepath.Join(bin, "pipetrain")); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "test", "-c", "-o", filepath.Join(bin, "cuda.test"), "../../kernels/cuda")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, libcuda, _ := strings.Cut(gpu[3], "=")
	_, cublasLt, _ := strings.Cut(gpu[5], "=")
	file := filepath.Join(bin, "out", "check.json")
	script := []string{"../../scripts/cuda-check.py", "--small", "--bin", bin, "--libcuda", libcuda, "--cublaslt", cublasLt, "--out", file}
	if e := begin(t, append([]string{"env", "PIPETRAIN_EMULATION_GPUS=0"}, script...)...).wait(); e.code != 77 || !strings.Contains(e.stderr, "no GPU here, so nothing was tested") {
		t.Errorf("without a GPU: %v", e)
	}
	if e := begin(t, append([]string{"env", "PIPETRAIN_EMULATION_DELAY=0"}, script...)...).wait(); e.code != 0 {
		t.Fatal(e)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := os.ReadFile(strings.TrimSuffix(file, "json") + "md")
	if err != nil || !strings.Contains(string(tables), "\n| 1F1B-2 | ") || strings.Contains(string(tables), "not run") || strings.Contains(string(tables), "failed") {
		t.Errorf("%v: %s", err, tables)
	}
	var got struct {
		Failed []string
		Aims   map[string]struct {
			Got     float64
			Reached *bool
		}
		Parts struct {
			Block struct {
				Share float64 `json:"share_of_matrix_rate"`
			}
			Memory struct {
				Card struct {
					Asked int64 `json:"bytes_asked"`
					Gone  int64 `json:"bytes_gone"`
				}
			}
			Parity struct {
				Steps int
				Worst float64 `json:"largest_relative_difference"`
			}
			Rates struct {
				Matrix map[string]float64 `json:"matrix_tflops"`
			}
			Pipeline struct {
				Table []map[string]any
			}
		}
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if p := got.Parts; p.Parity.Steps != 4 || p.Rates.Matrix["bf16"] <= 0 || len(p.Pipeline.Table) != 4 || p.Pipeline.Table[2]["2BP, concat all, graphs"] == nil || len(got.Failed) > 0 ||
		p.Block.Share <= 0 || p.Memory.Card.Asked == 0 || p.Memory.Card.Asked != p.Memory.Card.Gone || len(got.Aims) != 2 {
		t.Errorf("the file has %s", b)
	}
}
