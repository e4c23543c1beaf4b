package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/pipetrain/pipetrain/schedule"
)

// TimelinesName is the file of a run's two timelines.
const TimelinesName = "timelines.json"

// Timelines are a step as it was predicted and as it was measured: one of median length. A part that
// the run was too short for has no ranks.
type Timelines struct {
	Predicted Timeline `json:"predicted"`
	Measured  Timeline `json:"measured"`
}

// Timeline is a step of the first replica, without transfers.
type Timeline struct {
	Makespan float64 `json:"makespan_seconds"`
	Bubble   float64 `json:"bubble"`
	// Idle are idle seconds by cause, summed over the ranks: warmup, dependency, transfer, other, drain.
	Idle map[string]float64 `json:"idle_seconds"`
	// Kinds are the kinds of ops by their letters.
	Kinds []string `json:"kinds"`
	// Ranks has six numbers an op: kind (an index of Kinds), stage, first and last micro-batch, start and end in nanoseconds.
	Ranks [][]int64 `json:"ranks"`
}

// timelineKinds are the ops that a timeline keeps: what a rank computes, reduces and updates.
var timelineKinds = []schedule.Kind{schedule.Forward, schedule.BackwardInput, schedule.BackwardWeight, schedule.Backward, schedule.ReduceGrad, schedule.Update}

// NewTimeline makes one of a schedule's timeline, predicted or measured; a zero one of nil.
func NewTimeline(s *schedule.Schedule, t *schedule.Timeline) Timeline {
	if t == nil || s == nil {
		return Timeline{}
	}
	compute := &schedule.Timeline{Ranks: t.Ranks}
	for _, e := range t.Events {
		if slices.Contains(timelineKinds, e.Op.Kind) {
			compute.Events = append(compute.Events, e)
		}
	}
	out := Timeline{Makespan: compute.Makespan(), Bubble: compute.Bubble(), Idle: map[string]float64{}, Kinds: []string{}, Ranks: make([][]int64, t.Ranks)}
	for _, part := range schedule.IdleParts(s, compute) {
		for name, x := range map[string]float64{"warmup": part.Warmup, "dependency": part.Dependency, "transfer": part.Transfer, "other": part.Other, "drain": part.Drain} {
			out.Idle[name] += x
		}
	}
	start, _ := compute.Span()
	at := func(x float64) int64 { return int64(math.Round((x - start) * 1e9)) }
	for _, e := range compute.Events {
		o := e.Op
		kind := slices.Index(out.Kinds, o.Kind.String())
		if kind < 0 {
			kind = len(out.Kinds)
			out.Kinds = append(out.Kinds, o.Kind.String())
		}
		out.Ranks[e.Rank] = append(out.Ranks[e.Rank], int64(kind), int64(o.Stage), int64(o.First), int64(o.Last), at(e.Start), at(e.End))
	}
	return out
}

// Schedule returns the timeline as schedule's type; nil where there is none.
func (t Timeline) Schedule() (*schedule.Timeline, error) {
	if len(t.Ranks) == 0 {
		return nil, nil
	}
	out := &schedule.Timeline{Ranks: len(t.Ranks)}
	for r, flat := range t.Ranks {
		if len(flat)%6 != 0 {
			return nil, fmt.Errorf("rank %d has %d numbers, which is no multiple of six", r, len(flat))
		}
		for i := 0; i < len(flat); i += 6 {
			kind := -1
			if k := flat[i]; k >= 0 && int(k) < len(t.Kinds) {
				kind = slices.IndexFunc(timelineKinds, func(x schedule.Kind) bool { return x.String() == t.Kinds[k] })
			}
			if kind < 0 {
				return nil, errors.New("an op of a kind that this program does not know")
			}
			o := schedule.Op{Kind: timelineKinds[kind], Stage: int(flat[i+1]), First: int(flat[i+2]), Last: int(flat[i+3])}
			out.Events = append(out.Events, schedule.Event{Rank: r, Op: o, Start: float64(flat[i+4]) / 1e9, End: float64(flat[i+5]) / 1e9})
		}
	}
	return out, nil
}

// WriteTimelines writes timelines.json.
func (f *Folder) WriteTimelines(t Timelines) error {
	b, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("writing %s: %w", TimelinesName, err)
	}
	return WriteFile(f.File(TimelinesName), append(b, '\n'))
}

// ReadTimelines reads the timelines of a run folder.
func ReadTimelines(dir string) (Timelines, error) {
	var t Timelines
	b, err := os.ReadFile(filepath.Join(dir, TimelinesName))
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(b, &t); err != nil {
		return t, fmt.Errorf("%s: %w", filepath.Join(dir, TimelinesName), err)
	}
	return t, nil
}
