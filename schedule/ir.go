// Package schedule is the room of schedules as values: the ops of a step and
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
	ReduceGrad                     // REDUCE_GRAD: the stage's parameter gradients, over the replicas
)

// Op is one unit of work of a rank: stage, kind, micro-batches First to Last
// (equal but for a concatenated W; 0 for ReduceGrad). It prints as "2F0", "2W0-3", "2SEND_F1",
// "2REDUCE_GRAD" and ParseOp reads what String prints.
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
	Programs  [][]Op
	Lowered   bool // has transfers and reduction
}

// RankOf returns the rank that performs stage for a micro-batch.
func (s *Schedule) RankOf(stage, microbatch int) int {
	d := 0
	if s.Direction != nil {
		d = int(s.Direction[microbatch])
	}
	return s.Place[d][stage]
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
