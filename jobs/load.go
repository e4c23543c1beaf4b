package jobs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// maxFileBytes is far above any job, far below what a file named by mistake has.
const maxFileBytes = 256 << 10

// Load reads, completes and checks the job file at path. Each of sets is
// "key=value" and overrides the file. When anything is wrong the error is an
// *MistakesError with every mistake found; nothing outside the job is touched.
//
// Paths in the file are relative to the file's folder, those in sets to the
// working directory; in the Spec they are absolute.
func Load(path string, sets []string) (*Spec, error) { return load(path, sets, maxOps) }

// LoadToPlan is Load for a job that is planned and not run: its step may have more ops.
func LoadToPlan(path string, sets []string) (*Spec, error) { return load(path, sets, maxPlannedOps) }

func load(path string, sets []string, ops int) (*Spec, error) {
	text, wrong := readJob(path)
	if wrong != nil {
		return nil, &MistakesError{List: []*Error{wrong}}
	}
	return parseWithin(path, text, sets, filepath.Dir(path), ops)
}

// readJob returns the file's bytes, or what keeps it from being read as a job.
func readJob(path string) ([]byte, *Error) {
	fail := func(what, right string) ([]byte, *Error) {
		return nil, &Error{File: path, What: what, Right: right}
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fail("no such file", "give the path of a job file, e.g. jobs/examples/demo.toml")
	case err != nil:
		return fail("cannot be read: "+reason(err), "")
	case info.IsDir():
		return fail("is a folder", "give a job file in it, e.g. "+filepath.Join(path, "job.toml"))
	case !info.Mode().IsRegular():
		// Every rank may read it again, which a pipe does not allow.
		return fail("is no regular file", "save the job in a file")
	case info.Size() > maxFileBytes:
		return fail(fmt.Sprintf("has %d bytes, more than a job file may have", info.Size()), fmt.Sprintf("at most %d; is it the data?", maxFileBytes))
	}
	f, err := os.Open(path)
	if err != nil {
		return fail("cannot be read: "+reason(err), "")
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return fail("cannot be read: "+reason(err), "")
	}
	return text, nil
}

