package chart

import (
	"fmt"
	"html"
	"sort"
)

// Op is a rectangle of a timeline. Times are seconds from the step's start.
type Op struct {
	Rank       int
	Kind       string // F, I, W, B; else drawn as reductions and updates
	Text       string // "2F0"
	Start, End float64
}

// Timeline is a step of several ranks, a row a rank.
type Timeline struct {
	Finding string
	Ranks   int
	Ops     []Op
	Span    float64 // seconds of the whole width; 0: until the last op
}

// wide is the width of timelines: a page lets them be moved where it is narrower.
const wide = 1100

// TimelineOps bounds the ops that are drawn: a page shall stay small.
const TimelineOps = 1500

// SVG draws the timeline.
func (t Timeline) SVG() string {
	const left, row = 52.0, 20.0
	span := t.Span
	for _, o := range t.Ops {
		if t.Span == 0 {
			span = max(span, o.End)
		}
	}
	if span == 0 {
		span = 1
	}
	scale := (wide - left - 8) / span
	d := &draw{}
	for r := range t.Ranks {
		y := float64(r) * (row + 3)
		d.text(left-6, y+14, "d e", fmt.Sprintf("rank %d", r))
		d.add(`<rect x="%s" y="%s" width="%s" height="%s" fill="var(--grid)"/>`, num(left), num(y), num(span*scale), num(row))
	}
	ops := append([]Op(nil), t.Ops...)
	sort.SliceStable(ops, func(i, j int) bool { return ops[i].Start < ops[j].Start })
	d.add(`<g class="o">`)
	for i, o := range ops {
		if i >= TimelineOps {
			break
		}
		fill := "var(--R)"
		switch o.Kind {
		case "F", "I", "W", "B":
			fill = "var(--" + o.Kind + ")"
		}
		x, y, w := left+o.Start*scale, float64(o.Rank)*(row+3), (o.End-o.Start)*scale
		d.add(`<rect x="%s" y="%s" width="%s" height="%s" fill="%s"><title>%s, rank %d: %s to %s</title></rect>`, num(x), num(y), num(max(w-0.6, 0.4)), num(row), fill,
			html.EscapeString(o.Text), o.Rank, Seconds(o.Start), Seconds(o.End))
		if w > 6.5*float64(len(o.Text))+3 {
			d.add(`<text x="%s" y="%s">%s</text>`, num(x+w/2), num(y+14), html.EscapeString(o.Text))
		}
	}
	d.add(`</g>`)
	bottom := float64(t.Ranks) * (row + 3)
	for _, x := range ticks(0, span, 8) {
		d.text(left+x*scale, bottom+14, "d m", Seconds(x))
	}
	return d.svg(wide, bottom+20, t.Finding)
}
