package study

import (
	"encoding/json"
	"math"
	"strconv"
)

// Number is a figure that may be unknown: NaN, in JSON null, in CSV an empty cell.
type Number float64

// Unknown is the figure that nobody measured.
var Unknown = Number(math.NaN())

// Known says whether the figure is there.
func (n Number) Known() bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }

// MarshalJSON writes the shortest digits that read back to the same bits.
func (n Number) MarshalJSON() ([]byte, error) {
	if !n.Known() {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', -1, 64), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (n *Number) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*n = Unknown
		return nil
	}
	return json.Unmarshal(b, (*float64)(n))
}

// Text prints the figure for a table cell, empty where unknown.
func (n Number) Text() string {
	if !n.Known() {
		return ""
	}
	if x := float64(n); x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return strconv.FormatFloat(x, 'f', -1, 64) // sizes as sizes
	}
	return strconv.FormatFloat(float64(n), 'g', -1, 64)
}
