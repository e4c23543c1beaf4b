package chart

import (
	"encoding/xml"
	"math"
	"strings"
	"testing"
)

// Every drawing is well-formed XML with a name, whatever the texts in it, and has a mark for each value.
func TestDrawings(t *testing.T) {
	nan := math.NaN()
	evil := `<b>&"'`
	for name, svg := range map[string]string{
		"lines": Lines{Finding: evil, X: evil, Y: evil, Log2: true, Zero: true, Series: []Series{
			{Name: evil, Points: []Point{{1, 1, 0.9, 1.1}, {2, 1.9, nan, nan}, {4, nan, nan, nan}, {8, 5, 4, 6}}},
			{Name: evil, Plan: true, Points: []Point{{1, 1, nan, nan}, {8, 8, nan, nan}}}, {Name: "b", Points: []Point{{1, 2, nan, nan}}},
		}}.SVG(),
		"empty": Lines{Finding: "none"}.SVG(),
		"bars":  Bars{Finding: evil, X: evil, Parts: []string{evil, "b"}, Groups: []Group{{evil, []Bar{{evil, []float64{1, nan}}, {"m", []float64{2, 3}}}}}}.SVG(),
		"side":  Bars{Parts: []string{"predicted", "measured"}, Side: true, Format: Percent, Groups: []Group{{"x", []Bar{{"", []float64{0.2, 0.3}}}}}}.SVG(),
		"dots":  Scatter{Finding: evil, X: evil, Y: evil, Names: []string{evil}, FormatX: Bytes, FormatY: Short, Binary: true, Points: []Dot{{0, evil, 1 << 30, 5}}}.SVG(),
		"step":  Timeline{Finding: evil, Ranks: 2, Ops: []Op{{0, "F", evil, 0, 1}, {1, "B", "B0", 1, 3}, {1, "R", "R", 3, 4}}}.SVG(),
	} {
		for _, text := range []string{svg, Standalone(svg)} {
			if err := xml.Unmarshal([]byte(text), new(struct {
				XMLName xml.Name `xml:"svg"`
			})); err != nil {
				t.Errorf("%s: %v\n%s", name, err, text)
			}
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "<b>") || !strings.Contains(svg, `role="img"`) {
			t.Errorf("%s: %s", name, svg)
		}
	}
	line := Lines{Series: []Series{{Name: "a", Points: []Point{{1, 1, nan, nan}, {2, 2, nan, nan}}}}}.SVG()
	if n := strings.Count(line, "<circle"); n != 2 {
		t.Errorf("%d marks of two values", n)
	}
}

func TestTicksAndTexts(t *testing.T) {
	if got := ticks(0, 10, 5); len(got) != 6 || got[5] != 10 || math.Signbit(got[0]) {
		t.Errorf("ticks %v", got)
	}
	if got := byteTicks(5<<30, 5); len(got) != 6 || got[1] != 1<<30 {
		t.Errorf("ticks of sizes %v", got)
	}
	for got, want := range map[string]string{
		Short(12345): "12.35 k", Short(0.5): "0.5", Bytes(1536): "1.5 KiB", Bytes(3 << 30): "3 GiB", Seconds(0.0123): "12.3 ms", Seconds(2e-6): "2 µs", Seconds(600): "10 min", Percent(0.125): "12.5 %",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Text and lines of series stand out from the ground of both themes: WCAG asks 4.5 of text, 3 of lines.
func TestContrast(t *testing.T) {
	light, rest, _ := strings.Cut(Style, "@media")
	dark, _, _ := strings.Cut(rest, "svg{")
	for theme, css := range map[string]string{"light": light, "dark": dark} {
		value := func(name string) [3]float64 {
			_, after, ok := strings.Cut(css, "--"+name+":#")
			if !ok {
				t.Fatalf("%s: no --%s", theme, name)
			}
			var c [3]float64
			for i := range c {
				for _, d := range after[2*i : 2*i+2] {
					c[i] = c[i]*16 + float64(strings.IndexRune("0123456789abcdef", d))
				}
			}
			return c
		}
		luminance := func(c [3]float64) float64 {
			sum := 0.0
			for i, share := range []float64{0.2126, 0.7152, 0.0722} {
				x := c[i] / 255
				if x <= 0.03928 {
					x /= 12.92
				} else {
					x = math.Pow((x+0.055)/1.055, 2.4)
				}
				sum += share * x
			}
			return sum
		}
		contrast := func(a, b [3]float64) float64 {
			x, y := luminance(a), luminance(b)
			return (max(x, y) + 0.05) / (min(x, y) + 0.05)
		}
		white := [3]float64{255, 255, 255}
		for name, least := range map[string]float64{"fg": 4.5, "dim": 4.5, "bad": 4.5, "good": 4.5, "warn": 4.5, "c0": 3, "c1": 3, "c2": 3, "c3": 3, "c4": 3, "c5": 3, "c6": 3, "c7": 3} {
			if got := contrast(value(name), value("bg")); got < least {
				t.Errorf("%s: --%s has a contrast of %.2f, want %v", theme, name, got, least)
			}
		}
		for _, name := range []string{"F", "I", "W", "B", "R"} { // white text on ops
			if got := contrast(value(name), white); got < 4.5 {
				t.Errorf("%s: white on --%s has a contrast of %.2f", theme, name, got)
			}
		}
	}
}
