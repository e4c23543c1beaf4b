package schedule

import (
	"fmt"
	"slices"
	"strings"
)

// Placement says where backward-p2 (W) goes.
type Placement string

// The placements, from least to most memory. PlaceNative, also the empty
// Placement, leaves a schedule as it was built.
const (
	PlaceNative   Placement = "native"
	PlaceFused    Placement = "fused"    // with its I, as one B: ordinary backward
	PlaceLagged   Placement = "lagged"   // r micro-batches behind its I on rank r (ZB-H1, arXiv 2401.10241)
	PlaceCooldown Placement = "cooldown" // none in steady state, one after each I of the drain, the rest at the end (2BP's 1F1B)
	PlaceEnd      Placement = "end"      // all at the end (2BP's naive and GPipe)
)

// Placements lists the placements that a user may choose.
func Placements() []Placement {
	return []Placement{PlaceFused, PlaceLagged, PlaceCooldown, PlaceEnd, PlaceNative}
}

// ParsePlacement reads a placement's name.
func ParsePlacement(name string) (Placement, error) {
	if slices.Contains(Placements(), Placement(name)) {
		return Placement(name), nil
	}
	var names []string
	for _, p := range Placements() {
		names = append(names, string(p))
	}
	return "", fmt.Errorf("no placement of backward-p2 is called %q; known: %s", name, strings.Join(names, ", "))
}

// Policy is the p2 dial.
type Policy struct {
	Placement Placement
	// Concat is the largest number of micro-batches that one W joins; 0: as many
	// as wait. Lagged starts a W when Concat of them are due, so it holds
	// Concat-1 more; with 0 it joins only what is left at the end.
	Concat int
}

// String prints the policy as "lagged", "cooldown concat all" or "end concat 2".
func (p Policy) String() string {
	switch {
	case p.Placement == "" || p.Placement == PlaceNative:
		return string(PlaceNative)
	case p.Placement == PlaceFused:
		return string(PlaceFused)
	case p.Concat == 0:
		return fmt.Sprintf("%s concat all", p.Placement)
	}
	return fmt.Sprintf("%s concat %d", p.Placement, p.Concat)
}

// TwoBP returns s with every backward split into I and W, and W placed by the
// policy (2BP, arXiv 2405.18047). I keeps the place of the backward it comes
// from; W that s already has are placed anew. The W of a stage keep the order of their I.
func TwoBP(s *Schedule, policy Policy) (*Schedule, error) {
	if s.Lowered {
		return nil, fmt.Errorf("2BP of schedule %s: it is lowered already; apply the transform before", s.Name)
	}
	if policy.Concat < 0 {
		return nil, fmt.Errorf("2BP of schedule %s: concat must be 0 (all) or more, not %d", s.Name, policy.Concat)
	}
	if policy.Placement == "" || policy.Placement == PlaceNative {
		return s.Clone(), nil
	}
	if _, err := ParsePlacement(string(policy.Placement)); err != nil {
		return nil, fmt.Errorf("2BP of schedule %s: %w", s.Name, err)
	}
	if s.Async != nil && policy.Placement != PlaceFused {
		return nil, fmt.Errorf("2BP of schedule %s: its weights change within the step, right after each backward; only %s is possible",
			s.Name, PlaceFused)
	}
	out := s.Clone()
	for r, program := range s.Programs {
		if policy.Placement == PlaceFused {
			out.Programs[r] = fuse(program)
		} else {
			out.Programs[r] = place(program, r, policy)
		}
	}
	return out, nil
}

// fuse joins every I with its W, at the place of I.
func fuse(program []Op) []Op {
	out := make([]Op, 0, len(program))
	for _, o := range program {
		switch o.Kind {
		case BackwardWeight:
			continue
		case BackwardInput:
			o.Kind = Backward
		}
		out = append(out, o)
	}
	return out
}

// place splits the backwards of one rank's program and places W; lagged, `lag` behind.
func place(program []Op, lag int, policy Policy) []Op {
	out := make([]Op, 0, 2*len(program))
	lastF := -1
	for i, o := range program {
		if o.Kind == Forward {
			lastF = i
		}
	}
	var q waiting
	for i, o := range program {
		switch o.Kind {
		case BackwardWeight:
			continue
		case Backward, BackwardInput:
			o.Kind = BackwardInput
			out = append(out, o)
			q.push(o)
			switch {
			case policy.Placement == PlaceLagged:
				for n := max(policy.Concat, 1); q.n >= lag+n; {
					w, full := q.pop(n)
					if !full {
						break
					}
					out = append(out, w)
				}
			case policy.Placement == PlaceCooldown && i > lastF:
				w, _ := q.pop(1)
				out = append(out, w)
			}
		default:
			out = append(out, o)
		}
	}
	return q.drain(out, policy.Concat)
}

// waiting holds the I whose W has not come yet.
type waiting struct {
	n, pushed int
	stages    []stageQueue // in the order in which the stages first had one
}

// stageQueue holds the waiting micro-batches of one stage, oldest first, and when each came.
type stageQueue struct {
	stage     int
	mbs, came []int
}

func (q *waiting) push(o Op) {
	i := slices.IndexFunc(q.stages, func(s stageQueue) bool { return s.stage == o.Stage })
	if i < 0 {
		i = len(q.stages)
		q.stages = append(q.stages, stageQueue{stage: o.Stage})
	}
	s := &q.stages[i]
	s.mbs, s.came = append(s.mbs, o.First), append(s.came, q.pushed)
	q.n++
	q.pushed++
}

// pop removes the W of the oldest entry, joined with up to n-1 more of its
// stage. It returns full = false and removes nothing when fewer than n wait and
// more may still come to join them.
func (q *waiting) pop(n int) (w Op, full bool) {
	var oldest *stageQueue
	for i := range q.stages {
		if s := &q.stages[i]; len(s.mbs) > 0 && (oldest == nil || s.came[0] < oldest.came[0]) {
			oldest = s
		}
	}
	k := run(oldest.mbs, n)
	if k < n && k == len(oldest.mbs) {
		return Op{}, false
	}
	return q.take(oldest, k), true
}

// take removes the first k of a stage as one W.
func (q *waiting) take(s *stageQueue, k int) Op {
	first, last := s.mbs[0], s.mbs[k-1]
	s.mbs, s.came = s.mbs[k:], s.came[k:]
	q.n -= k
	return Op{Stage: s.stage, Kind: BackwardWeight, First: min(first, last), Last: max(first, last)}
}

// run returns how many of the micro-batches at the head follow each other, all
// up or all down, at most n.
func run(mbs []int, n int) int {
	k := 1
	for ; k < n && k < len(mbs); k++ {
		d := mbs[k] - mbs[k-1]
		if d != 1 && d != -1 || k > 1 && d != mbs[k-1]-mbs[k-2] {
			break
		}
	}
	return k
}

// drain appends what is left, stage by stage, joined up to concat (0: all).
func (q *waiting) drain(out []Op, concat int) []Op {
	if concat == 0 {
		concat = max(q.n, 1)
	}
	for i := range q.stages {
		for s := &q.stages[i]; len(s.mbs) > 0; {
			out = append(out, q.take(s, run(s.mbs, concat)))
		}
	}
	return out
}
