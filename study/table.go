package study

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pipetrain/pipetrain/stats"
)

// Significance levels of a table: of its intervals and of a difference.
const (
	confidence = 0.95
	alpha      = 0.05
)

// Table compares samples of one unit, as benchstat does: a row a case, a column a side, each column
// after the first against the first.
type Table struct {
	Unit  string
	Names []string // of the columns
	Rows  []TableRow
}

// TableRow is one case.
type TableRow struct {
	Case  string
	Cells []TableCell // one a column; N is 0 where the side has none
}

// TableCell is a sample, and how it compares with that of the first column.
type TableCell struct {
	N        int
	Median   float64
	Interval stats.Interval
	Delta    float64 // median / first column's median - 1
	P        float64
	first    int // N of the first column; 0: nothing to compare
	equal    bool
}

// Tables returns a table for each unit, of the sides' cases in the order in which they appear.
// With units given, only of these.
func Tables(sides []*Results, units []string) []Table {
	var all, cases []string
	for _, s := range sides {
		for _, u := range s.units {
			if !slices.Contains(all, u) && (len(units) == 0 || slices.Contains(units, u)) {
				all = append(all, u)
			}
		}
		for _, c := range s.cases {
			if !slices.Contains(cases, c) {
				cases = append(cases, c)
			}
		}
	}
	var tables []Table
	for _, unit := range all {
		t := Table{Unit: unit}
		for _, s := range sides {
			t.Names = append(t.Names, s.Name)
		}
		for _, c := range cases {
			row, any := TableRow{Case: c}, false
			first := sides[0].Sample(c, unit)
			for i, s := range sides {
				v := s.Sample(c, unit)
				cell := TableCell{N: len(v)}
				if len(v) > 0 {
					any = true
					cell.Median, cell.Interval = stats.Median(v), stats.MedianInterval(v, confidence)
					if i > 0 && len(first) > 0 {
						cell.first, cell.P = len(first), stats.UTest(first, v)
						cell.Delta = cell.Median/stats.Median(first) - 1
						cell.equal = slices.Min(v) == slices.Max(v) && slices.Min(first) == slices.Max(first) && v[0] == first[0]
					}
				}
				row.Cells = append(row.Cells, cell)
			}
			if any {
				t.Rows = append(t.Rows, row)
			}
		}
		if len(t.Rows) > 0 {
			tables = append(tables, t)
		}
	}
	return tables
}

// spread prints the interval as the larger share of the median.
func (c TableCell) spread() string {
	switch lo, hi, m := c.Interval.Lo, c.Interval.Hi, c.Median; {
	case c.Interval.Level == 0:
		return "∞"
	case lo*m < 0 || hi*m < 0 || m != 0 && (lo == 0 || hi == 0):
		return "?"
	case m == 0 && (lo != 0 || hi != 0):
		return "?"
	case m == 0:
		return "0%"
	default:
		return fmt.Sprintf("%.0f%%", 100*max(hi/m-1, 1-lo/m))
	}
}

// delta prints the difference from the first column, "~" where it is none.
func (c TableCell) delta(first float64) string {
	switch {
	case c.P > alpha:
		return "~"
	case c.Median == first:
		return "0.00%"
	case first == 0:
		return "?"
	}
	return fmt.Sprintf("%+.2f%%", 100*c.Delta)
}

func (c TableCell) chance() string {
	if c.first == c.N {
		return fmt.Sprintf("p=%0.3f n=%d", c.P, c.N)
	}
	return fmt.Sprintf("p=%0.3f n=%d+%d", c.P, c.first, c.N)
}

// notes of a cell and of its comparison, for footnotes.
func (c TableCell) note() string {
	if c.N > 0 && c.Interval.Level == 0 {
		return "need >= 6 samples for confidence interval at level 0.95"
	}
	return ""
}

func (c TableCell) compareNote() string {
	switch {
	case c.equal:
		return "all samples are equal"
	case c.P > alpha && c.N < 4 && c.first < 4:
		return "need >= 4 samples to detect a difference at alpha level 0.05"
	}
	return ""
}

// otherCases says where a column has other cases than the first.
func (t Table) otherCases(col int) string {
	for _, r := range t.Rows {
		if (r.Cells[0].N > 0) != (r.Cells[col].N > 0) {
			return "benchmark set differs from baseline; geomeans may not be comparable"
		}
	}
	return ""
}

