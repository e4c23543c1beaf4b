package study

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

// WriteBenchmarks writes the results in Go's benchmark format, for benchstat and its kin: a line a run
// and case, with the figures in the given units (all where none is given).
func (r *Results) WriteBenchmarks(w io.Writer, units []string) error {
	var b strings.Builder
	for _, from := range r.From {
		fmt.Fprintf(&b, "source: %s\n", from)
	}
	if len(units) == 0 {
		units = r.units
	}
	for _, c := range r.cases {
		runs := 0
		for _, u := range units {
			runs = max(runs, len(r.Sample(c, u)))
		}
		for i := range runs {
			fmt.Fprintf(&b, "Benchmark%s 1", benchmarkName(c))
			for _, u := range units {
				if v := r.Sample(c, u); i < len(v) {
					fmt.Fprintf(&b, " %v %s", v[i], u)
				}
			}
			b.WriteString("\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// benchmarkName makes a name of a label: it has no spaces and begins with an upper-case letter or a
// digit, else the line would be none of a benchmark.
func benchmarkName(label string) string {
	name := strings.Join(strings.FieldsFunc(label, unicode.IsSpace), "_")
	if name == "" || unicode.IsLower([]rune(name)[0]) {
		name = "/" + name
	}
	return name
}
