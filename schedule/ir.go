// Package schedule holds schedules as values: the ops of a step and
// their order on each rank, the builders of the literature's schedules, the 2BP
// transform (arXiv 2405.18047), lowering, checking, simulating and drawing.
// Plain data: no clock, no I/O, no goroutine.
package schedule

// Kind says what an Op does.
type Kind uint8

// The kinds of ops. A lowered program has the transfers and the reduction too.
const (
	Forward        Kind = iota + 1 // F
	BackwardInput                  // I, backward-p1: gradient of the input
	BackwardWeight                 // W, backward-p2: gradient of the weights
	Backward                       // B, fused: I and W
	SendF                          // SEND_F: the stage's output, to the next stage's rank
	RecvF                          // RECV_F: the stage's input, from the stage before
	SendB                          // SEND_B: the gradient of the stage's input, to the stage before
	RecvB                          // RECV_B: the gradient of the stage's output, from the next stage
	WaitF                          // WAIT_F: until the stage's SEND_F is over and the memory that it left is free
	WaitB                          // WAIT_B: the same of its SEND_B
	ReduceGrad                     // REDUCE_GRAD: the stage's parameter gradients, over the replicas
	Update                         // UPDATE: an optimizer step of the stage within the program; asynchronous schedules only
)

// Op is one unit of work of a rank: stage, kind, micro-batches First to Last
// (equal but for a concatenated W and an Update; 0 for ReduceGrad). It prints as "2F0", "2W0-3",
// "2SEND_F1", "2REDUCE_GRAD" and ParseOp reads what String prints.
type Op struct {
	Stage       int
	Kind        Kind
	First, Last int
}

// Schedule is the program of each rank for one step.
type Schedule struct {
	Name         string // as built: "1f1b", "zb-h1"
	Ranks        int
	Stages       int
	Microbatches int
	// Place[d][s] is the rank of stage s for micro-batches of direction d. All
	// but the bidirectional schedules have one direction.
	Place [][]int
	// Direction[k] is the direction of micro-batch k; nil: all 0.
	Direction []uint8
	// Async is nil for the synchronous schedules, whose weights change only
	// between steps.
	Async    *Async
	Programs [][]Op
	Lowered  bool // has transfers, the waits for them, and reductions
}

// Async is the rule of weight versions of an asynchronous schedule. Version n of a
// stage's weights is what its n-th Update made; 0 is what the step started
// with. A micro-batch's I and W (or B) use the version that its F used (weight stashing).
type Async struct {
	// Every is how many micro-batches one Update covers.
	Every int
	// Delay says which version F of micro-batch k reads. Negative: the newest that
	// exists when F runs (PipeDream). Otherwise version max(0, k/Every-Delay),
	// the same on every stage (PipeDream-2BW: 1).
	Delay int
}

// RankOf returns the rank that performs stage for a micro-batch.
func (s *Schedule) RankOf(stage, microbatch int) int {
	d := 0
	if s.Direction != nil {
		d = int(s.Direction[microbatch])
	}
	return s.Place[d][stage]
}

// Ops returns the number of ops in all programs.
func (s *Schedule) Ops() int {
	n := 0
	for _, p := range s.Programs {
		n += len(p)
	}
	return n
}

// StagesOf returns the stages that a rank holds, ascending. A bidirectional
// schedule has the same stage on several ranks.
func (s *Schedule) StagesOf(rank int) []int {
	var stages []int
	for stage := range s.Stages {
		for _, place := range s.Place {
			if place[stage] == rank {
				stages = append(stages, stage)
				break
			}
		}
	}
	return stages
}

// Holders returns the distinct ranks that hold a stage's weights, by direction.
func (s *Schedule) Holders(stage int) []int {
	ranks := make([]int, 0, len(s.Place))
next:
	for _, place := range s.Place {
		for _, r := range ranks {
			if r == place[stage] {
				continue next
			}
		}
		ranks = append(ranks, place[stage])
	}
	return ranks
}

// Clone returns a copy that shares nothing with s.
func (s *Schedule) Clone() *Schedule {
	c := *s
	c.Place = make([][]int, len(s.Place))
	for i, p := range s.Place {
		c.Place[i] = append([]int(nil), p...)
	}
	if s.Direction != nil {
		c.Direction = append([]uint8(nil), s.Direction...)
	}
	if s.Async != nil {
		a := *s.Async
		c.Async = &a
	}
	c.Programs = make([][]Op, len(s.Programs))
	for i, p := range s.Programs {
		c.Programs[i] = append([]Op(nil), p...)
	}
	return &c
}

// Event is an op with its times, predicted or measured, in seconds (or in
// units, where costs are given in units) since the step's start.
type Event struct {
	Rank       int
	Op         Op
	Start, End float64
}

// Timeline is one step of all ranks: what Simulate predicts and what a run
// measures are the same type, so that both are drawn and judged alike.
type Timeline struct {
	Ranks  int
	Events []Event // by rank, then start
}
