package jobs

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// byteUnits, longest names first: "GiB" ends with "B" too.
var byteUnits = []struct {
	name string
	size float64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1},
}

// parseBytes reads a size: a whole number of bytes, or a text with a unit. The
// second result says what is wrong, empty when nothing is.
func parseBytes(v any) (int64, string) {
	var n float64
	switch x := v.(type) {
	case int64:
		if x < 0 {
			return 0, "is negative: " + show(x)
		}
		return x, ""
	case float64:
		n = x
	case string:
		text, unit := strings.TrimSpace(x), 1.0
		if text == "" {
			return 0, ""
		}
		for _, u := range byteUnits {
			if rest, ok := strings.CutSuffix(text, u.name); ok {
				text, unit = strings.TrimSpace(rest), u.size
				break
			}
		}
		if whole, err := strconv.ParseInt(text, 10, 64); err == nil && unit == 1 && whole >= 0 {
			return whole, ""
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, "is no size: " + show(x)
		}
		n = f * unit
	default:
		return 0, "is " + kindOf(v) + ", not a size"
	}
	switch {
	case math.IsNaN(n) || n < 0:
		return 0, "is no size: " + show(v)
	case n >= 1<<62:
		return 0, "is more memory than any machine has: " + show(v)
	case n != math.Trunc(n):
		return 0, "is no whole number of bytes: " + show(v)
	}
	return int64(n), ""
}

// String prints a size as the job file has it, exactly: "70GiB", "1000", and
// "" for no limit.
func (b Bytes) String() string {
	if b == 0 {
		return ""
	}
	for _, u := range byteUnits[:4] {
		if size := Bytes(u.size); b%size == 0 {
			return fmt.Sprintf("%d%s", b/size, u.name)
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// String prints the number, or "all".
func (c Concat) String() string {
	if c == 0 {
		return "all"
	}
	return strconv.Itoa(int(c))
}

// parseDuration reads a time: text with units, or a number of seconds.
func parseDuration(v any) (time.Duration, string) {
	switch x := v.(type) {
	case int64:
		v = float64(x)
	case string:
		if d, err := time.ParseDuration(x); err == nil {
			return d, ""
		}
		f, err := strconv.ParseFloat(x, 64)
		if err != nil {
			return 0, "is no time: " + show(x)
		}
		v = f
	}
	s, ok := v.(float64)
	switch {
	case !ok:
		return 0, "is " + kindOf(v) + ", not a time"
	case math.IsNaN(s) || math.Abs(s) > 1e9:
		return 0, "is no time a run can wait: " + show(s) + " s"
	}
	return time.Duration(s * float64(time.Second)), ""
}

// formatFloat prints a number shortly and exactly.
func formatFloat(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}
