package rank

import (
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/schedule"
)

// newStages makes the stages that the program of pipeline rank me names.
func newStages(w Work, me int, arena *kernels.Arena, dev kernels.Device) map[int]*stage {
	sched, program, layers, shape := w.Schedule, w.Schedule.Programs[me], w.Model.Layers, w.Shape
	stages := map[int]*stage{}
	for _, op := range program {
		if stages[op.Stage] != nil {
			continue
		}
		r := w.Cut[op.Stage]
		st := &stage{
			index: op.Stage, base: r.First, layers: layers[r.First:r.End], shape: shape,
			first: op.Stage == 0, last: op.Stage == sched.Stages-1,
			arena: arena, dev: dev, lossScale: make([]float32, sched.Microbatches),
			fused: make([]bool, sched.Microbatches), typ: w.Model.Config.Type,
		}
		st.params = model.NewLayout(w.Model.ParamsOf(r))
		for i, l := range st.layers {
			for j, slot := range l.Slots() {
				if slot.Field != "" {
					st.fields = append(st.fields, field{i, j, slot.Field, slot.Bytes(shape)})
				}
			}
			st.slotsTmp = append(st.slotsTmp, make([]kernels.Buffer, len(l.Slots())))
			for p := range st.scratch {
				st.scratch[p] = max(st.scratch[p], l.Work(model.Pass(p), dev, shape))
			}
		}
		st.kept = newStore(arena, st.layers, shape, sched.Microbatches)
		for _, o := range program {
			if o.Stage != op.Stage {
				continue
			}
			switch o.Kind {
			case schedule.Backward:
				st.fused[o.First] = true
			case schedule.BackwardWeight:
				st.kept.join(o.First, o.Last)
			}
		}
		stages[op.Stage] = st
	}
	return stages
}