// geomeans returns the geometric mean of each column, and of its ratios to the first; NaN where
// a value is not above 0.
func (t Table) geomeans() (means, ratios []float64) {
	for col := range t.Names {
		var all, ratio []float64
		for _, r := range t.Rows {
			if c := r.Cells[col]; c.N > 0 {
				all = append(all, c.Median)
				if c.first > 0 {
					ratio = append(ratio, 1+c.Delta)
				}
			}
		}
		means, ratios = append(means, stats.Geomean(all)), append(ratios, stats.Geomean(ratio))
	}
	return means, ratios
}

// WriteText prints the table in benchstat's format.
func (t Table) WriteText(w io.Writer) error {
	var notes []string
	foot := func(s string) string {
		if s == "" {
			return ""
		}
		i := slices.Index(notes, s)
		if i < 0 {
			i = len(notes)
			notes = append(notes, s)
		}
		return " " + superscript(i+1)
	}
	// A column is "value ± spread" and, after the first, "delta (p=… n=…)".
	lines := make([][]string, 0, len(t.Rows)+3)
	head, units := []string{""}, []string{""}
	for i, name := range t.Names {
		head = append(head, name)
		unit := t.Unit
		if i > 0 {
			unit += "  vs base"
		}
		units = append(units, unit)
	}
	for _, r := range t.Rows {
		scale := scaleOf(r, t.Unit)
		line := []string{r.Case}
		for i, c := range r.Cells {
			cell := ""
			if c.N > 0 {
				cell = fmt.Sprintf("%s ± %4s%s", scale.format(c.Median), c.spread(), foot(c.note()))
			}
			if i > 0 && c.first > 0 {
				cell += fmt.Sprintf("  %8s (%s)%s", c.delta(r.Cells[0].Median), c.chance(), foot(c.compareNote()))
			}
			line = append(line, cell)
		}
		lines = append(lines, line)
	}
	if len(t.Rows) > 1 {
		line := []string{"geomean"}
		means, ratios := t.geomeans()
		for i, m := range means {
			cell := ""
			if !math.IsNaN(m) {
				cell = scaleFor(m, t.Unit).format(m)
			}
			if i > 0 && !math.IsNaN(ratios[i]) {
				cell += fmt.Sprintf("  %+.2f%%%s", 100*(ratios[i]-1), foot(t.otherCases(i)))
			}
			line = append(line, cell)
		}
		lines = append(lines, line)
	}
	return t.print(w, append([][]string{head, units}, lines...), notes)
}

// print aligns the cells; the two heading lines have bars between the columns.
func (t Table) print(w io.Writer, lines [][]string, notes []string) error {
	width := make([]int, len(t.Names)+1)
	for _, l := range lines {
		for i, c := range l {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for n, l := range lines {
		for i, c := range l {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			switch {
			case i == 0:
				b.WriteString(c + pad)
			case n < 2:
				b.WriteString(" │ " + c + pad)
			default:
				b.WriteString("   " + c + pad)
			}
		}
		if n < 2 {
			b.WriteString(" │")
		}
		b.WriteString("\n")
	}
	for i, note := range notes {
		fmt.Fprintf(&b, "%s %s\n", superscript(i+1), note)
	}
	var out strings.Builder
	for line := range strings.Lines(b.String()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func superscript(n int) string {
	var b strings.Builder
	for _, d := range strconv.Itoa(n) {
		b.WriteRune([]rune("⁰¹²³⁴⁵⁶⁷⁸⁹")[d-'0'])
	}
	return b.String()
}

// WriteCSV prints the table in benchstat's CSV form.
func (t Table) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	names, units := []string{""}, []string{""}
	for i, n := range t.Names {
		names, units = append(names, n, ""), append(units, t.Unit, "CI")
		if i > 0 {
			names, units = append(names, "", ""), append(units, "vs base", "P")
		}
	}
	_ = c.Write(names) // Flush has the first error
	_ = c.Write(units)
	for _, r := range t.Rows {
		line := []string{r.Case}
		for i, x := range r.Cells {
			cells := []string{"", ""}
			if x.N > 0 {
				cells = []string{fmt.Sprint(x.Median), x.spread()}
			}
			if i > 0 {
				more := []string{"", ""}
				if x.first > 0 {
					more = []string{x.delta(r.Cells[0].Median), x.chance()}
				}
				cells = append(cells, more...)
			}
			line = append(line, cells...)
		}
		_ = c.Write(line)
	}
	c.Flush()
	return c.Error()
}
