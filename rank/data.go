package rank

import (
	"fmt"

	"github.com/pipetrain/pipetrain/data"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/schedule"
)

// stepData reads this replica's micro-batches of one step.
type stepData struct {
	source  data.Source
	cut     data.Cut
	replica int
	sched   *schedule.Schedule
	step    int
	memory  data.Sample // of a micro-batch, by field
	scales  []float32   // LossScale by micro-batch, of the step
}

// newStepData also checks that the source has what the layers of all stages ask for.
func newStepData(w Work, source data.Source, cut data.Cut, replica int) (*stepData, error) {
	if err := cut.Check(); err != nil {
		return nil, err
	}
	d := &stepData{source: source, cut: cut, replica: replica, sched: w.Schedule,
		memory: data.Sample{}, scales: make([]float32, w.Schedule.Microbatches)}
	for _, l := range w.Model.Layers {
		for _, slot := range l.Slots() {
			if slot.Field == "" {
				continue
			}
			f, ok := data.FieldOf(source, slot.Field)
			if !ok || f.Type != slot.Type.String() || int64(f.Bytes(cut.Size())) != slot.Bytes(w.Shape) {
				return nil, exitcode.With(exitcode.Usage, fmt.Errorf("layer %s wants the field %q of the data, %d elements of type %s a micro-batch; the data has the fields %v (name, type, elements a sample): choose another data.kind or model.kind",
					l.Name(), slot.Field, slot.Len(w.Shape), slot.Type, source.Fields()))
			}
		}
	}
	return d, nil
}

func (d *stepData) begin(step int) int {
	d.step = step
	terms := func(mb, n int) int { return data.Terms(d.source, d.cut, step, mb, n) }
	lossScales(d.scales, d.sched, terms)
	return terms(0, d.sched.Microbatches)
}

func (d *stepData) read(mb int, fields []field) (data.Sample, error) {
	wanted := data.Sample{}
	for _, f := range fields {
		if d.memory[f.name] == nil {
			d.memory[f.name] = make([]byte, f.bytes)
		}
		wanted[f.name] = d.memory[f.name]
	}
	if err := data.Read(d.source, d.cut, d.step, d.replica, mb, wanted); err != nil {
		return nil, exitcode.With(exitcode.Environment, fmt.Errorf("reading data: %w", err))
	}
	return wanted, nil
}
