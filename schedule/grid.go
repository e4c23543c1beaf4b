package schedule

import (
	"fmt"
	"strings"
)

// mark points at an op of a grid.
type mark struct {
	rank, index int
	note        string
}

// gridAround is how many ops are shown on both sides of what matters.
const gridAround = 3

// grid prints the parts of the programs around the marks, a line for each rank:
//
//	rank 1 |  … 1F0 1F1 [1B0] 1F2 …   <-- HERE: waits for 2B0
func grid(s *Schedule, marks []mark) string {
	type row struct{ label, ops, note string }
	var rows []row
	seen := map[int]bool{}
	wide := 0
	for _, m := range marks {
		if seen[m.rank] {
			continue
		}
		seen[m.rank] = true
		program := s.Programs[m.rank]
		at := map[int]string{}
		for _, other := range marks {
			if other.rank == m.rank {
				at[other.index] = other.note
			}
		}
		var ops, notes []string
		skipped := false
		for i := range program {
			if !near(i, at) {
				if !skipped {
					ops = append(ops, "…")
				}
				skipped = true
				continue
			}
			skipped = false
			text := program[i].String()
			if note, ok := at[i]; ok {
				text = "[" + text + "]"
				if note != "" {
					notes = append(notes, note)
				}
			}
			ops = append(ops, text)
		}
		r := row{label: fmt.Sprintf("rank %d", m.rank), ops: strings.Join(ops, " "), note: strings.Join(notes, "; ")}
		wide = max(wide, len([]rune(r.ops)))
		rows = append(rows, r)
	}
	var b strings.Builder
	for _, r := range rows {
		line := fmt.Sprintf("  %-8s | %s%s  %s", r.label, r.ops, strings.Repeat(" ", wide-len([]rune(r.ops))), r.note)
		b.WriteString(strings.TrimRight(line, " "))
		b.WriteByte('\n')
	}
	return b.String()
}

func near(i int, marked map[int]string) bool {
	for j := range marked {
		if i >= j-gridAround && i <= j+gridAround {
			return true
		}
	}
	return false
}
