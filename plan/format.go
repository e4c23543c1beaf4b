package plan

import (
	"fmt"
	"math"
	"strconv"
)

// formatTime prints a time with four digits and its unit.
func formatTime(x float64, unit string) string {
	if unit != "s" {
		return strconv.FormatFloat(x, 'g', 5, 64)
	}
	switch a := math.Abs(x); {
	case a == 0:
		return "0"
	case a < 1e-3:
		return fmt.Sprintf("%.4g µs", x*1e6)
	case a < 1:
		return fmt.Sprintf("%.4g ms", x*1e3)
	}
	return fmt.Sprintf("%.4g s", x)
}

// formatBytes prints a size with its binary unit.
func formatBytes(n int64) string {
	x := float64(n)
	for _, u := range []string{"B", "KiB", "MiB"} {
		if x < 1024 {
			return fmt.Sprintf("%.4g %s", x, u)
		}
		x /= 1024
	}
	return fmt.Sprintf("%.4g GiB", x)
}
