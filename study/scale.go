package study

import (
	"math"
	"strconv"
	"strings"
)

// scale prints a row's values with one prefix and at least four digits of the smallest.
type scale struct {
	digits int // behind the point
	factor float64
	prefix string
}

func (s scale) format(x float64) string {
	return strconv.FormatFloat(x/s.factor, 'f', s.digits, 64) + s.prefix
}

// scaleOf returns the scale for the medians of a row.
func scaleOf(r TableRow, unit string) scale {
	least := 0.0
	for _, c := range r.Cells {
		if m := math.Abs(c.Median); c.N > 0 && m != 0 && (least == 0 || m < least) {
			least = m
		}
	}
	return scaleFor(least, unit)
}

// scaleFor returns the scale of a value: powers of 1024 for bytes, else of 1000.
func scaleFor(x float64, unit string) scale {
	x = math.Abs(x)
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return scale{3, 1, ""}
	}
	prefixes, base := []string{"T", "G", "M", "k", "", "m", "µ", "n"}, 1000.0
	if top, _, _ := strings.Cut(unit, "/"); top == "B" {
		prefixes, base = []string{"Ti", "Gi", "Mi", "Ki", ""}, 1024
	}
	for i, p := range prefixes {
		factor := math.Pow(base, float64(4-i))
		// The bounds are where printing rounds up to one digit more.
		switch y := x / factor; {
		case y >= 99.995:
			return scale{1, factor, p}
		case y >= 9.9995:
			return scale{2, factor, p}
		case y >= 0.99995:
			return scale{3, factor, p}
		}
	}
	last := len(prefixes) - 1
	factor := math.Pow(base, float64(4-last))
	digits := 3
	for y := x / factor; y < 0.99995 && digits < 10; y *= 10 {
		digits++
	}
	return scale{digits, factor, prefixes[last]}
}
