package schedule

import (
	"math"
	"slices"
)

// Span returns when the first op starts and the last one ends; 0, 0 without events.
func (t *Timeline) Span() (start, end float64) {
	if len(t.Events) == 0 {
		return 0, 0
	}
	start, end = math.Inf(1), math.Inf(-1)
	for i := range t.Events {
		start, end = min(start, t.Events[i].Start), max(end, t.Events[i].End)
	}
	return start, end
}

// Makespan returns the time from the first start to the last end.
func (t *Timeline) Makespan() float64 {
	start, end := t.Span()
	return end - start
}

// RankTimes says how one rank spent a step.
type RankTimes struct {
	Busy       float64 // computing F, I, W, B; overlapping ops count once
	Idle       float64 // makespan - Busy
	Start, End float64 // first compute op's start, last one's end
}

// Gaps returns the idle time between the first and the last compute op.
func (r RankTimes) Gaps() float64 { return max(0, r.End-r.Start-r.Busy) }

// PerRank returns the times of every rank.
func (t *Timeline) PerRank() []RankTimes {
	ranks := make([]RankTimes, t.Ranks)
	makespan := t.Makespan()
	byRank := t.byRank()
	for r, events := range byRank {
		rank := &ranks[r]
		until := math.Inf(-1)
		for i := range events {
			e := &events[i]
			if !e.Op.Kind.IsCompute() {
				continue
			}
			if math.IsInf(until, -1) {
				rank.Start = e.Start
			}
			rank.Busy += max(0, e.End-max(e.Start, until))
			until = max(until, e.End)
			rank.End = until
		}
	}
	for r := range ranks {
		ranks[r].Idle = max(0, makespan-ranks[r].Busy)
	}
	return ranks
}

// Busy returns the time a rank computes. PerRank serves all ranks at once.
func (t *Timeline) Busy(rank int) float64 { return t.PerRank()[rank].Busy }

// Idle returns the time a rank does not compute within the makespan.
func (t *Timeline) Idle(rank int) float64 { return t.PerRank()[rank].Idle }

// Bubble returns the idle share: 1 - busy time of all ranks / (ranks × makespan).
func (t *Timeline) Bubble() float64 {
	whole := t.Makespan() * float64(t.Ranks)
	if whole <= 0 {
		return 0
	}
	idle := 0.0
	for _, r := range t.PerRank() {
		idle += r.Idle
	}
	return idle / whole
}

// InnerBubble returns the idle share between each rank's own first and last
// compute op, which is what "zero bubble" means in papers: the skew between
// ranks, hidden where a step has no barrier, does not count.
func (t *Timeline) InnerBubble() float64 {
	gaps, spans := 0.0, 0.0
	for _, r := range t.PerRank() {
		gaps += r.Gaps()
		spans += r.End - r.Start
	}
	if spans <= 0 {
		return 0
	}
	return gaps / spans
}

// byRank returns each rank's events by start, without copying where they are in
// order already. Events of ranks out of range are left out.
func (t *Timeline) byRank() [][]Event {
	before := func(a, b Event) int {
		if a.Rank != b.Rank {
			return a.Rank - b.Rank
		}
		switch {
		case a.Start < b.Start:
			return -1
		case a.Start > b.Start:
			return 1
		}
		return 0
	}
	events := t.Events
	if !slices.IsSortedFunc(events, before) {
		events = slices.Clone(events)
		slices.SortStableFunc(events, before)
	}
	ranks := make([][]Event, t.Ranks)
	for i := 0; i < len(events); {
		j := i
		for j < len(events) && events[j].Rank == events[i].Rank {
			j++
		}
		if r := events[i].Rank; r >= 0 && r < t.Ranks {
			ranks[r] = events[i:j]
		}
		i = j
	}
	return ranks
}
