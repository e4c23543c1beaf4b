package schedule

import (
	"fmt"
	"strings"
)

// CheckError says what is wrong with a schedule, and where.
type CheckError struct {
	Rank, Index int // the op's place; -1 where the error is of no rank or op
	Op          Op
	Reason      string
	Grid        string // the smallest part of the programs that shows it, the op marked
}

func (e *CheckError) Error() string {
	var b strings.Builder
	if e.Rank >= 0 {
		fmt.Fprintf(&b, "rank %d: ", e.Rank)
		if e.Index >= 0 {
			fmt.Fprintf(&b, "op %d (%s): ", e.Index, e.Op)
		}
	}
	b.WriteString(e.Reason)
	if e.Grid != "" {
		b.WriteString("\n")
		b.WriteString(strings.TrimRight(e.Grid, "\n"))
	}
	return b.String()
}

// Check says whether a schedule, lowered or not, can be performed: every F, I
// and W (or B) once for each stage and micro-batch, on the rank that the schedule
// places it; no order that waits for itself, also not through transfers, be they
// buffered or rendezvous; sends and receives of each channel in the same
// order, each send waited for; reductions after the last weight gradient and in an order that cannot deadlock.
// A schedule that is not lowered is judged by what Lower would make of it.
// Any value of Schedule is safe to pass. The error is a *CheckError.
func Check(s *Schedule) error {
	_, err := checked(s)
	return err
}

// checked checks a schedule and returns it lowered.
func checked(s *Schedule) (*Schedule, error) {
	err := checkShape(s)
	if err == nil {
		err = checkComplete(s)
	}
	if err == nil {
		err = checkOrder(s)
	}
	if err == nil && !s.Lowered {
		s, err = addOps(s)
	}
	if err == nil {
		err = checkTransfers(s)
	}
	for _, rendezvous := range []bool{false, true} {
		if err == nil {
			err = checkDeadlock(s, rendezvous)
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func wrong(format string, args ...any) *CheckError {
	return &CheckError{Rank: -1, Index: -1, Reason: fmt.Sprintf(format, args...)}
}

// wrongOp returns the error of one op, with the ops around it on its rank.
func wrongOp(s *Schedule, rank, index int, format string, args ...any) *CheckError {
	o := s.Programs[rank][index]
	return &CheckError{
		Rank: rank, Index: index, Op: o, Reason: fmt.Sprintf(format, args...),
		Grid: grid(s, []mark{{rank, index, "<-- HERE"}}),
	}
}

// checkShape checks numbers and indices: after it, RankOf and the tables by stage are safe.
// It returns an untyped nil for a good shape.
func checkShape(s *Schedule) error {
	switch {
	case s == nil:
		return wrong("no schedule")
	case s.Ranks < 1 || s.Ranks > MaxRanks:
		return wrong("ranks must be 1 to %d, not %d", MaxRanks, s.Ranks)
	case s.Stages < 1 || s.Stages > MaxIndex+1:
		return wrong("stages must be 1 to %d, not %d", MaxIndex+1, s.Stages)
	case s.Microbatches < 1 || s.Microbatches > MaxMicrobatches:
		return wrong("micro-batches must be 1 to %d, not %d", MaxMicrobatches, s.Microbatches)
	case len(s.Programs) != s.Ranks:
		return wrong("%d programs for %d ranks", len(s.Programs), s.Ranks)
	case len(s.Place) < 1 || len(s.Place) > 256:
		return wrong("1 to 256 directions are possible, not %d", len(s.Place))
	case s.Direction == nil && len(s.Place) > 1:
		return wrong("%d directions, but no direction for each micro-batch", len(s.Place))
	case s.Direction != nil && len(s.Direction) != s.Microbatches:
		return wrong("directions for %d micro-batches instead of %d", len(s.Direction), s.Microbatches)
	case s.Async != nil && (s.Async.Every < 1 || s.Async.Every > s.Microbatches || s.Async.Delay > s.Microbatches):
		return wrong("an update covers 1 to %d micro-batches and a delay is at most that; not %d and %d",
			s.Microbatches, s.Async.Every, s.Async.Delay)
	}
	for d, place := range s.Place {
		if len(place) != s.Stages {
			return wrong("direction %d places %d stages instead of %d", d, len(place), s.Stages)
		}
		for stage, r := range place {
			if r < 0 || r >= s.Ranks {
				return wrong("direction %d: stage %d is on rank %d; ranks are 0 to %d", d, stage, r, s.Ranks-1)
			}
		}
	}
	for k, d := range s.Direction {
		if int(d) >= len(s.Place) {
			return wrong("micro-batch %d goes in direction %d; directions are 0 to %d", k, d, len(s.Place)-1)
		}
	}
	for r, program := range s.Programs {
		for i, o := range program {
			if why := badOp(s, o); why != "" {
				return wrongOp(s, r, i, "%s", why)
			}
		}
	}
	return nil
}

// badOp returns what is wrong with an op by itself, or "".
func badOp(s *Schedule, o Op) string {
	switch {
	case !o.Kind.Valid():
		return fmt.Sprintf("%d is no kind of op", uint8(o.Kind))
	case o.Stage < 0 || o.Stage >= s.Stages:
		return fmt.Sprintf("stages are 0 to %d", s.Stages-1)
	case o.Kind == ReduceGrad && (o.First != 0 || o.Last != 0):
		return "REDUCE_GRAD takes no micro-batch"
	case o.First < 0 || o.Last >= s.Microbatches:
		return fmt.Sprintf("micro-batches are 0 to %d", s.Microbatches-1)
	case o.Last < o.First:
		return "its micro-batches go down"
	case o.Last != o.First && !kinds[o.Kind].ranged:
		return fmt.Sprintf("%s covers one micro-batch", o.Kind)
	case o.Kind == Update && s.Async == nil:
		return "an update within the program belongs to asynchronous schedules"
	case !s.Lowered && (o.Kind.IsTransfer() || o.Kind == ReduceGrad):
		return "transfers and reductions belong to lowered schedules"
	}
	if from, to := o.Send().Stage, o.Recv().Stage; o.Kind.IsTransfer() && (min(from, to) < 0 || max(from, to) >= s.Stages) {
		return "no stage is on the other side"
	}
	return ""
}
