package schedule

import (
	"fmt"
	"strconv"
	"strings"
)

// TextVersion is the version of the schedule file that Format writes. Parse reads version 1 too,
// whose lowered programs have no WAIT but a "window" that nothing kept to: they are paced anew.
const TextVersion = 2

const textMagic = "pipetrain-schedule"

// Format returns s as a schedule file, which describes itself:
//
//	pipetrain-schedule 2
//	name 1f1b
//	ranks 2
//	stages 2
//	microbatches 2
//	place 0 1
//	rank 0: 0F0 0F1 0B0 0B1
//	rank 1: 1F0 1B0 1F1 1B1
//
// "place" gives the rank of each stage, one line for each direction;
// "directions" (only with several) the direction of each micro-batch;
// "async" the micro-batches of an update and the delay of its version; "lowered"
// says that the programs have their transfers, waits and reductions. A '#' begins a comment.
func Format(s *Schedule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d\n", textMagic, TextVersion)
	if s.Name != "" {
		fmt.Fprintf(&b, "name %s\n", s.Name)
	}
	fmt.Fprintf(&b, "ranks %d\nstages %d\nmicrobatches %d\n", s.Ranks, s.Stages, s.Microbatches)
	for _, place := range s.Place {
		b.WriteString("place")
		for _, r := range place {
			b.WriteByte(' ')
			b.WriteString(strconv.Itoa(r))
		}
		b.WriteByte('\n')
	}
	if s.Direction != nil {
		b.WriteString("directions")
		for _, d := range s.Direction {
			b.WriteByte(' ')
			b.WriteString(strconv.Itoa(int(d)))
		}
		b.WriteByte('\n')
	}
	if s.Async != nil {
		fmt.Fprintf(&b, "async every %d delay %d\n", s.Async.Every, s.Async.Delay)
	}
	if s.Lowered {
		b.WriteString("lowered\n")
	}
	var text []byte
	for r, program := range s.Programs {
		fmt.Fprintf(&b, "rank %d:", r)
		for _, o := range program {
			text = o.AppendText(append(text[:0], ' '))
			b.Write(text)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// ParseError says which line of a schedule file is wrong, and why.
type ParseError struct {
	Line   int
	Reason string
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("schedule file: line %d: %s", e.Line, e.Reason)
}

// Parse reads what Format writes. It checks the file's form, not whether the
// schedule can be performed; that is Check's.
func Parse(text string) (*Schedule, error) {
	p := &parser{s: &Schedule{}, seen: map[string]int{}}
	for line := range strings.Lines(text) {
		p.line++
		if i := strings.IndexByte(line, '#'); i >= 0 {
			line = line[:i]
		}
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if why := p.parseLine(line); why != "" {
			return nil, &ParseError{p.line, why}
		}
	}
	if why := p.finish(); why != "" {
		return nil, &ParseError{p.line, why}
	}
	return p.s, nil
}

type parser struct {
	s       *Schedule
	version int
	line    int
	seen    map[string]int // keyword → line
}

func (p *parser) parseLine(line string) string {
	key, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	if len(p.seen) == 0 {
		if key != textMagic {
			return fmt.Sprintf("the first line must be %q", textMagic+" "+strconv.Itoa(TextVersion))
		}
		var why string
		if p.version, why = parseCount(rest, TextVersion); why != "" {
			return fmt.Sprintf("version %q is not known; this program reads versions 1 to %d", clip(rest), TextVersion)
		}
		p.seen[key] = p.line
		return ""
	}
	if before, ok := p.seen[key]; ok && key != "place" && key != "rank" {
		return fmt.Sprintf("%s was given on line %d", clip(key), before)
	}
	p.seen[key] = p.line
	s, why := p.s, ""
	switch key {
	case "name":
		if rest == "" || strings.ContainsAny(rest, " \t") {
			return "a name is one word"
		}
		s.Name = rest
	case "ranks":
		s.Ranks, why = parseCount(rest, MaxRanks)
	case "stages":
		s.Stages, why = parseCount(rest, MaxIndex+1)
	case "microbatches":
		s.Microbatches, why = parseCount(rest, MaxMicrobatches)
	case "place":
		var place []int
		if place, why = parseList(rest, MaxRanks-1); why == "" {
			s.Place = append(s.Place, place)
		}
	case "directions":
		var list []int
		list, why = parseList(rest, 255)
		s.Direction = make([]uint8, len(list))
		for i, d := range list {
			s.Direction[i] = uint8(d)
		}
	case "async":
		s.Async, why = parseAsync(rest)
	case "lowered":
		if rest != "" {
			return "lowered stands alone"
		}
		s.Lowered = true
	case "rank":
		why = p.parseRank(rest)
	default:
		if key == "window" && p.version == 1 {
			return ""
		}
		return fmt.Sprintf("unknown word %q; known: name ranks stages microbatches place directions async lowered rank", clip(key))
	}
	return why
}

func (p *parser) parseRank(rest string) string {
	number, ops, ok := strings.Cut(rest, ":")
	if !ok {
		return `want "rank 0: " and the ops`
	}
	if r, err := strconv.Atoi(number); err != nil || r != len(p.s.Programs) {
		return fmt.Sprintf("rank %q: ranks come in order, this is number %d", clip(number), len(p.s.Programs))
	}
	program := []Op{}
	for i, text := range strings.Fields(ops) {
		o, err := ParseOp(text)
		if err != nil {
			return fmt.Sprintf("rank %d: op %d: %v", len(p.s.Programs), i, err)
		}
		program = append(program, o)
	}
	p.s.Programs = append(p.s.Programs, program)
	return ""
}

func (p *parser) finish() string {
	s := p.s
	if len(p.seen) == 0 {
		return "the file is empty"
	}
	for _, key := range []string{"ranks", "stages", "microbatches", "place"} {
		if p.seen[key] == 0 {
			return key + " is missing"
		}
	}
	if len(s.Programs) != s.Ranks {
		return fmt.Sprintf("programs of %d ranks instead of %d", len(s.Programs), s.Ranks)
	}
	if err := s.update(p.version); err != nil {
		return err.Error()
	}
	return ""
}

// update brings a schedule of an older version of the file to this one's.
func (s *Schedule) update(version int) error {
	if version > 1 || !s.Lowered {
		return nil
	}
	paced, err := Pace(s)
	if err == nil {
		*s = *paced
	}
	return err
}

func parseCount(text string, most int) (int, string) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most || strconv.Itoa(n) != text {
		return 0, fmt.Sprintf("want a number from 1 to %d, not %q", most, clip(text))
	}
	return n, ""
}

func parseList(text string, most int) ([]int, string) {
	var list []int
	for _, field := range strings.Fields(text) {
		n, rest, why := parseIndex(field)
		if why != "" || rest != "" || n > most {
			return nil, fmt.Sprintf("want numbers from 0 to %d, not %q", most, clip(field))
		}
		list = append(list, n)
	}
	if list == nil {
		return nil, "the list is empty"
	}
	return list, ""
}

func parseAsync(text string) (*Async, string) {
	fields := strings.Fields(text)
	const want = `want "async every N delay N", with delay -1 for the newest version`
	if len(fields) != 4 || fields[0] != "every" || fields[2] != "delay" {
		return nil, want
	}
	every, err := strconv.Atoi(fields[1])
	delay, err2 := strconv.Atoi(fields[3])
	if err != nil || err2 != nil || every < 1 || delay < -1 {
		return nil, want
	}
	return &Async{Every: every, Delay: delay}, ""
}

func clip(text string) string {
	if len(text) > 40 {
		return text[:40] + "…"
	}
	return text
}
