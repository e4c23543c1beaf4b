package chart

import (
	"fmt"
	"html"
	"math"
)

// Bars is a chart of horizontal bars: groups of them, each of stacked parts.
type Bars struct {
	Finding string
	X       string   // what the axis is
	Parts   []string // names of the parts, in the order of the stack
	Groups  []Group
	Format  func(float64) string
	Binary  bool // sizes: ticks in powers of 1024
	// Side says that parts stand below each other, not on each other: predicted beside measured.
	Side bool
}

// Group is a row of the chart with one or several bars.
type Group struct {
	Name string
	Bars []Bar
}

// Bar has a value for each part; NaN: none.
type Bar struct {
	Name   string // shown behind the group's; may be empty
	Values []float64
}

// SVG draws the chart.
func (b Bars) SVG() string {
	if b.Format == nil {
		b.Format = Short
	}
	const right, thick = 62.0, 13.0
	longest := 0
	for _, g := range b.Groups {
		longest = max(longest, min(28, len([]rune(g.Name))))
	}
	left := min(210, 14+6.6*float64(longest))
	d := &draw{}
	y := d.legend(b.Parts, false, Width) + 6
	top, most := y, 0.0
	for _, g := range b.Groups {
		for _, bar := range g.Bars {
			most = max(most, b.reach(bar))
		}
	}
	if most == 0 {
		most = 1
	}
	scale := (Width - left - right) / most
	var rows draw
	for _, g := range b.Groups {
		name := []rune(g.Name)
		if len(name) > 28 {
			name = append(name[:27], '…')
		}
		start := y
		for n, bar := range g.Bars {
			y = b.bar(&rows, bar, g.Name, n, left, y, thick, scale)
		}
		rows.add(`<text x="%s" y="%s" class="e"><title>%s</title>%s</text>`, num(left-8), num((start+y)/2+1), html.EscapeString(g.Name), html.EscapeString(string(name)))
		y += 8
	}
	at := ticks(0, most, 4)
	if b.Binary {
		at = byteTicks(most, 4)
	}
	for _, x := range at {
		d.line(left+x*scale, top-4, left+x*scale, y, `class="g"`)
		d.text(left+x*scale, y+14, "d m", b.Format(x))
	}
	d.b.WriteString(rows.b.String())
	d.text((left+Width-right)/2, y+32, "d m", b.X)
	return d.svg(Width, y+38, b.Finding)
}

// reach is how far a bar goes.
func (b Bars) reach(bar Bar) float64 {
	sum, most := 0.0, 0.0
	for _, v := range bar.Values {
		if !math.IsNaN(v) {
			sum += v
			most = max(most, v)
		}
	}
	if b.Side {
		return most
	}
	return sum
}

// bar draws one and returns where the next one begins.
func (b Bars) bar(d *draw, bar Bar, group string, n int, left, y, thick, scale float64) float64 {
	x, sum := left, 0.0
	for i, v := range bar.Values {
		if math.IsNaN(v) {
			continue
		}
		part := ""
		if i < len(b.Parts) {
			part = b.Parts[i]
		}
		// Bars of one group differ by how dense they are: predicted lighter than measured.
		opacity := "1"
		if n == 0 && bar.Name != "" {
			opacity = ".6"
		}
		tip := fmt.Sprintf("%s%s: %s %s", group, spaced(bar.Name), part, b.Format(v))
		d.add(`<rect x="%s" y="%s" width="%s" height="%s" fill="%s" fill-opacity="%s"><title>%s</title></rect>`,
			num(x), num(y), num(max(v*scale, 0)), num(thick-1), color(i), opacity, html.EscapeString(tip))
		if b.Side {
			d.text(left+v*scale+4, y+thick-3, "d", b.Format(v))
			y += thick
			continue
		}
		x += v * scale
		sum += v
	}
	if !b.Side {
		label := b.Format(sum)
		if bar.Name != "" {
			label = bar.Name[:1] + " " + label
		}
		d.text(x+4, y+thick-3, "d", label)
		y += thick
	}
	return y
}

func spaced(s string) string {
	if s == "" {
		return ""
	}
	return ", " + s
}

// Scatter is a chart of points with two measures.
type Scatter struct {
	Finding          string
	X, Y             string
	Names            []string // of the series
	Points           []Dot
	FormatX, FormatY func(float64) string
	Binary           bool // X is a size: ticks in powers of 1024
}

// Dot is a point of a series.
type Dot struct {
	Series int
	Name   string
	X, Y   float64
}

// SVG draws the chart.
func (s Scatter) SVG() string {
	const left, right, height, bottom = 64.0, 20.0, 250.0, 40.0
	d := &draw{}
	top := d.legend(s.Names, true, Width) + 20
	x1, y1 := 0.0, 0.0
	for _, p := range s.Points {
		x1, y1 = max(x1, p.X), max(y1, p.Y)
	}
	x1, y1 = max(x1*1.06, 1e-12), max(y1*1.06, 1e-12)
	at := func(x float64) float64 { return left + x/x1*(Width-left-right) }
	up := func(y float64) float64 { return top + height - y/y1*height }
	d.text(0, top-8, "d", s.Y)
	for _, y := range ticks(0, y1, 5) {
		d.line(left, up(y), Width-right, up(y), `class="g"`)
		d.text(left-6, up(y)+4, "d e", s.FormatY(y))
	}
	across := ticks(0, x1, 5)
	if s.Binary {
		across = byteTicks(x1, 5)
	}
	for _, x := range across {
		d.text(at(x), top+height+16, "d m", s.FormatX(x))
	}
	d.line(left, top+height, Width-right, top+height, `class="x"`)
	for _, p := range s.Points {
		d.marker(p.Series, at(p.X), up(p.Y), fmt.Sprintf("%s: %s, %s", p.Name, s.FormatX(p.X), s.FormatY(p.Y)))
	}
	d.text((Width+left-right)/2, top+height+bottom-4, "d m", s.X)
	return d.svg(Width, top+height+bottom, s.Finding)
}
