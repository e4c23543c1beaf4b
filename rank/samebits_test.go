package rank_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"hash"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/collectives/local"
	"github.com/pipetrain/pipetrain/data"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels/cpu"
	"github.com/pipetrain/pipetrain/rank"
	"github.com/pipetrain/pipetrain/schedule"
)

var update = flag.Bool("update", false, "rewrite the files under testdata that tests compare with")

// sameBitsJob is what the jobs of the grid change: a small model, three steps, clipping that is reached.
const sameBitsJob = `
name = "same-bits"
seed = 11
[model]
kind = "transformer"
layers = 8
dim = 8
heads = 2
kv_heads = 1
ffn = 12
seq = 4
vocab = 16
[data]
kind = "synthetic"
[train]
steps = 3
batch = 16
[optimizer]
kind = "adamw"
lr = 3e-2
warmup = 1
clip = 0.5
[schedule]
kind = "naive"
microbatches = 8
backward_p2 = "fused"
[device]
kind = "cpu"
blas = "go"
`

// bits are the numbers of a run that must stay the same: of every step, and the weights after the last.
type bits struct {
	losses, norms []float64
	weights       map[string][]float32 // by their names in checkpoints
}

// bitsOf trains a job in this process, a goroutine a rank, with kernels in plain Go. All of the
// engine that the test knows is here.
func bitsOf(spec *jobs.Spec) (bits, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 60*time.Second, fmt.Errorf("the run hangs"))
	defer cancel()
	out := bits{weights: map[string][]float32{}}
	var mu sync.Mutex
	rankOf := func(r int, t collectives.Transport) error {
		dev, err := cpu.New(cpu.Options{Threads: 1, BLAS: "go", ISA: "go"})
		if err != nil {
			return err
		}
		defer dev.Close()
		src, err := data.Open(data.Config{Kind: spec.Data.Kind, Seed: spec.Seed, Seq: spec.Model.Seq, Vocab: spec.Model.Vocab, Holdout: spec.Data.Holdout})
		if err != nil {
			return err
		}
		defer src.Close()
		tr, err := rank.New(ctx, spec, t, dev, src)
		if err != nil {
			return err
		}
		defer tr.Close()
		for step := 1; step <= spec.Train.Steps; step++ {
			res, err := tr.Step(ctx, step, false)
			if err != nil {
				return err
			}
			if r == 0 {
				out.losses, out.norms = append(out.losses, res.Loss), append(out.norms, res.GradNorm)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		maps.Copy(out.weights, tr.Weights())
		return nil
	}
	var failed error
	var wg sync.WaitGroup
	for r, t := range local.NewWorldWith(spec.World(), local.Options{Rendezvous: true}) {
		wg.Go(func() {
			if err := rankOf(r, t); err != nil {
				cancel()
				mu.Lock()
				defer mu.Unlock()
				if failed == nil {
					failed = fmt.Errorf("rank %d: %w", r, err)
				}
			}
		})
	}
	wg.Wait()
	return out, failed
}

// line is a run in the file: a hash each of its losses, norms and weights.
func (b bits) line() string {
	sum := func(write func(h hash.Hash)) string {
		h := sha256.New()
		write(h)
		return fmt.Sprintf("%x", h.Sum(nil)[:6])
	}
	floats := func(x []float64) string {
		return sum(func(h hash.Hash) {
			for _, v := range x {
				_ = binary.Write(h, binary.LittleEndian, math.Float64bits(v))
			}
		})
	}
	return fmt.Sprintf("%s %s %s", floats(b.losses), floats(b.norms), sum(func(h hash.Hash) {
		for _, name := range slices.Sorted(maps.Keys(b.weights)) {
			fmt.Fprintf(h, "%s %d\n", name, len(b.weights[name]))
			_ = binary.Write(h, binary.LittleEndian, b.weights[name])
		}
	}))
}

// sameBitsGrid lists the jobs, each as the keys that it sets.
func sameBitsGrid() (grid []string) {
	add := func(format string, args ...any) { grid = append(grid, fmt.Sprintf(format, args...)) }
	// Every kind and placement.
	for _, info := range schedule.Kinds() {
		placements := []string{"fused", "lagged", "cooldown", "end"}
		switch {
		case info.Async:
			placements = []string{"fused"}
		case info.Split:
			placements = append(placements, "native")
		}
		keys := "schedule.kind=" + info.Name
		if info.Async {
			keys += " optimizer.clip=0"
		}
		for _, p2 := range placements {
			for _, stages := range []int{1, 2, 4} {
				if info.Bidirectional && stages == 1 {
					continue
				}
				layers := 4
				if stages == 4 && info.DefaultChunks > 1 {
					layers = 8
				}
				for _, more := range []string{"train.precision=fp32", "train.precision=bf16", "train.precision=fp32 parallel.replicas=2"} {
					add("%s schedule.backward_p2=%s parallel.stages=%d model.layers=%d %s", keys, p2, stages, layers, more)
				}
			}
		}
	}
	// The parts of the model, and how W joins micro-batches.
	for _, precision := range []string{"fp32", "bf16"} {
		for _, parts := range []string{"model.norm=layernorm", "model.activation=gelu", "model.norm=layernorm model.activation=gelu",
			"model.tied=true", "model.tied=true parallel.replicas=2", "model.kv_heads=2", "model.dim=16 model.heads=4 model.kv_heads=2"} {
			for _, order := range []string{"parallel.stages=1", "parallel.stages=2 schedule.kind=1f1b schedule.backward_p2=cooldown",
				"parallel.stages=2 schedule.kind=zb-h1 schedule.backward_p2=native", "parallel.stages=4 schedule.kind=chimera"} {
				add("%s model.layers=4 %s train.precision=%s", parts, order, precision)
			}
		}
		for _, kind := range []string{"gpipe", "1f1b", "interleaved"} {
			for _, concat := range []string{"3", `"all"`} {
				for _, p2 := range []string{"lagged", "cooldown", "end"} {
					add("schedule.concat=%s model.layers=4 parallel.stages=2 schedule.kind=%s schedule.backward_p2=%s train.precision=%s", concat, kind, p2, precision)
				}
			}
		}
	}
	add("model.layers=4 parallel.stages=2 schedule.kind=1f1b optimizer.kind=sgd optimizer.momentum=0.9 optimizer.lr=0.1")
	add("model.layers=4 parallel.stages=2 schedule.kind=1f1b optimizer.kind=sgd optimizer.momentum=0 optimizer.weight_decay=0.01 optimizer.lr=0.1")
	return grid
}

// Losses, gradient norms and weights of a grid of jobs have the bits that they had when the file was
// written. What changes them on purpose says so and rewrites the file (-update); nothing else may.
func TestSameBits(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the file is amd64's: on other processors Go joins a product and a sum into one rounding")
	}
	grid := sameBitsGrid()
	lines := make([]string, len(grid))
	var wg sync.WaitGroup
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, sets := range grid {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			spec, err := jobs.Parse("same-bits.toml", []byte(sameBitsJob), strings.Fields(sets), t.TempDir())
			var b bits
			if err == nil {
				b, err = bitsOf(spec)
			}
			if err != nil {
				t.Errorf("%s: %v", sets, err)
				return
			}
			lines[i] = b.line() + " " + sets + "\n"
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	path := filepath.Join("testdata", "samebits.txt")
	if *update {
		if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{} // by the job
	for line := range bytes.Lines(text) {
		if fields := strings.SplitN(string(line), " ", 4); len(fields) == 4 {
			want[fields[3]] = string(line)
		}
	}
	for _, line := range lines {
		sets := strings.SplitN(line, " ", 4)[3]
		if want[sets] == "" {
			t.Errorf("%s lacks a job; add it with -update: %s", path, sets)
		} else if want[sets] != line {
			t.Errorf("losses, norms, weights: now %s was %s", line, want[sets])
		}
		delete(want, sets)
	}
	for sets := range want {
		t.Errorf("no longer in the grid: %s", sets)
	}
}
