package chart

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Point is a value with its interval; Lo and Hi are NaN where there is none.
type Point struct{ X, Y, Lo, Hi float64 }

// Series is a line of a chart.
type Series struct {
	Name   string
	Points []Point
	// Plan draws a thin line without marks: what is predicted, or ideal. Its colour is that of series Of.
	Plan bool
	Of   int
}

// Lines is a chart of series over a common axis.
type Lines struct {
	Finding string // one sentence
	X, Y    string // what the axes are
	Log2    bool   // the horizontal axis has powers of two: ranks
	Zero    bool   // the vertical axis begins at 0
	Series  []Series
	Format  func(float64) string // of vertical values; nil: Short
	Plain   bool                 // no marks: long series
	XLabels map[float64]string   // for values that are no numbers; nil: numbers
}

// SVG draws the chart.
func (l Lines) SVG() string {
	const left, right, height, bottom = 58.0, 14.0, 250.0, 40.0
	if l.Format == nil {
		l.Format = Short
	}
	d := &draw{}
	var names []string
	for _, s := range l.Series {
		if !s.Plan {
			names = append(names, s.Name)
		}
	}
	top := 6.0
	if len(names) > 1 {
		top += d.legend(names, !l.Plain, Width)
	}
	top += 16
	x0, x1, y0, y1 := l.bounds()
	at := func(x float64) float64 {
		if l.Log2 {
			x = math.Log2(x)
		}
		if x1 == x0 {
			return left + (Width-left-right)/2
		}
		return left + (x-x0)/(x1-x0)*(Width-left-right)
	}
	up := func(y float64) float64 { return top + height - (y-y0)/(y1-y0)*height }
	d.text(0, top-8, "d", l.Y)
	for _, y := range ticks(y0, y1, 5) {
		d.line(left, up(y), Width-right, up(y), `class="g"`)
		d.text(left-6, up(y)+4, "d e", l.Format(y))
	}
	l.bottom(d, at, x0, x1, top+height)
	d.text((Width+left-right)/2, top+height+bottom-4, "d m", l.X)
	shown := 0
	for _, s := range l.Series {
		i := s.Of
		if !s.Plan {
			i = shown
			shown++
		}
		l.series(d, s, i, at, up)
	}
	return d.svg(Width, top+height+bottom, l.Finding)
}

// bounds returns the ranges of the axes; of the horizontal one in powers where it has them.
func (l Lines) bounds() (x0, x1, y0, y1 float64) {
	x0, x1, y0, y1 = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, s := range l.Series {
		for _, p := range s.Points {
			x := p.X
			if l.Log2 {
				x = math.Log2(x)
			}
			x0, x1 = min(x0, x), max(x1, x)
			for _, y := range []float64{p.Y, p.Lo, p.Hi} {
				if !math.IsNaN(y) {
					y0, y1 = min(y0, y), max(y1, y)
				}
			}
		}
	}
	if math.IsInf(x0, 1) || math.IsInf(y0, 1) {
		return 0, 1, 0, 1
	}
	if l.Zero {
		y0 = 0
	}
	room := (y1 - y0) * 0.06
	if room == 0 {
		room = max(math.Abs(y1)*0.1, 1e-12)
	}
	y1 += room
	if !l.Zero {
		y0 -= room
	}
	return x0, x1, y0, y1
}

// bottom draws the horizontal axis.
func (l Lines) bottom(d *draw, at func(float64) float64, x0, x1, y float64) {
	d.line(58, y, Width-14, y, `class="x"`)
	switch {
	case l.Log2:
		for k := math.Ceil(x0 - 1e-9); k <= x1+1e-9; k++ {
			v := math.Exp2(k)
			d.text(at(v), y+16, "d m", trim(v))
		}
	case l.XLabels != nil:
		seen := 0
		every := max(1, len(l.XLabels)/8)
		for _, p := range l.Series[0].Points {
			if s, ok := l.XLabels[p.X]; ok {
				if seen%every == 0 {
					d.text(at(p.X), y+16, "d m", s)
				}
				seen++
			}
		}
	default:
		for _, v := range ticks(x0, x1, 6) {
			d.text(at(v), y+16, "d m", Short(v))
		}
	}
}

func (l Lines) series(d *draw, s Series, i int, at, up func(float64) float64) {
	var path strings.Builder
	pen := "M"
	for _, p := range s.Points {
		if math.IsNaN(p.Y) {
			pen = "M"
			continue
		}
		fmt.Fprintf(&path, "%s%s %s", pen, num(at(p.X)), num(up(p.Y)))
		pen = "L"
	}
	if s.Plan {
		d.add(`<path d="%s" fill="none" stroke="%s" stroke-width="1" stroke-dasharray="1 3"><title>%s</title></path>`, path.String(), color(i), html.EscapeString(s.Name))
		return
	}
	d.add(`<path d="%s" fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`, path.String(), color(i), dashes[i%8])
	if l.Plain {
		return
	}
	for _, p := range s.Points {
		if math.IsNaN(p.Y) {
			continue
		}
		tip := fmt.Sprintf("%s: %s at %s", s.Name, l.Format(p.Y), Short(p.X))
		if !math.IsNaN(p.Lo) && !math.IsNaN(p.Hi) {
			x := at(p.X)
			d.add(`<path d="M%s %sV%sm-4 0h8M%s %sh8" stroke="%s" stroke-width="1.5" fill="none"/>`, num(x), num(up(p.Lo)), num(up(p.Hi)), num(x-4), num(up(p.Lo)), color(i))
			tip += fmt.Sprintf(" (%s to %s)", l.Format(p.Lo), l.Format(p.Hi))
		}
		d.marker(i, at(p.X), up(p.Y), tip)
	}
}
