package jobs

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Error is one mistake in a job: where it is, what is wrong, what would be right.
type Error struct {
	File    string // as given
	Line    int    // from 1; 0: no line (a missing key without its table, or a --set)
	Set     string // the --set argument the mistake came from, else empty
	Key     string // "model.heads"; empty for the file as a whole
	What    string // what is wrong
	Right   string // what would be right; may be empty
	Suggest string // a name close to the one that was written; may be empty
	Excerpt string // the lines around a syntax error, may be empty
}

// Error prints the mistake on one line (a syntax error: the excerpt below it):
//
//	job.toml:12: model.heads: 7 does not divide model.dim = 512 (4 or 8 would)
//	--set model.head=8: model.head: no such key (did you mean "model.heads"?)
func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case e.Set != "":
		fmt.Fprintf(&b, "--set %s: ", e.Set)
	case e.Line > 0:
		fmt.Fprintf(&b, "%s:%d: ", e.File, e.Line)
	default:
		fmt.Fprintf(&b, "%s: ", e.File)
	}
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.What)
	var more []string
	if e.Right != "" {
		more = append(more, e.Right)
	}
	if e.Suggest != "" {
		more = append(more, fmt.Sprintf("did you mean %q?", e.Suggest))
	}
	if len(more) > 0 {
		b.WriteString(" (" + strings.Join(more, "; ") + ")")
	}
	return clean(b.String()) + e.Excerpt
}

// MistakesError is every mistake of a job, in the order of the file, those of --set last.
type MistakesError struct {
	List []*Error
}

// Error prints a mistake a line.
func (e *MistakesError) Error() string {
	lines := make([]string, len(e.List))
	for i, x := range e.List {
		lines[i] = x.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes the single mistakes visible to errors.As.
func (e *MistakesError) Unwrap() []error {
	list := make([]error, len(e.List))
	for i, x := range e.List {
		list[i] = x
	}
	return list
}

// clean keeps a message on one line and free of what could steer a terminal:
// the text quoted in it comes from the file.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) || !unicode.IsPrint(r) {
			return '\ufffd'
		}
		return r
	}, s)
}

// showPath prints a path whole: its end is what tells it from others.
func showPath(path string) string { return strconv.Quote(path) }

// show prints a value as the file would have it, shortened.
func show(v any) string {
	switch x := v.(type) {
	case string:
		if utf8.RuneCountInString(x) > 40 {
			x = string([]rune(x)[:40]) + "…"
		}
		return strconv.Quote(x)
	case float64:
		return formatFloat(x)
	case map[string]any:
		return "a table"
	case []any, []map[string]any:
		return "a list"
	}
	return fmt.Sprint(v)
}
