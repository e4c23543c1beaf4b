package schedule

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// DrawOptions says how Draw draws.
type DrawOptions struct {
	Width int  // columns of the whole line; 0: 100
	Color bool // ANSI colours, for terminals
}

const (
	minDrawWidth = 24
	maxDrawWidth = 4096
)

var kindColors = map[Kind]string{
	Forward: "44;97", BackwardInput: "46;30", BackwardWeight: "42;30", Backward: "45;97",
	ReduceGrad: "43;30", Update: "43;30",
}

var kindShades = map[Kind]string{ // every other op of a kind, to tell neighbours apart
	Forward: "104;97", BackwardInput: "106;30", BackwardWeight: "102;30", Backward: "105;97",
	ReduceGrad: "103;30", Update: "103;30",
}

// Draw writes a timeline as text: a line for each rank, the whole span scaled to
// the width. An op shows its letter and, where it is wide enough, its
// micro-batch (and stage, where ranks hold several), padded with '-'; '.' is idle. A
// legend with the makespan and the bubble follows. Transfers are not drawn.
func Draw(w io.Writer, t *Timeline, o DrawOptions) error {
	if o.Width == 0 {
		o.Width = 100
	}
	o.Width = max(minDrawWidth, min(o.Width, maxDrawWidth))
	label := max(2, len(strconv.Itoa(max(0, t.Ranks-1))))
	columns := o.Width - len("rank ") - label - len(" ||")
	start, end := t.Span()
	scale := 0.0
	if end > start {
		scale = float64(columns) / (end - start)
	}
	ranks := t.byRank()
	text := t.opText(ranks, scale)
	drawn := map[Kind]bool{}
	var b strings.Builder
	for r, events := range ranks {
		line := drawLine(events, columns, start, scale, text)
		fmt.Fprintf(&b, "rank %*d |", label, r)
		writeLine(&b, line, o.Color)
		b.WriteString("|\n")
		for _, e := range events {
			drawn[e.Op.Kind] = true
		}
	}
	b.WriteString(legend(drawn, o.Color))
	busy := 0.0
	for _, r := range t.PerRank() {
		busy += r.Busy
	}
	fmt.Fprintf(&b, "makespan %s, bubble %.1f %% = 1 - busy %s / (%d ranks x makespan); within ranks %.1f %%\n",
		figure(end-start), 100*t.Bubble(), figure(busy), t.Ranks, 100*t.InnerBubble())
	_, err := io.WriteString(w, b.String())
	return err
}

// figure prints a time with four digits.
func figure(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }

// severalStages says whether some rank computes more than one stage.
func (t *Timeline) severalStages(ranks [][]Event) bool {
	for _, events := range ranks {
		stage := -1
		for _, e := range events {
			if !e.Op.Kind.IsCompute() {
				continue
			}
			if stage >= 0 && e.Op.Stage != stage {
				return true
			}
			stage = e.Op.Stage
		}
	}
	return false
}

// opText says how much of an op's text is drawn.
type opText uint8

const (
	textLetter     opText = iota // F
	textMicrobatch               // F0
	textStage                    // 2F0, where ranks compute several stages
)

// opText returns the text to draw at scale columns a time unit: letters only, when ops are
// so narrow that numbers would show for a few of them.
func (t *Timeline) opText(ranks [][]Event, scale float64) opText {
	busy, n := 0.0, 0
	for _, e := range t.Events {
		if e.Op.Kind.IsCompute() {
			busy += e.End - e.Start
			n++
		}
	}
	text, least := textMicrobatch, 2.5
	if t.severalStages(ranks) {
		text, least = textStage, 3.5
	}
	if n > 0 && busy*scale/float64(n) < least {
		return textLetter
	}
	return text
}

// drawCell is one character of a line: text of an op, what pads it, or idle.
type drawCell struct {
	ch         byte
	kind       Kind // 0: idle
	shade, pad bool
}

// drawLine scales one rank's events to columns. An op owns the columns whose middle
// it covers; one too short for any takes over the idle column it lies in.
func drawLine(events []Event, columns int, start, scale float64, detail opText) []drawCell {
	line := make([]drawCell, columns)
	for i := range line {
		line[i].ch = '.'
	}
	counts := map[Kind]int{}
	for _, e := range events {
		if !e.Op.Kind.IsCompute() && e.Op.Kind != ReduceGrad && e.Op.Kind != Update || e.End <= e.Start {
			continue
		}
		counts[e.Op.Kind]++
		from, to := int((e.Start-start)*scale+0.5), int((e.End-start)*scale+0.5)
		from, to = max(0, min(from, columns)), max(0, min(to, columns))
		if from == to {
			at := min(int((e.Start-start)*scale), columns-1)
			if line[at].kind != 0 {
				continue
			}
			from, to = at, at+1
		}
		text := drawText(e.Op, to-from, detail)
		for i := from; i < to; i++ {
			line[i] = drawCell{kind: e.Op.Kind, shade: counts[e.Op.Kind]%2 == 0, ch: '-', pad: true}
			if i-from < len(text) {
				line[i].ch, line[i].pad = text[i-from], false
			}
		}
	}
	return line
}

// drawText returns the longest text of op that fits: "2W0-3", "W0-3", "W0" or "W".
func drawText(o Op, width int, detail opText) string {
	letter := o.Kind.String()[:1]
	mbs := strconv.Itoa(o.First)
	if o.Last != o.First {
		mbs += "-" + strconv.Itoa(o.Last)
	}
	texts := []string{letter + mbs, letter}
	if detail == textStage {
		texts = []string{strconv.Itoa(o.Stage) + letter + mbs, letter + mbs, letter}
	}
	if !o.Kind.IsCompute() || detail == textLetter {
		texts = []string{letter}
	}
	for _, text := range texts {
		if len(text) <= width {
			return text
		}
	}
	return letter
}

func writeLine(b *strings.Builder, line []drawCell, color bool) {
	last := ""
	for _, c := range line {
		if color {
			code := ""
			if c.kind != 0 {
				code = kindColors[c.kind]
				if c.shade {
					code = kindShades[c.kind]
				}
			}
			if code != last {
				if code == "" {
					b.WriteString("\x1b[0m")
				} else {
					b.WriteString("\x1b[0;" + code + "m")
				}
				last = code
			}
			if c.pad {
				c.ch = ' '
			}
		}
		b.WriteByte(c.ch)
	}
	if last != "" {
		b.WriteString("\x1b[0m")
	}
}

func legend(drawn map[Kind]bool, color bool) string {
	names := []struct {
		kind Kind
		text string
	}{
		{Forward, "F forward"}, {BackwardInput, "I backward-p1"}, {BackwardWeight, "W backward-p2"},
		{Backward, "B backward"}, {ReduceGrad, "R reduction"}, {Update, "U update"},
	}
	parts := []string{}
	for _, n := range names {
		if !drawn[n.kind] {
			continue
		}
		text := n.text
		if color {
			text = "\x1b[0;" + kindColors[n.kind] + "m" + text[:1] + "\x1b[0m" + text[1:]
		}
		parts = append(parts, text)
	}
	return strings.Join(append(parts, ". idle"), "   ") + "\n"
}
