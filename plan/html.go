package plan

import (
	"bytes"
	_ "embed" // the page
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/pipetrain/pipetrain/schedule"
)

//go:embed page.html
var page []byte

const (
	// pageEvents bounds the ops of all timelines of a page; the job's own is always there.
	pageEvents = 250_000
	pageTicks  = 1e7 // resolution of a timeline: parts of the makespan
)

// pageTimeline is a timeline as the page's script reads it.
type pageTimeline struct {
	Name     string    `json:"name"`
	Stages   int       `json:"stages"`
	Makespan float64   `json:"makespan"`
	Ticks    float64   `json:"ticks"`
	Ranks    [][]int64 `json:"ranks"` // six numbers an op: kind, stage, first, last, start, end
}

// pageData is all that the page knows.
type pageData struct {
	*Plan
	Kinds     []string        `json:"kinds"` // letters by kind number
	Timelines []*pageTimeline `json:"timelines"`
	// TimelineOf is the index in Timelines of each of Alternatives; -1: not in the page.
	TimelineOf []int `json:"timeline_of"`
}

// WriteHTML writes one self-contained page: timelines to zoom, hover and compare, the plot of
// step time against memory, the table. It loads nothing from anywhere.
func (p *Plan) WriteHTML(w io.Writer) error {
	d := pageData{Plan: p}
	for k := schedule.Kind(0); k <= schedule.Update; k++ {
		name := ""
		if k.Valid() {
			name = k.String()
		}
		d.Kinds = append(d.Kinds, name)
	}
	d.Timelines = append(d.Timelines, encodeTimeline(p.Result.Name()+" (the job's)", p.Program, p.Timeline))
	budget := pageEvents - len(p.Timeline.Events)
	d.TimelineOf = make([]int, len(p.Alternatives))
	for i := range d.TimelineOf {
		d.TimelineOf[i] = -1
	}
	// First what one wants to compare with, then the rest by step time.
	for _, want := range []func(*Result) bool{
		func(r *Result) bool { return r.Job },
		func(r *Result) bool { return r.Pareto },
		func(*Result) bool { return true },
	} {
		for i, r := range p.Alternatives {
			if d.TimelineOf[i] >= 0 || !want(r) {
				continue
			}
			if r.Job {
				d.TimelineOf[i] = 0
				continue
			}
			if r.program == nil || budget < r.program.ops {
				continue
			}
			s, t, err := p.job.replay(r)
			if err != nil {
				return err
			}
			budget -= len(t.Events)
			d.TimelineOf[i] = len(d.Timelines)
			d.Timelines = append(d.Timelines, encodeTimeline(r.Name(), s, t))
		}
	}
	text, err := json.Marshal(d) // escapes <, > and &
	if err != nil {
		return err
	}
	before, after, ok := bytes.Cut(page, []byte("/*DATA*/"))
	if !ok {
		return fmt.Errorf("the page has no place for its data")
	}
	for _, part := range [][]byte{before, text, after} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

func encodeTimeline(name string, s *schedule.Schedule, t *schedule.Timeline) *pageTimeline {
	out := &pageTimeline{Name: name, Stages: s.Stages, Makespan: t.Makespan(), Ticks: pageTicks, Ranks: make([][]int64, t.Ranks)}
	start, end := t.Span()
	scale := 0.0
	if end > start {
		scale = pageTicks / (end - start)
	}
	for _, e := range t.Events {
		o := e.Op
		out.Ranks[e.Rank] = append(out.Ranks[e.Rank], int64(o.Kind), int64(o.Stage), int64(o.First), int64(o.Last),
			int64(math.Round((e.Start-start)*scale)), int64(math.Round((e.End-start)*scale)))
	}
	return out
}
