package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/costs"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cpu"
	"github.com/pipetrain/pipetrain/rank"
	"github.com/pipetrain/pipetrain/schedule"
)

const testJob = `
name = "test"
[model]
layers = 8
dim = 64
heads = 4
seq = 64
[data]
kind = "synthetic"
[train]
steps = 1
batch = 16
[parallel]
stages = 4
[schedule]
microbatches = 8
`

func parse(t testing.TB, sets ...string) *jobs.Spec {
	t.Helper()
	spec, err := jobs.Parse("test.toml", []byte(testJob), sets, ".")
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func ops(t testing.TB) kernels.Ops {
	t.Helper()
	d, err := cpu.New(cpu.Options{Threads: 1, BLAS: "go"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func mustMake(t testing.TB, source costs.Source, sets ...string) *Plan {
	t.Helper()
	p, err := Make(parse(t, sets...), Options{Source: source, Ops: ops(t)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// BenchmarkPlan is the plan of a large job with all alternatives.
func BenchmarkPlan(b *testing.B) {
	for b.Loop() {
		mustMake(b, costs.DefaultDevice(), "model.layers=192", "parallel.stages=64", "schedule.microbatches=512", "train.batch=512")
	}
}

// Closed forms of the literature, for F = I = W = 1 of a rank's share of the model.
func TestUnits(t *testing.T) {
	for _, c := range []struct {
		sets     string
		makespan float64
		bubble   float64
		live     float64
	}{
		{"schedule.kind=naive schedule.microbatches=1 schedule.backward_p2=fused", 12, 3.0 / 4, 1},
		{"schedule.kind=naive schedule.microbatches=1 schedule.backward_p2=end", 9, 6.0 / 9, 1},
		{"schedule.kind=gpipe schedule.microbatches=4 schedule.backward_p2=fused", 21, 3.0 / 7, 4},
		{"schedule.kind=gpipe schedule.microbatches=4 schedule.backward_p2=end schedule.concat=all", 18, 6.0 / 18, 4},
		{"schedule.kind=1f1b schedule.microbatches=4 schedule.backward_p2=fused", 21, 3.0 / 7, 4},
		{"schedule.kind=1f1b schedule.microbatches=4", 15, 3.0 / 15, 4},
		{"schedule.kind=1f1b schedule.microbatches=8", 27, 3.0 / 27, 8},
		{"schedule.kind=zb-h1 schedule.microbatches=8", 27, 3.0 / 27, 4},
		{"schedule.kind=interleaved schedule.microbatches=8 schedule.backward_p2=fused", 24 + 4.5, 4.5 / 28.5, 4 + 1.5},
	} {
		p := mustMake(t, costs.DefaultUnits(), strings.Fields(c.sets)...)
		if !near(p.Makespan, c.makespan) || !near(p.Bubble, c.bubble) || slices.Max(p.PeakMicrobatches) != c.live || p.Unit != "units" || p.TokensPerSecond != 0 {
			t.Errorf("%s: makespan %v, bubble %v, live %v", c.sets, p.Makespan, p.Bubble, p.PeakMicrobatches)
		}
		for r, i := range p.IdleParts {
			if !near(i.Warmup+i.Dependency+i.Transfer+i.Other+i.Drain, p.Idle[r]) {
				t.Errorf("%s: rank %d: idle %v is not the sum of %+v", c.sets, r, p.Idle[r], i)
			}
		}
		if p.LowerBound > p.Makespan || p.LowerBound <= 0 {
			t.Errorf("%s: lower bound %v of makespan %v", c.sets, p.LowerBound, p.Makespan)
		}
	}
}

// The job is among its alternatives with the same figures, all kinds are there or said to be impossible,
// and the Pareto front is one.
func TestAlternatives(t *testing.T) {
	p := mustMake(t, costs.DefaultDevice(), "schedule.memory_limit=3MiB")
	seen := map[string]bool{"auto": true}
	jobs := 0
	for i, r := range p.Alternatives {
		seen[r.Schedule] = true
		if r.Job {
			jobs++
			if r.Name() != p.Result.Name() || r.Makespan != p.Makespan || !slices.Equal(r.PeakBytes, p.PeakBytes) {
				t.Errorf("the job's own row differs: %+v", r)
			}
		}
		if i > 0 && r.StepTime < p.Alternatives[i-1].StepTime*(1-1e-9) {
			t.Errorf("%s is faster than the one before", r.Name())
		}
		if r.Fits != (r.Peak() <= 3<<20) || len(r.PeakBytes) != 4 || len(r.Idle) != 4 || r.Transfers <= 0 {
			t.Errorf("%s: %+v", r.Name(), r)
		}
		better := slices.ContainsFunc(p.Alternatives, func(o *Result) bool {
			return o != r && !o.Asynchronous && (o.StepTime < r.StepTime*(1-1e-6) && o.Peak() <= r.Peak() || o.Peak() < r.Peak() && o.StepTime < r.StepTime*(1+1e-12))
		})
		if r.Pareto && better || r.Pareto && r.Asynchronous {
			t.Errorf("%s is on the front and should not be", r.Name())
		}
	}
	for _, i := range p.Impossible {
		seen[i.Schedule] = true
	}
	for _, name := range schedule.Names() {
		if !seen[name] {
			t.Errorf("%s is neither there nor impossible", name)
		}
	}
	if jobs != 1 {
		t.Errorf("%d rows are the job's", jobs)
	}
}

// The figures are the engine's own: what a dry step allocates, to the byte. The estimate that large
// jobs get stays within a fifth of it.
func TestMemory(t *testing.T) {
	worst := 0.0
	for _, info := range schedule.Kinds() {
		for _, p2 := range []string{"fused", "lagged", "cooldown", "end", "cooldown bf16", "fused bf16"} {
			p2, precision, _ := strings.Cut(p2, " ")
			if info.Async && p2 != "fused" {
				continue
			}
			spec := parse(t, "model.dim=256", "model.seq=128", "schedule.kind="+info.Name, "schedule.backward_p2="+p2, "train.precision="+cmp.Or(precision, "fp32"))
			j, err := newJob(spec, costs.DefaultDevice(), ops(t))
			if err != nil {
				t.Fatal(err)
			}
			s, _, err := j.own()
			if err != nil {
				t.Fatal(err)
			}
			low, err := lowered(s)
			if err != nil {
				t.Fatal(err)
			}
			c, err := j.cutInto(s.Stages, chunksOf(s))
			if err != nil {
				t.Fatal(err)
			}
			var r Result
			if err := j.fillMemory(&r, low, c); err != nil || !r.MemoryExact {
				t.Fatalf("%s: %v", info.Name, err)
			}
			w, err := rank.WorkOf(spec)
			if err != nil {
				t.Fatal(err)
			}
			engine, err := rank.PlanMemory(w, 1, j.ops)
			if err != nil {
				t.Fatal(err)
			}
			if r.PeakBytes[1] != engine.Arena {
				t.Errorf("%s %s: planned %d, the engine allocates %d", info.Name, p2, r.PeakBytes[1], engine.Arena)
			}
			for k, n := range estimateMemory(s, c) {
				off := float64(n)/float64(r.PeakBytes[k]) - 1
				worst = max(worst, off, -off)
				if off > 0.2 || off < -0.2 {
					t.Errorf("%s %s: rank %d: estimated %d, exact %d", info.Name, p2, k, n, r.PeakBytes[k])
				}
			}
		}
	}
	t.Logf("the estimate is off by %.1f %% at most", 100*worst)
}

// The reduction over replicas takes time.
func TestReplicasReduce(t *testing.T) {
	one := mustMake(t, costs.DefaultDevice(), "train.batch=16")
	two := mustMake(t, costs.DefaultDevice(), "train.batch=32", "parallel.replicas=2")
	if !(two.Makespan > one.Makespan) {
		t.Errorf("the reduction over replicas takes no time: %v, %v", one.Makespan, two.Makespan)
	}
}

func TestAutoKeepsTheLimit(t *testing.T) {
	free := mustMake(t, costs.DefaultUnits(), "schedule.kind=auto")
	for _, r := range free.Alternatives {
		if !r.Asynchronous && r.Schedule != "auto" && r.Makespan < free.Makespan*(1-1e-9) && r.Concat == "1" {
			t.Errorf("%s takes %v, auto %v", r.Name(), r.Makespan, free.Makespan)
		}
	}
	limit := free.Peak() * 2 / 3
	tight := mustMake(t, costs.DefaultUnits(), "schedule.kind=auto", fmt.Sprintf("schedule.memory_limit=%d", limit))
	if tight.Peak() > limit || !tight.Fits || !tight.MemoryExact {
		t.Errorf("auto needs %d of %d bytes", tight.Peak(), limit)
	}
	_, err := Make(parse(t, "schedule.kind=auto", "schedule.memory_limit=1kB"), Options{Source: costs.DefaultUnits(), Ops: ops(t)})
	if err == nil || !strings.Contains(err.Error(), "needs at least") {
		t.Errorf("a limit that nothing fits: %v", err)
	}
}

// The page has everything in it, loads nothing, and no name of a job gets out of its data.
func TestHTML(t *testing.T) {
	spec := parse(t)
	spec.Name = "</script><b>&"
	p, err := Make(spec, Options{Source: costs.DefaultDevice(), Ops: ops(t)})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := p.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(b.String(), "http://www.w3.org/2000/svg", "")
	for _, bad := range []string{"http:", "https:", "src=", "@import", "url(http", "fetch(", "</script><b>"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	_, rest, _ := strings.Cut(text, `id="data">`)
	data, _, _ := strings.Cut(rest, "</script>")
	var d struct {
		Name      string
		Timelines []struct {
			Name  string
			Ticks float64
			Ranks [][]int64
		}
		TimelineOf   []int `json:"timeline_of"`
		Alternatives []struct{ Job bool }
	}
	if err := json.Unmarshal([]byte(data), &d); err != nil {
		t.Fatal(err)
	}
	if d.Name != spec.Name || len(d.TimelineOf) != len(d.Alternatives) || len(d.Timelines) != len(d.Alternatives) {
		t.Errorf("%d timelines for %d alternatives", len(d.Timelines), len(d.Alternatives))
	}
	for _, line := range d.Timelines {
		last := int64(0)
		for _, flat := range line.Ranks {
			if len(flat)%6 != 0 {
				t.Fatalf("%s: %d numbers", line.Name, len(flat))
			}
			last = max(last, flat[len(flat)-1])
		}
		if len(line.Ranks) != 4 || last != int64(line.Ticks) {
			t.Errorf("%s: %d ranks, ends at %d", line.Name, len(line.Ranks), last)
		}
	}
}
