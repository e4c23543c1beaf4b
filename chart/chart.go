// Package chart draws SVG: lines with intervals, bars, points, timelines. It needs no script and loads nothing;
// colours are CSS variables, so that one drawing serves light, dark and print.
//
// Series differ by dash and marker too, not by colour alone.
package chart

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// Style is what the drawings need of a page: the variables --c0 to --c7 of series, and those of text and lines.
const Style = `:root{--bg:#ffffff;--fg:#1b1f24;--dim:#59636e;--line:#c9d1d9;--grid:#e6eaee;--panel:#f6f8fa;--bad:#b3261e;--good:#1a7f37;--warn:#8a5a00;
--c0:#2f6db5;--c1:#b8500d;--c2:#1f7a4d;--c3:#8b3fa8;--c4:#9b2d4a;--c5:#6b6500;--c6:#0f7480;--c7:#5b6470;
--F:#4170ae;--I:#1d7f79;--W:#4d8034;--B:#7d52ad;--R:#946310}
@media screen and (prefers-color-scheme:dark){:root{--bg:#15181c;--fg:#e4e7ea;--dim:#a3acb5;--line:#454c55;--grid:#2a2f36;--panel:#1c2025;--bad:#ff8a80;--good:#6fcf86;--warn:#e3b341;
--c0:#6ea8ee;--c1:#f0924f;--c2:#5cc98c;--c3:#cf93e6;--c4:#f0849f;--c5:#c9c04b;--c6:#4fc3d0;--c7:#a9b3bf;
--F:#4170ae;--I:#1d7f79;--W:#4d8034;--B:#8259b2;--R:#946310}}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font:12px system-ui,sans-serif;fill:var(--fg)}
svg text.d{fill:var(--dim)}
svg text.e{text-anchor:end}
svg text.m{text-anchor:middle}
svg .g{stroke:var(--grid);stroke-width:1}
svg .x{stroke:var(--line);stroke-width:1}
svg .o text{fill:#fff;font-size:10px;text-anchor:middle;pointer-events:none}
`

// Width of a drawing in its own units, which are pixels on a page that shows it in full.
const Width = 520

// draw collects the elements of a drawing.
type draw struct {
	b strings.Builder
}

func (d *draw) add(format string, args ...any) { fmt.Fprintf(&d.b, format, args...) }

// text writes a text at a place; class is "d" (dim), "e" (ends there), "m" (in its middle).
func (d *draw) text(x, y float64, class, s string) {
	c := ""
	if class != "" {
		c = ` class="` + class + `"`
	}
	d.add(`<text x="%s" y="%s"%s>%s</text>`, num(x), num(y), c, html.EscapeString(s))
}

func (d *draw) line(x1, y1, x2, y2 float64, attr string) {
	d.add(`<line x1="%s" y1="%s" x2="%s" y2="%s" %s/>`, num(x1), num(y1), num(x2), num(y2), attr)
}

// svg returns the drawing with its one-sentence finding as its name.
func (d *draw) svg(width, height float64, finding string) string {
	return fmt.Sprintf(`<svg viewBox="0 0 %s %s" role="img" aria-label="%s">%s</svg>`, num(width), num(height), html.EscapeString(finding), d.b.String())
}

// Standalone makes a file of a drawing.
func Standalone(svg string) string {
	const open = "<svg "
	rest := strings.TrimPrefix(svg, open)
	end := strings.IndexByte(rest, '>') + 1
	return open + `xmlns="http://www.w3.org/2000/svg" ` + rest[:end] + "<style>" + Style + "svg{background:var(--bg)}</style>" + rest[end:] + "\n"
}

// num prints a coordinate with a tenth of a pixel.
func num(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return "0"
	}
	return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64)
}

// ticks returns about n round values from lo to hi.
func ticks(lo, hi float64, n int) []float64 {
	if !(hi > lo) {
		return []float64{lo}
	}
	raw := (hi - lo) / float64(n)
	p := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * p
	for _, k := range []float64{1, 2, 5} {
		if k*p >= raw {
			step = k * p
			break
		}
	}
	var out []float64
	for k := math.Ceil(lo/step - 1e-9); k*step <= hi*(1+1e-9); k++ {
		out = append(out, k*step+0) // +0: no minus zero
	}
	return out
}