// reason strips operation and path, which the message has already, off an error.
func reason(err error) string {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// Parse is Load of a text. name stands in messages and, without folder and
// ".toml", is the default of the key name; dir is the folder that paths in the
// text are relative to.
func Parse(name string, text []byte, sets []string, dir string) (*Spec, error) {
	return parseWithin(name, text, sets, dir, maxOps)
}

func parseWithin(name string, text []byte, sets []string, dir string, ops int) (*Spec, error) {
	l := &loader{
		ops:   ops,
		file:  name,
		dir:   dir,
		spec:  Default(),
		given: map[string]origin{},
		bad:   map[string]bool{},
		meant: map[string]bool{},
	}
	tree, wrong := parseTOML(name, text)
	if wrong != nil {
		return nil, &MistakesError{List: []*Error{wrong}}
	}
	l.lines = positions(string(text))
	overrides := l.readSets(sets)
	l.decodeTree(tree, overrides)
	l.decodeSets(overrides)
	l.complete()
	l.validate()
	if len(l.errs) > 0 {
		l.sortErrors()
		return nil, &MistakesError{List: l.errs}
	}
	return &l.spec, nil
}

// loader collects a Spec and the mistakes in it.
type loader struct {
	file, dir string
	lines     map[string]int // of keys and table headers
	spec      Spec
	given     map[string]origin // keys that were given, by file or --set
	bad       map[string]bool   // keys with a mistake: what follows from them is not judged
	meant     map[string]bool   // keys that an unknown key was probably meant to be
	errs      []*Error
	ops       int // that a step may have
}

// origin says where a key's value came from.
type origin struct {
	line int
	set  string // the --set argument, else empty
}

// mistake notes that a key's value is wrong. Its place is the key's --set or
// line; for a key that was not given, the line of its table.
func (l *loader) mistake(key, what, right, suggest string) {
	l.bad[key] = true
	l.report(l.origin(key), key, what, right, suggest)
}

func (l *loader) report(o origin, key, what, right, suggest string) {
	l.errs = append(l.errs, &Error{File: l.file, Line: o.line, Set: o.set, Key: key, What: what, Right: right, Suggest: suggest})
}

func (l *loader) origin(key string) origin {
	if o, ok := l.given[key]; ok {
		return o
	}
	if line, ok := l.lines[key]; ok {
		return origin{line: line}
	}
	if table, _, ok := strings.Cut(key, "."); ok {
		return origin{line: l.lines[table]}
	}
	return origin{}
}

// ok says whether none of the keys has a mistake so far.
func (l *loader) ok(keys ...string) bool {
	for _, k := range keys {
		if l.bad[k] {
			return false
		}
	}
	return true
}

// sortErrors puts the mistakes in the order of the file, then those without a
// line, then those of --set; mistakes of one place stay as found.
func (l *loader) sortErrors() {
	place := func(e *Error) int {
		switch {
		case e.Set != "":
			return 1<<31 - 1
		case e.Line == 0:
			return 1<<31 - 2
		}
		return e.Line
	}
	sort.SliceStable(l.errs, func(i, j int) bool { return place(l.errs[i]) < place(l.errs[j]) })
}

// parseTOML returns the text as a tree of tables, or its first syntax error.
func parseTOML(name string, text []byte) (map[string]any, *Error) {
	switch {
	case len(text) > maxFileBytes:
		return nil, &Error{File: name, What: fmt.Sprintf("has more than the %d bytes a job file may have", maxFileBytes), Right: "is it the data?"}
	case strings.TrimSpace(strings.TrimPrefix(string(text), "\ufeff")) == "":
		return nil, &Error{File: name, What: "is empty", Right: "docs/job-file.md lists the keys, jobs/examples has jobs to start from"}
	}
	if i := notText(text); i >= 0 {
		return nil, &Error{File: name, What: fmt.Sprintf("is no text: byte 0x%02x at offset %d", text[i], i), Right: "a job file is TOML, UTF-8"}
	}
	if line := tooDeep(string(text)); line > 0 {
		return nil, &Error{File: name, Line: line, What: fmt.Sprintf("more than %d lists, tables or parts of a key within each other", maxNesting), Right: "no key of a job needs more than two"}
	}
	var tree map[string]any
	if _, err := toml.Decode(string(text), &tree); err != nil {
		return nil, syntaxError(name, string(text), err)
	}
	return tree, nil
}

// notText returns the offset of the first byte that no text has, else -1.
func notText(text []byte) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 || r == 0 {
			return i
		}
		i += n
	}
	return -1
}

// tooDeep returns the line on which brackets or dotted keys nest deeper than any
// job's, else 0. The TOML library recurses on brackets, and a stack that
// overflows cannot be caught; a key of thousands of parts keeps it busy for minutes.
func tooDeep(text string) int {
	brackets := 0
	for n, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		dots, comment := 0, false
		for _, c := range line {
			switch c {
			case '#':
				comment = true
			case '.':
				if dots++; dots > maxNesting && !comment {
					return n + 1
				}
			case '[', '{':
				if brackets++; brackets > maxNesting {
					return n + 1
				}
			case ']', '}':
				brackets = max(brackets-1, 0)
			}
		}
	}
	return 0
}

// syntaxError tells line and reason, with the lines around it.
func syntaxError(name, text string, err error) *Error {
	e := &Error{File: name, What: strings.TrimPrefix(err.Error(), "toml: ")}
	var p toml.ParseError
	if !errors.As(err, &p) {
		return e
	}
	e.Line, e.What = p.Position.Line, "not TOML: "+p.Message
	// An end of line where more was expected belongs to the line it ends.
	if at := p.Position.Start; at >= 0 && at <= len(text) && strings.HasSuffix(p.Message, `'\n' instead`) {
		e.Line = 1 + strings.Count(strings.TrimSuffix(text[:at], "\n"), "\n")
	}
	lines := strings.Split(text, "\n")
	if e.Line < 1 || e.Line > len(lines) {
		return e
	}
	var b strings.Builder
	for n := max(1, e.Line-2); n <= e.Line; n++ {
		s := []rune(clean(strings.ReplaceAll(strings.TrimRight(lines[n-1], "\r"), "\t", "    ")))
		if len(s) > 100 {
			s = append(s[:100], '…')
		}
		mark := "  "
		if n == e.Line {
			mark = "> "
		}
		fmt.Fprintf(&b, "\n  %s%3d | %s", mark, n, string(s))
	}
	e.Excerpt = b.String()
	return e
}
