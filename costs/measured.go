package costs

import (
	"fmt"

	"github.com/pipetrain/pipetrain/schedule"
	"github.com/pipetrain/pipetrain/stats"
)

// Sample is an op as a run measured it, on a pipeline rank of the first replica; times in seconds.
type Sample struct {
	Step       int
	Op         schedule.Op
	Start, End float64
}

// Measured are the median times of the ops of one or several runs with the same cut. What a
// run's later steps are predicted from, and what a profile is made of.
type Measured struct {
	times  map[opKey]float64
	joined []int // by stage: micro-batches of the largest W seen
	steps  int
}

type opKey struct {
	stage, n int
	kind     schedule.Kind
}

func keyOf(op schedule.Op) opKey { return opKey{op.Stage, op.Microbatches(), op.Kind} }

// Measure reads op times off samples. A transfer takes from the moment when its send starts until
// the receiver has it, where the receiver waited for all of it; where no receiver of a stage did,
// what they waited is what counts.
func Measure(stages int, runs ...[]Sample) (*Measured, error) {
	m := &Measured{times: map[opKey]float64{}, joined: make([]int, stages)}
	times, late := map[opKey][]float64{}, map[opKey][]float64{}
	for _, samples := range runs {
		type message struct {
			step int
			send schedule.Op
		}
		sent, steps := map[message]float64{}, map[int]bool{}
		for _, s := range samples {
			steps[s.Step] = true
			if s.Op.Stage >= stages {
				return nil, fmt.Errorf("profile: %s is of a stage that the job does not have", s.Op)
			}
			switch {
			case s.Op.Kind.IsSend():
				sent[message{s.Step, s.Op}] = s.Start
			case !s.Op.Kind.IsTransfer():
				k := keyOf(s.Op)
				times[k] = append(times[k], s.End-s.Start)
				if k.kind == schedule.BackwardWeight {
					m.joined[k.stage] = max(m.joined[k.stage], k.n)
				}
			}
		}
		m.steps += len(steps)
		for _, s := range samples {
			if !s.Op.Kind.IsRecv() {
				continue
			}
			send := s.Op.Send()
			at, ok := sent[message{s.Step, send}]
			switch k := keyOf(send); {
			case !ok:
			case s.Start <= at: // the receiver waited for all of it
				times[k] = append(times[k], max(0, s.End-at))
			default: // for the rest of it
				late[k] = append(late[k], max(0, s.End-s.Start))
			}
		}
	}
	for k, x := range late {
		m.times[k] = stats.Median(x)
	}
	for k, x := range times {
		m.times[k] = stats.Median(x)
	}
	return m, nil
}

// Compute implements schedule.Costs.
func (m *Measured) Compute(op schedule.Op) float64 { return m.times[keyOf(op)] }

// Transfer implements schedule.Costs.
func (m *Measured) Transfer(send schedule.Op, _, _ int) float64 { return m.times[keyOf(send)] }
