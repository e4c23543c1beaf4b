package schedule

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// DrawGrid writes a schedule as a grid of unit steps: F, I and W of a micro-batch
// take one column, B two, '.' is an idle step. Where ranks hold several stages, the
// stage stands before the letter.
func DrawGrid(w io.Writer, s *Schedule) error {
	t, err := Simulate(s, Units())
	if err != nil {
		return err
	}
	ranks := t.byRank()
	text := textMicrobatch
	if t.severalStages(ranks) {
		text = textStage
	}
	wide := 2 // columns of a step: the widest op's share and a blank
	for _, e := range t.Events {
		if steps := int(e.End - e.Start); steps > 0 {
			wide = max(wide, (len(drawText(e.Op, 1<<20, text))+steps)/steps+1)
		}
	}
	label := len(strconv.Itoa(t.Ranks - 1))
	for r, events := range ranks {
		var b strings.Builder
		fmt.Fprintf(&b, "rank %*d |", label, r)
		now := 0
		for _, e := range events {
			steps := int(e.End - e.Start)
			if steps == 0 {
				continue
			}
			b.WriteString(strings.Repeat(" ."+strings.Repeat(" ", wide-2), int(e.Start)-now))
			name := drawText(e.Op, 1<<20, text)
			pad := " "
			if steps > 1 {
				pad = "-" // the op goes on
			}
			b.WriteString(" " + name + strings.Repeat(pad, max(0, steps*wide-1-len(name))))
			now = int(e.End)
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}