// byteTicks returns about n round sizes from 0 to hi: in powers of 1024, as Bytes prints them.
func byteTicks(hi float64, n int) []float64 {
	unit := 1.0
	for hi/unit >= 1024 {
		unit *= 1024
	}
	out := ticks(0, hi/unit, n)
	for i := range out {
		out[i] *= unit
	}
	return out
}

// Short prints a value with few digits: 0.0123, 1.5, 12 k, 3.2 M.
func Short(x float64) string {
	a := math.Abs(x)
	switch {
	case a >= 1e12:
		return trim(x/1e12) + " T"
	case a >= 1e9:
		return trim(x/1e9) + " G"
	case a >= 1e6:
		return trim(x/1e6) + " M"
	case a >= 1e4:
		return trim(x/1e3) + " k"
	}
	return trim(x)
}

func trim(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }

// Bytes prints a size in powers of 1024.
func Bytes(x float64) string {
	for _, u := range []string{"B", "KiB", "MiB", "GiB"} {
		if math.Abs(x) < 1024 {
			return trim(x) + " " + u
		}
		x /= 1024
	}
	return trim(x) + " TiB"
}

// Seconds prints a time.
func Seconds(x float64) string {
	switch a := math.Abs(x); {
	case a == 0:
		return "0"
	case a < 1e-3:
		return trim(x*1e6) + " µs"
	case a < 1:
		return trim(x*1e3) + " ms"
	case a < 120:
		return trim(x) + " s"
	}
	return trim(x/60) + " min"
}

// Percent prints a share.
func Percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 1, 64) + " %" }

// dashes and markers of series, so that colour is not all that tells them apart.
var dashes = []string{"", "6 3", "2 2", "8 3 2 3", "4 2", "1 3", "10 4", "3 5"}

func color(i int) string { return fmt.Sprintf("var(--c%d)", i%8) }

// marker draws the i-th series' mark.
func (d *draw) marker(i int, x, y float64, tip string) {
	fill := color(i)
	switch i % 5 {
	case 0:
		d.add(`<circle cx="%s" cy="%s" r="4" fill="%s">`, num(x), num(y), fill)
		d.add(`<title>%s</title></circle>`, html.EscapeString(tip))
		return
	case 1:
		d.add(`<rect x="%s" y="%s" width="7.5" height="7.5" fill="%s">`, num(x-3.8), num(y-3.8), fill)
		d.add(`<title>%s</title></rect>`, html.EscapeString(tip))
		return
	case 2:
		d.add(`<path d="M%s %sl5 9h-10z" fill="%s">`, num(x), num(y-5.5), fill)
	case 3:
		d.add(`<path d="M%s %sl5.5 5.5l-5.5 5.5l-5.5 -5.5z" fill="%s">`, num(x), num(y-5.5), fill)
	case 4:
		d.add(`<path d="M%s %sl5 -9h-10z" fill="%s">`, num(x), num(y+5.5), fill)
	}
	d.add(`<title>%s</title></path>`, html.EscapeString(tip))
}

// legend draws the series' names in rows and returns its height.
func (d *draw) legend(names []string, lines bool, width float64) float64 {
	x, y := 0.0, 12.0
	for i, n := range names {
		w := 30 + 7.2*float64(len([]rune(n))) + 12
		if x > 0 && x+w > width {
			x, y = 0, y+18
		}
		if lines {
			d.line(x, y-4, x+24, y-4, fmt.Sprintf(`stroke="%s" stroke-width="2" stroke-dasharray="%s"`, color(i), dashes[i%8]))
			d.marker(i, x+12, y-4, n)
		} else {
			d.add(`<rect x="%s" y="%s" width="12" height="12" fill="%s"/>`, num(x+8), num(y-10), color(i))
		}
		d.text(x+30, y, "", n)
		x += w
	}
	return y + 8
}
