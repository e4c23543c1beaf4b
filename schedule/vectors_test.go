package schedule

import (
	"fmt"
	"math"
	"testing"
)

func build(t testing.TB, kind string, ranks, microbatches, chunks int, policy Policy) *Schedule {
	t.Helper()
	s, err := Build(kind, Config{Ranks: ranks, Microbatches: microbatches, Chunks: chunks})
	if err != nil {
		t.Fatal(err)
	}
	if s, err = TwoBP(s, policy); err != nil {
		t.Fatal(err)
	}
	return s
}

func simulate(t testing.TB, s *Schedule, costs Costs) *Timeline {
	t.Helper()
	timeline, err := Simulate(s, costs)
	if err != nil {
		t.Fatal(err)
	}
	return timeline
}

func near2(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

// The makespans and bubbles of 2BP's table for equal times.
func TestPaperMakespans(t *testing.T) {
	for _, c := range []struct {
		kind            string
		n, m            int
		with            Placement
		before, after   float64
		bubble, bubble2 float64
	}{
		{"naive", 4, 1, PlaceEnd, 12, 9, 3. / 4, 2 * 3. / 9},
		{"gpipe", 4, 4, PlaceEnd, 21, 18, 3. / 7, 2 * 3. / 18},
		{"1f1b", 4, 4, PlaceCooldown, 21, 15, 3. / 7, 3. / 15},
		{"1f1b", 4, 8, PlaceCooldown, 33, 27, 3. / 11, 3. / 27},
		{"naive", 8, 1, PlaceEnd, 24, 17, 7. / 8, 2 * 7. / 17},
		{"gpipe", 8, 8, PlaceEnd, 45, 38, 7. / 15, 2 * 7. / 38},
		{"1f1b", 8, 8, PlaceCooldown, 45, 31, 7. / 15, 7. / 31},
		{"1f1b", 8, 16, PlaceCooldown, 69, 55, 7. / 23, 7. / 55},
	} {
		t.Run(fmt.Sprintf("%s-%d-%d", c.kind, c.n, c.m), func(t *testing.T) {
			fused := simulate(t, build(t, c.kind, c.n, c.m, 0, Policy{}), Units())
			split := simulate(t, build(t, c.kind, c.n, c.m, 0, Policy{Placement: c.with}), Units())
			if got := fused.Makespan(); got != c.before {
				t.Errorf("makespan without 2BP: %v, want %v", got, c.before)
			}
			if got := split.Makespan(); got != c.after {
				t.Errorf("makespan with 2BP: %v, want %v", got, c.after)
			}
			if got := fused.Bubble(); !near2(got, c.bubble) {
				t.Errorf("bubble without 2BP: %v, want %v", got, c.bubble)
			}
			if got := split.Bubble(); !near2(got, c.bubble2) {
				t.Errorf("bubble with 2BP: %v, want %v", got, c.bubble2)
			}
		})
	}
}
