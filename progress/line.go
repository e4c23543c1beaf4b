package progress

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	bar "github.com/schollz/progressbar/v3"
)

// The bar is as wide as the terminal leaves it, within these limits; narrower
// than the lower one there is none.
const (
	minBar = 8
	maxBar = 30
)

// field is a part of the line; when the terminal is narrow, fields with the
// highest rank number go first.
type field struct {
	text string
	drop int
}

// render is the progress line in at most width columns. All of it but the
// title is ASCII, so that bytes are columns whatever the locale; a title that
// is not is left out.
func render(title string, s Step, total int, left time.Duration, width int) string {
	if width <= 0 {
		return ""
	}
	fields := []field{
		{title, 6},
		{fmt.Sprintf("step %d/%d", s.Step, total), 0},
		{"loss " + number(s.Loss), 1},
		{count(s.TokensPerSecond) + " tok/s", 3},
		{"bubble " + bubbles(s), 4},
		{"peak " + Bytes(s.PeakBytes), 5},
		{Duration(left) + " left", 2},
	}
	if left < 0 {
		fields = fields[:6]
	}
	if strings.ContainsFunc(title, func(r rune) bool { return r < ' ' || r > '~' }) {
		title = ""
	}
	if title == "" {
		fields = fields[1:]
	}
	text := join(fields)
	for drop := 6; len(text) > width && drop > 0; drop-- {
		kept := fields[:0:0]
		for _, f := range fields {
			if f.drop != drop {
				kept = append(kept, f)
			}
		}
		fields = kept
		text = join(fields)
	}
	if len(text) > width {
		return text[:width]
	}
	// " 57% |====>   | " needs nine columns around the bar.
	if room := min(width-len(text)-9, maxBar); room >= minBar {
		text = meter(s.Step, total, room) + text
	}
	return text
}

// meter is the percentage and the bar, with a blank behind.
func meter(step, total, width int) string {
	b := bar.NewOptions(max(total, 1),
		bar.OptionSetWriter(io.Discard), bar.OptionSetWidth(width),
		bar.OptionSetPredictTime(false), bar.OptionSetElapsedTime(false),
		bar.OptionSetTheme(bar.Theme{Saucer: "=", SaucerHead: ">", SaucerPadding: " ", BarStart: "|", BarEnd: "|"}))
	_ = b.Set(min(max(step, 0), max(total, 1))) // fails only beyond the maximum
	return strings.TrimLeft(strings.TrimSpace(b.String()), "\r") + " "
}

func join(fields []field) string {
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = f.text
	}
	return strings.Join(texts, "  ")
}

func number(f float64) string {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return fmt.Sprint(f)
	case f != 0 && (math.Abs(f) < 1e-3 || math.Abs(f) >= 1e5):
		return fmt.Sprintf("%.3e", f)
	}
	return fmt.Sprintf("%.4f", f)
}

// bubbles is "27.3%|25.0%", measured | predicted; "?" where not yet known.
func bubbles(s Step) string {
	share := func(f float64) string {
		if f <= 0 || math.IsNaN(f) {
			return "?"
		}
		return fmt.Sprintf("%.1f%%", 100*f)
	}
	return share(s.BubbleMeasured) + "|" + share(s.BubblePredicted)
}

func count(f float64) string {
	switch {
	case f >= 1e6:
		return fmt.Sprintf("%.2fM", f/1e6)
	case f >= 1e4:
		return fmt.Sprintf("%.1fk", f/1e3)
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	}
	return fmt.Sprintf("%.1f", f)
}

// Bytes prints a size with a binary unit: "18.2 MiB".
func Bytes(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n), 0
	for f >= 1023.95 && unit < 5 {
		f /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", f, " KMGTP"[unit])
}

// Duration prints a time as one reads it: "42s", "3m07s", "5h02m", "3d04h".
func Duration(d time.Duration) string {
	s := int64((d + time.Second/2) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
}
