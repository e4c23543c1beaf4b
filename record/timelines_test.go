package record

import (
	"math"
	"testing"

	"github.com/pipetrain/pipetrain/schedule"
)

// Timelines read back to the same ops, and idle parts add up to the bubble.
func TestTimelines(t *testing.T) {
	s, err := schedule.Build("1f1b", schedule.Config{Ranks: 3, Microbatches: 4})
	if err != nil {
		t.Fatal(err)
	}
	line, err := schedule.Simulate(s, schedule.StageCosts{F: []float64{1, 1, 1}, I: []float64{1, 1, 1}, W: []float64{1, 1, 1}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := Create(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.WriteTimelines(Timelines{Predicted: NewTimeline(s, line)}); err != nil {
		t.Fatal(err)
	}
	got, err := ReadTimelines(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	back, err := got.Predicted.Schedule()
	if err != nil {
		t.Fatal(err)
	}
	if back.Bubble() != line.Bubble() || back.Makespan() != line.Makespan() || got.Predicted.Bubble != line.Bubble() {
		t.Errorf("read %v %v, simulated %v %v", back.Bubble(), back.Makespan(), line.Bubble(), line.Makespan())
	}
	idle := 0.0
	for _, x := range got.Predicted.Idle {
		idle += x
	}
	if want := line.Bubble() * 3 * line.Makespan(); math.Abs(idle-want) > 1e-9 {
		t.Errorf("idle parts add up to %v, the bubble is %v", idle, want)
	}
	if none, err := got.Measured.Schedule(); none != nil || err != nil {
		t.Errorf("no measured timeline, got %v %v", none, err)
	}
	if _, err := (Timeline{Kinds: []string{"Q"}, Ranks: [][]int64{{0, 0, 0, 0, 0, 1}}}).Schedule(); err == nil {
		t.Error("an unknown kind is taken")
	}
}
