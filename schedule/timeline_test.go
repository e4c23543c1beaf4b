package schedule

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// A measured timeline starts anywhere, has gaps, transfers and ops that overlap by
// a clock's tick, and its events may come in any order.
func TestMeasuredTimeline(t *testing.T) {
	timeline := &Timeline{Ranks: 3, Events: []Event{
		{0, op(0, Forward, 0), 100, 102},
		{0, op(0, SendF, 0), 102, 107},
		{0, op(0, Backward, 0), 107, 110},
		{1, op(1, RecvF, 0), 100, 103},
		{1, op(1, Forward, 0), 103, 105},
		{1, op(1, Backward, 0), 104.5, 106.5},
		{1, Op{1, ReduceGrad, 0, 0}, 106.5, 108},
	}}
	rng := rand.New(rand.NewPCG(5, 6))
	for range 5 {
		if got := timeline.Makespan(); got != 10 {
			t.Errorf("makespan %v, want 10", got)
		}
		ranks := timeline.PerRank()
		want := []RankTimes{{5, 5, 100, 110}, {3.5, 6.5, 103, 106.5}, {0, 10, 0, 0}}
		for r := range want {
			if ranks[r] != want[r] {
				t.Errorf("rank %d: %+v, want %+v", r, ranks[r], want[r])
			}
		}
		if got := timeline.Bubble(); !near2(got, 21.5/30) {
			t.Errorf("bubble %v, want %v", got, 21.5/30)
		}
		if got := timeline.InnerBubble(); !near2(got, 5/13.5) {
			t.Errorf("inner bubble %v, want %v", got, 5/13.5)
		}
		if timeline.Idle(1) != 6.5 || timeline.Busy(1) != 3.5 {
			t.Errorf("rank 1: idle %v, busy %v", timeline.Idle(1), timeline.Busy(1))
		}
		var b bytes.Buffer
		if err := Draw(&b, timeline, DrawOptions{Width: 50}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), "makespan 10, bubble 71.7 %") || !strings.Contains(b.String(), "rank  2 |"+strings.Repeat(".", 40)+"|") {
			t.Errorf("drawing:\n%s", b.String())
		}
		rng.Shuffle(len(timeline.Events), func(i, j int) {
			timeline.Events[i], timeline.Events[j] = timeline.Events[j], timeline.Events[i]
		})
	}
}

func TestEmptyTimeline(t *testing.T) {
	for _, timeline := range []*Timeline{{}, {Ranks: 2}, {Ranks: 1, Events: []Event{{0, op(0, Forward, 0), 3, 3}}}} {
		if timeline.Makespan() != 0 || timeline.Bubble() != 0 || timeline.InnerBubble() != 0 {
			t.Errorf("%+v: makespan %v, bubble %v", timeline, timeline.Makespan(), timeline.Bubble())
		}
		if err := Draw(&bytes.Buffer{}, timeline, DrawOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// Lines have the asked width, whatever the times.
func TestDrawWidth(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, width := range []int{80, 100, 133, 200} {
		s := build(t, "1f1b", 12, 40, 0, Policy{Placement: PlaceLagged})
		var b bytes.Buffer
		if err := Draw(&b, simulate(t, s, uneven(rng, 12)), DrawOptions{Width: width}); err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(b.String(), "\n")[:12] {
			if len(line) != width {
				t.Errorf("width %d: line %d has %d columns:\n%s", width, i, len(line), line)
			}
		}
	}
}
