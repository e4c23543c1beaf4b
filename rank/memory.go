package rank

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/null"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/rank/courier"
	"github.com/pipetrain/pipetrain/schedule"
)

// Memory is what one rank's arena must hold, found by performing a step
// without computing it.
type Memory struct {
	Arena      int64            `json:"arena_bytes"` // the size of the arena: the highest address, holes included
	Peak       int64            `json:"peak_bytes"`  // the most in use at once
	ByCategory map[string]int64 `json:"by_category"` // at the peak
}

// table tells in words what the memory is for, most first.
func (m Memory) table() string {
	names := slices.SortedFunc(maps.Keys(m.ByCategory), func(a, b string) int {
		return cmp.Or(cmp.Compare(m.ByCategory[b], m.ByCategory[a]), cmp.Compare(a, b))
	})
	for i, n := range names {
		names[i] = fmt.Sprintf("%s %d", n, m.ByCategory[n])
	}
	return strings.Join(names, ", ")
}

// Work is the part of a job that the machine needs to know.
type Work struct {
	Schedule *schedule.Schedule // lowered
	Model    *model.Model
	Cut      []model.Range // layers of each stage
	Shape    model.Shape   // of one micro-batch
	Optim    model.Optimizer
	// P2Stream lets backward-p2 run beside the ops that follow it, on the device's second queue.
	P2Stream bool
}

// PlanMemory performs one step of a rank on a dry arena and the null device; ops are asked for the sizes of scratch memory.
func PlanMemory(w Work, pipelineRank int, ops kernels.Ops) (Memory, error) {
	m, err := newMachine(w, pipelineRank, kernels.NewArena(kernels.Buffer{}), null.New(ops))
	if err != nil {
		return Memory{}, err
	}
	if err := m.step(context.Background()); err != nil {
		return Memory{}, err
	}
	return measure(m.arena), nil
}

// PlanMemories is PlanMemory of every pipeline rank.
func PlanMemories(w Work, ops kernels.Ops) ([]Memory, error) {
	out := make([]Memory, w.Schedule.Ranks)
	for r := range out {
		var err error
		if out[r], err = PlanMemory(w, r, ops); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func measure(a *kernels.Arena) Memory {
	peak, by := a.Peak()
	return Memory{Arena: a.Extent(), Peak: peak, ByCategory: maps.Clone(by)}
}

// newMachine makes a rank's machine and allocates what lives as long as the run.
func newMachine(w Work, me int, arena *kernels.Arena, dev kernels.Device) (*machine, error) {
	if !w.Schedule.Lowered {
		return nil, fmt.Errorf("schedule %s is not lowered: it has no transfers", w.Schedule.Name)
	}
	program := w.Schedule.Programs[me]
	m := &machine{sched: w.Schedule, me: me, program: program, horizons: schedule.Horizons(program), arena: arena, dev: dev, beside: w.P2Stream,
		courier: courier.Null{}, world: func(pipelineRank int) int { return pipelineRank }, data: noData{}, dog: &watchdog{}, hooks: noHooks()}
	m.stages = newStages(w, me, arena, dev)
	params := 0
	for _, i := range m.order() {
		st := m.stages[i]
		var err error
		alloc := func(category string, t kernels.DType) (b kernels.Block) {
			if err == nil {
				b, err = arena.Alloc(st.params.Len*t.Size(), category)
			}
			return b
		}
		st.weights = alloc(catWeights, kernels.F32)
		if st.typ != kernels.F32 {
			st.rounded = alloc(catRounded, st.typ)
		}
		st.grads = alloc(catGradients, kernels.F32)
		for range w.Optim.States() {
			st.states = append(st.states, alloc(catOptimizer, kernels.F32))
		}
		if err != nil {
			return nil, fmt.Errorf("rank %d: stage %d: %w", me, i, err)
		}
		if w.Schedule.Async != nil {
			st.versions = newVersions(w.Schedule, program, i)
		}
		params = max(params, len(st.params.Params))
		st.wBuf, st.gBuf = st.views(st.readWeights()), st.views(st.grads.As(kernels.F32))
	}
	var err error
	if m.losses, err = arena.Alloc(int64(w.Schedule.Microbatches)*8, catScratch); err == nil {
		m.sums, err = arena.Alloc(int64(params)*8, catScratch)
	}
	return m, err
}

// order lists the rank's stages in a fixed order.
func (m *machine) order() []int { return slices.Sorted(maps.Keys(m.stages)) }
