package jobs

import (
	"strconv"
	"strings"
)

// positions finds the line of every key and table header of a TOML text, by
// dotted name. The TOML library reports lines only for syntax errors, and a
// mistake in a job needs one. The text has already been parsed, so it is valid
// TOML; on anything unexpected the scan skips to the next line, and never fails.
func positions(text string) map[string]int {
	s := &scanner{text: text, line: 1, at: map[string]int{}}
	s.document()
	return s.at
}

// Position is a key or a table's header with its line, from 1.
type Position struct {
	Name   string
	Line   int
	Header bool
}

// Positions returns every key and header of a valid TOML text in the order of the file; keys of more
// parts than a job's are left out. Several tables of one name, [[axis]], appear one after the other.
func Positions(text string) []Position {
	s := &scanner{text: text, line: 1, at: map[string]int{}, keep: true}
	s.document()
	return s.all
}

type scanner struct {
	text string
	i    int
	line int
	at   map[string]int
	keep bool // all of them
	all  []Position
}

// maxNesting bounds the scan's recursion in arrays and inline tables.
const maxNesting = 100

// maxParts is one more than any key of a job has: a longer one is unknown by its
// first parts, and a hostile one would fill the memory with its prefixes.
const maxParts = 3

func (s *scanner) document() {
	var table []string
	for s.i < len(s.text) {
		s.blank(true)
		switch c := s.peek(); {
		case c == 0 && s.i >= len(s.text):
			return
		case c == '[':
			line := s.line
			for s.peek() == '[' {
				s.next()
			}
			table = s.key()
			s.note(table, line, true)
			s.restOfLine()
		default:
			s.pair(table, 0)
			s.restOfLine()
		}
	}
}

// pair reads key = value and notes the key, and those of an inline table in it.
func (s *scanner) pair(table []string, depth int) {
	line := s.line
	key := append(append([]string(nil), table...), s.key()...)
	s.blank(false)
	if s.peek() != '=' {
		return
	}
	s.next()
	// A dotted key makes its tables: a mistake may be about one of those.
	for n := len(table) + 1; n <= min(len(key), maxParts); n++ {
		s.note(key[:n], line, false)
	}
	s.value(key, depth)
}

// value skips a value; key is nil inside an array.
func (s *scanner) value(key []string, depth int) {
	s.blank(false)
	switch s.peek() {
	case '"', '\'':
		s.quoted()
	case '[':
		s.next()
		for depth < maxNesting {
			s.blank(true)
			switch s.peek() {
			case ']':
				s.next()
				return
			case ',':
				s.next()
			case 0:
				return
			default:
				from := s.i
				s.value(nil, depth+1)
				if s.i == from {
					return
				}
			}
		}
	case '{':
		s.next()
		for depth < maxNesting {
			s.blank(true)
			switch s.peek() {
			case '}':
				s.next()
				return
			case ',':
				s.next()
			case 0:
				return
			default:
				from := s.i
				if key == nil {
					s.pairSkip(depth + 1)
				} else {
					s.pair(key, depth+1)
				}
				if s.i == from {
					return
				}
			}
		}
	default:
		for s.i < len(s.text) && !strings.ContainsRune(",]}#\r\n", rune(s.text[s.i])) {
			s.i++
		}
	}
}

// pairSkip passes over key = value in an inline table within an array: no key
// of a job is there.
func (s *scanner) pairSkip(depth int) {
	s.key()
	s.blank(false)
	if s.peek() == '=' {
		s.next()
		s.value(nil, depth)
	}
}

// key reads a dotted key of bare and quoted parts.
func (s *scanner) key() []string {
	var parts []string
	for {
		s.blank(false)
		from := s.i
		switch c := s.peek(); {
		case c == '"' || c == '\'':
			parts = append(parts, s.quoted())
		default:
			for isBare(s.peek()) {
				s.i++
			}
			if s.i == from {
				return parts
			}
			parts = append(parts, s.text[from:s.i])
		}
		s.blank(false)
		if s.peek() != '.' {
			return parts
		}
		s.next()
	}
}

// quoted reads a text of any of TOML's four forms and returns what it means
// (escapes resolved where Go knows them), counting lines.
func (s *scanner) quoted() string {
	q := s.text[s.i : s.i+1]
	if strings.HasPrefix(s.text[s.i:], q+q+q) {
		q = q + q + q
	}
	s.i += len(q)
	from := s.i
	for s.i < len(s.text) {
		switch {
		case q[0] == '"' && s.text[s.i] == '\\':
			s.next()
			if s.i < len(s.text) {
				s.next()
			}
		case strings.HasPrefix(s.text[s.i:], q):
			body := s.text[from:s.i]
			s.i += len(q)
			// Up to two quotes may stand before the three that close.
			for len(q) == 3 && s.i < len(s.text) && s.text[s.i] == q[0] {
				s.i++
			}
			if q == `"` {
				if plain, err := strconv.Unquote(`"` + body + `"`); err == nil {
					return plain
				}
			}
			return body
		case len(q) == 1 && s.text[s.i] == '\n':
			return s.text[from:s.i]
		default:
			s.next()
		}
	}
	return s.text[min(from, len(s.text)):]
}

// blank skips spaces and tabs; with lines set, also comments and ends of lines.
func (s *scanner) blank(lines bool) {
	for s.i < len(s.text) {
		switch c := s.text[s.i]; {
		case c == ' ' || c == '\t':
			s.i++
		case lines && (c == '\n' || c == '\r'):
			s.next()
		case lines && c == '#':
			s.restOfLine()
		case s.i == 0 && strings.HasPrefix(s.text, "\ufeff"):
			s.i = len("\ufeff")
		default:
			return
		}
	}
}

func (s *scanner) restOfLine() {
	for s.i < len(s.text) {
		if s.text[s.i] == '\n' {
			s.next()
			return
		}
		s.i++
	}
}

func (s *scanner) note(key []string, line int, header bool) {
	if len(key) > maxParts {
		return
	}
	name := joinKey(key)
	if s.keep {
		s.all = append(s.all, Position{name, line, header})
	}
	if _, seen := s.at[name]; !seen && name != "" {
		s.at[name] = line
	}
}

func (s *scanner) next() {
	if s.text[s.i] == '\n' {
		s.line++
	}
	s.i++
}

// peek returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	if s.i >= len(s.text) {
		return 0
	}
	return s.text[s.i]
}

func isBare(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// joinKey prints a key's parts with dots, quoting those that are not bare.
func joinKey(parts []string) string {
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = p
		if p == "" || strings.IndexFunc(p, func(r rune) bool { return r > 127 || !isBare(byte(r)) }) >= 0 {
			out[i] = strconv.Quote(p)
		}
	}
	return strings.Join(out, ".")
}
