package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/pipetrain/pipetrain/collectives"
)

// Style says how a report is written.
type Style struct {
	Width int  // columns; 0: lines are not broken
	Color bool // ANSI colours for the levels
	All   bool // also what is fine; else only warnings and failures, and a count
}

var colors = [...]string{"\x1b[32m", "\x1b[33m", "\x1b[31;1m"}

const (
	levelColumn = 2
	nameColumn  = 11
	textColumn  = 30
)

// Write renders a report as a table: level, check, what was found, the fix below it.
func (r Report) Write(w io.Writer, s Style) error {
	var b strings.Builder
	group := ""
	for _, f := range r.Findings {
		if f.Level == OK && !s.All {
			continue
		}
		g, name, _ := strings.Cut(f.Check, ": ")
		if g != group {
			fmt.Fprintf(&b, "%s\n", g)
			group = g
		}
		writeFinding(&b, f, name, s)
	}
	fmt.Fprintf(&b, "%s: %s in %.1f s\n", r.Host, count(r.Findings), r.Seconds)
	_, err := io.WriteString(w, b.String())
	return err
}

func writeFinding(b *strings.Builder, f Finding, name string, s Style) {
	level := fmt.Sprintf("%-*s", nameColumn-levelColumn, f.Level)
	if s.Color {
		level = colors[f.Level] + level + "\x1b[0m"
	}
	fmt.Fprintf(b, "%*s%s%-*s", levelColumn, "", level, textColumn-nameColumn, name)
	if utf8.RuneCountInString(name) >= textColumn-nameColumn {
		b.WriteByte(' ')
	}
	writeWrapped(b, f.Found, s.Width)
	if f.Fix != "" {
		fmt.Fprintf(b, "%*s", textColumn, "")
		writeWrapped(b, "→ "+f.Fix, s.Width)
	}
}

// writeWrapped writes text from textColumn on, broken at blanks before width.
func writeWrapped(b *strings.Builder, text string, width int) {
	column := textColumn
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		if i > 0 && width > textColumn+20 && column+1+n > width {
			fmt.Fprintf(b, "\n%*s", textColumn, "")
			column = textColumn
		} else if i > 0 {
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	b.WriteByte('\n')
}

// count says how many findings there are of each level.
func count(findings []Finding) string {
	var n [len(levels)]int
	for _, f := range findings {
		n[f.Level]++
	}
	s := fmt.Sprintf("%d ok", n[OK])
	if n[Warning] > 0 {
		s += fmt.Sprintf(", %d warning", n[Warning])
		if n[Warning] > 1 {
			s += "s"
		}
	}
	if n[Fails] > 0 {
		s += fmt.Sprintf(", %d would fail", n[Fails])
	}
	return s
}

// Gather brings the reports of all ranks of a world to rank 0, in the order of
// ranks; the others get nil. Every rank calls it.
func Gather(ctx context.Context, t collectives.Transport, r Report) ([]Report, error) {
	r.Rank = t.Rank()
	mine, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("doctor: rank %d: %w", t.Rank(), err)
	}
	all, err := collectives.World(t).Gather(ctx, 0, mine)
	if err != nil {
		return nil, fmt.Errorf("doctor: gathering reports: %w", err)
	}
	if t.Rank() != 0 {
		return nil, nil
	}
	reports := make([]Report, len(all))
	for i, b := range all {
		if err := json.Unmarshal(b, &reports[i]); err != nil {
			return nil, fmt.Errorf("doctor: report of rank %d: %w", i, err)
		}
	}
	return reports, nil
}

// WriteAll renders the reports of a world: the first in full, of the others
// only what is bad there and was not said before, with all ranks that say it.
func WriteAll(w io.Writer, reports []Report, s Style) error {
	if len(reports) == 0 {
		return nil
	}
	if err := reports[0].Write(w, s); err != nil {
		return err
	}
	type line struct {
		f     Finding
		ranks []string
	}
	var lines []*line
	index := map[string]*line{}
	for _, f := range reports[0].Findings {
		index[f.Check+f.Found] = &line{}
	}
	for _, r := range reports[1:] {
		for _, f := range r.Findings {
			if f.Level == OK {
				continue
			}
			l := index[f.Check+f.Found]
			if l == nil {
				l = &line{f: f}
				index[f.Check+f.Found] = l
				lines = append(lines, l)
			}
			l.ranks = append(l.ranks, fmt.Sprintf("%d (%s)", r.Rank, r.Host))
		}
	}
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "rank %s\n", strings.Join(l.ranks, ", "))
		_, name, _ := strings.Cut(l.f.Check, ": ")
		writeFinding(&b, l.f, name, s)
	}
	if len(reports) > 1 {
		worst := OK
		for _, r := range reports {
			worst = max(worst, r.Worst)
		}
		fmt.Fprintf(&b, "%d ranks: %s\n", len(reports), worst)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
