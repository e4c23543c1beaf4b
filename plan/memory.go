package plan

import (
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/rank"
	"github.com/pipetrain/pipetrain/schedule"
)

// aligned rounds bytes up as the engine's slots and blocks are.
func aligned(n int64) int64 {
	return (n + kernels.ArenaAlign - 1) / kernels.ArenaAlign * kernels.ArenaAlign
}

// stageExtra is what a stage needs besides schedule.StageBytes.
type stageExtra struct {
	weights int64 // one version of the parameters, as layers read them
	scratch int64 // the largest pass
	in, out int64 // a tensor received or sent
}

// stageBytes returns what each stage holds, from the layers' own declarations.
func (j *job) stageBytes(cut []model.Range) ([]schedule.StageBytes, []stageExtra) {
	bytes := make([]schedule.StageBytes, len(cut))
	extra := make([]stageExtra, len(cut))
	for i, r := range cut {
		b, e := &bytes[i], &extra[i]
		for _, l := range j.model.Layers[r.First:r.End] {
			b.UntilInput += model.Bytes(l, model.UntilInput, j.shape)
			b.UntilWeight += model.Bytes(l, model.UntilWeight, j.shape)
			b.FromInput += model.Bytes(l, model.FromInput, j.shape)
			for p := model.PassForward; p <= model.PassWeight; p++ {
				e.scratch = max(e.scratch, 4*l.Work(p, j.ops, j.shape))
			}
		}
		params, size := model.NewLayout(j.model.ParamsOf(r)).Len, j.model.Config.Type.Size()
		e.weights = aligned(size * params)
		e.out = j.model.Layers[r.End-1].Out().Bytes(j.shape)
		e.in = j.model.Layers[r.First].In().Bytes(j.shape)
		if r.First == 0 {
			e.in = 0
		}
		if r.End == len(j.model.Layers) {
			e.out = 0
		}
		b.Fixed = aligned(4*params) * int64(2+j.states)
		if j.model.Config.Type != kernels.F32 {
			b.Fixed += e.weights // beside the f32 ones
		}
	}
	return bytes, extra
}

// estimateMemory returns each rank's peak without performing the step: what is
// live between the ops, the largest scratch, and the tensors on their way. It differs from the
// engine's arena by what receives posted ahead hold and by the holes between blocks.
func estimateMemory(s *schedule.Schedule, c *cutting) []int64 {
	peaks := schedule.PeakBytes(s, c.bytes)
	versions := []int(nil)
	if s.Async != nil {
		versions = schedule.PeakVersions(s)
	}
	for r := range peaks {
		var scratch, wire, weights int64
		for _, stage := range s.StagesOf(r) {
			e := c.extra[stage]
			scratch = max(scratch, e.scratch)
			// Of each direction one tensor leaves while the next is awaited.
			wire = max(wire, e.in+e.out)
			weights = max(weights, e.weights)
		}
		peaks[r] += scratch + wire + aligned(int64(s.Microbatches)*8)
		if versions != nil {
			peaks[r] += int64(versions[r]-1) * weights
		}
	}
	return peaks
}

// exactMemory performs each rank's step on a dry arena.
func (j *job) exactMemory(lowered *schedule.Schedule, c *cutting) ([]rank.Memory, error) {
	return rank.PlanMemories(j.work(lowered, c), j.ops)
}
