package plan

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/costs"
	"github.com/pipetrain/pipetrain/rank"
	"github.com/pipetrain/pipetrain/schedule"
)

// A plan and a rehearsal of one job assume the same: the makespan that one predicts is what the other simulates.
func TestPlanIsRehearsal(t *testing.T) {
	profile := filepath.Join(t.TempDir(), "p.json")
	writeProfile(t, profile)
	for _, sets := range []string{
		"",
		"train.precision=bf16 schedule.backward_p2=fused",
		"schedule.kind=zb-v schedule.backward_p2=native",
		"parallel.replicas=2",
		"parallel.replicas=2 slurm.gpus_per_node=2 schedule.kind=gpipe schedule.backward_p2=end schedule.concat=all",
		"schedule.kind=chimera schedule.backward_p2=fused",
		"schedule.kind=pipedream schedule.backward_p2=fused optimizer.clip=0",
		"schedule.kind=interleaved",
		"schedule.profile=" + profile,
		"schedule.kind=gpipe parallel.stages=2 schedule.profile=" + profile,
	} {
		spec := parse(t, strings.Fields(sets)...)
		source, err := costs.Named(spec)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Make(spec, Options{Source: source, Ops: ops(t), Alone: true})
		if err != nil {
			t.Fatal(err)
		}
		r, err := rank.RehearsalOf(spec)
		if err != nil {
			t.Fatal(err)
		}
		w, err := rank.WorkOf(spec)
		if err != nil {
			t.Fatal(err)
		}
		line, err := schedule.Simulate(w.Schedule, r.Costs)
		if err != nil {
			t.Fatal(err)
		}
		if p.Makespan != line.Makespan() || p.Makespan <= 0 {
			t.Errorf("%q: the plan predicts %v, the rehearsal %v", sets, p.Makespan, line.Makespan())
		}
	}
}

// writeProfile writes a profile of the test's job.
func writeProfile(t *testing.T, path string) {
	t.Helper()
	spec := parse(t)
	s, err := spec.BuildSchedule()
	if err != nil {
		t.Fatal(err)
	}
	var run []costs.Sample
	at := 0.0
	for _, program := range s.Programs {
		for i, op := range program {
			took := float64(1+op.Stage+int(op.Kind)) * 1e-3
			run = append(run, costs.Sample{Step: i % 3, Op: op, Start: at, End: at + took})
			at += took
		}
	}
	p, err := costs.NewProfile(spec, s.Stages, "cpu", [][]costs.Sample{run}, []float64{1e-3})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Under the limit that a fused 1F1B just keeps, auto is no slower than any synchronous kind that fits.
func TestAutoAgainstNamedKinds(t *testing.T) {
	for _, sets := range []string{"parallel.stages=2", "parallel.stages=4", "parallel.stages=2 train.precision=bf16 model.tied=true"} {
		fused := mustMake(t, costs.DefaultUnits(), append(strings.Fields(sets), "schedule.backward_p2=fused")...)
		limit := "schedule.memory_limit=" + strconv.FormatInt(fused.Peak(), 10)
		p := mustMake(t, costs.DefaultUnits(), append(strings.Fields(sets), "schedule.kind=auto", limit)...)
		if !p.Fits || p.Peak() > fused.Peak() {
			t.Errorf("%s: auto needs %d of %d bytes", sets, p.Peak(), fused.Peak())
		}
		for _, r := range p.Alternatives {
			if r.Fits && !r.Asynchronous && r.Makespan < p.Makespan*(1-1e-9) && r.Concat == "1" {
				t.Errorf("%s: %s takes %v, auto %v", sets, r.Name(), r.Makespan, p.Makespan)
			}
		}
	}
}
