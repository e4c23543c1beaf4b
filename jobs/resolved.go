package jobs

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Resolved returns the job as TOML with every key written, defaults and all.
// It loads back to the same Spec (as long as the data file is still there).
func (s *Spec) Resolved() []byte {
	var b bytes.Buffer
	c := *s
	for _, t := range tables {
		if t.Name != "" {
			fmt.Fprintf(&b, "\n[%s]\n", t.Name)
		}
		for i := range keyList {
			if k := &keyList[i]; k.table() == t.Name && k.of(s.Model.Kind) {
				fmt.Fprintf(&b, "%s = %s\n", k.leaf(), tomlValue(field(&c, k.Name).Interface()))
			}
		}
	}
	return b.Bytes()
}

// tomlValue writes a value of a Spec's field.
func tomlValue(v any) string {
	switch x := v.(type) {
	case string:
		return tomlString(x)
	case float64:
		f := strconv.FormatFloat(x, 'g', -1, 64)
		if !strings.ContainsAny(f, ".e") {
			f += ".0"
		}
		return f
	case Bytes:
		return tomlString(x.String())
	case Concat:
		if x == 0 {
			return `"all"`
		}
		return x.String()
	case time.Duration:
		return tomlString(x.String())
	case List:
		var words []string
		for _, w := range x {
			words = append(words, tomlString(w))
		}
		return "[" + strings.Join(words, ", ") + "]"
	}
	return fmt.Sprint(v)
}

// tomlString writes a basic string. Go's quoting will not do: it has escapes
// that TOML does not know.
func tomlString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case unicode.IsControl(r):
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
