package jobs

import (
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// decodeTree fills the Spec from the file, but for keys that --set overrides:
// what is replaced is not judged.
func (l *loader) decodeTree(tree map[string]any, overrides []override) {
	skip := map[string]bool{}
	for _, o := range overrides {
		skip[o.key] = true
	}
	for _, name := range sortedKeys(tree) {
		v := tree[name]
		if !isTable(name) {
			l.decodeEntry([]string{name}, v, skip)
			continue
		}
		table, ok := v.(map[string]any)
		if !ok {
			l.markTable(name)
			right := "write [" + name + "] on a line of its own, its keys below"
			if _, list := v.([]map[string]any); list {
				right = "write [" + name + "], not [[" + name + "]]"
			}
			l.report(l.origin(name), name, "is a table, not "+kindOf(v), right, "")
			continue
		}
		for _, leaf := range sortedKeys(table) {
			l.decodeEntry([]string{name, leaf}, table[leaf], skip)
		}
	}
}

// markTable keeps the keys of a table that could not be read from being
// reported as missing too.
func (l *loader) markTable(name string) {
	for _, k := range keyList {
		if k.table() == name {
			l.bad[k.Name] = true
		}
	}
}

func (l *loader) decodeEntry(parts []string, v any, skip map[string]bool) {
	name := joinKey(parts)
	k := keysByName[name]
	if k == nil {
		what := "no such key"
		if _, table := v.(map[string]any); table && len(parts) == 1 {
			what = "no such table"
		}
		near := suggestKey(name)
		l.meant[near] = true
		if what == "no such table" && isTable(near) && l.lines[near] == 0 {
			// The table is not there besides: its keys are missing only because of its name.
			l.markTable(near)
		}
		right := ""
		if near == "" {
			right = allowedNames(parts)
		}
		l.report(l.origin(name), name, what, right, near)
		return
	}
	if skip[name] {
		return
	}
	l.given[name] = origin{line: l.lines[name]}
	l.decode(k, v, l.dir)
}

// allowedNames lists what may stand where an unknown name stands.
func allowedNames(parts []string) string {
	var names []string
	if len(parts) == 1 {
		for _, k := range keyList {
			if k.table() == "" {
				names = append(names, k.Name)
			}
		}
		for _, t := range tables[1:] {
			names = append(names, "["+t.Name+"]")
		}
		return "there are " + strings.Join(names, ", ")
	}
	for _, k := range keyList {
		if k.table() == parts[0] {
			names = append(names, k.leaf())
		}
	}
	return "[" + parts[0] + "] has " + strings.Join(names, ", ")
}

// decode checks one value against its key and stores it. dir is the folder of
// relative paths, empty for the working directory.
func (l *loader) decode(k *Key, v any, dir string) {
	dst := field(&l.spec, k.Name)
	fail := func(what, right string) { l.mistake(k.Name, what, right, "") }
	wrongType := func(want string) { fail("is "+kindOf(v)+", not "+want, example(k, v)) }
	switch dst.Interface().(type) {
	case string:
		s, ok := v.(string)
		if !ok {
			wrongType("a text")
			return
		}
		if s, ok = l.text(k, s, dir); ok {
			dst.SetString(s)
		}
	case bool:
		b, ok := v.(bool)
		if !ok {
			wrongType("true or false")
			return
		}
		dst.SetBool(b)
	case int, int64:
		n, ok := v.(int64)
		if !ok {
			wrongType("an integer")
			return
		}
		if l.inRange(k, float64(n)) {
			dst.SetInt(n)
		}
	case float64:
		x, ok := number(v)
		if !ok {
			wrongType("a number")
			return
		}
		if l.inRange(k, x) {
			dst.SetFloat(x)
		}
	case Concat:
		switch n := v.(type) {
		case string:
			if n == "all" {
				dst.SetInt(0)
				return
			}
			fail("is "+show(n), `a number of micro-batches, or "all"`)
		case int64:
			if l.inRange(k, float64(n)) {
				dst.SetInt(n)
			}
		default:
			wrongType(`an integer or "all"`)
		}
	case Bytes:
		b, err := parseBytes(v)
		if err != "" {
			fail(err, `write "70GiB", "512MiB", a number of bytes, or "" for no limit`)
			return
		}
		dst.SetInt(b)
	case time.Duration:
		d, err := parseDuration(v)
		if err != "" {
			fail(err, `write "60s", "2m30s", or a number of seconds`)
			return
		}
		if l.inRange(k, d.Seconds()) {
			dst.Set(reflect.ValueOf(d))
		}
	case List:
		l.decodeList(k, v, dir, dst)
	default:
		panic("jobs: no decoding for key " + k.Name)
	}
}

// maxList bounds a list of texts.
const maxList = 64

// decodeList takes a list of texts, or a text alone as a list of one.
func (l *loader) decodeList(k *Key, v any, dir string, dst reflect.Value) {
	if s, ok := v.(string); ok {
		v = []any{s}
	}
	values, ok := v.([]any)
	if !ok {
		l.mistake(k.Name, "is "+kindOf(v)+", not a list of texts", `write `+k.leaf()+` = ["…", "…"]`, "")
		return
	}
	if len(values) > maxList {
		l.mistake(k.Name, fmt.Sprintf("has %d entries", len(values)), fmt.Sprintf("at most %d", maxList), "")
		return
	}
	var list List
	for i, v := range values {
		s, ok := v.(string)
		if !ok {
			l.mistake(k.Name, fmt.Sprintf("entry %d is %s, not a text", i+1, kindOf(v)), "put it between quotes", "")
			return
		}
		if s, ok = l.text(k, s, dir); !ok {
			return
		}
		list = append(list, s)
	}
	dst.Set(reflect.ValueOf(list))
}

// text checks a text: its characters, and that it is one of the choices.
func (l *loader) text(k *Key, s, dir string) (string, bool) {
	choices := k.choices()
	switch {
	case len(s) > 4096:
		l.mistake(k.Name, fmt.Sprintf("has %d bytes", len(s)), "at most 4096", "")
		return "", false
	case len(choices) > 0 && !slices.Contains(choices, s) && !(k.Open && strings.ContainsAny(s, "/.")):
		right := strings.Join(choices, ", ")
		if k.Open {
			right += ", or the path of a library"
		}
		l.mistake(k.Name, "no such kind: "+show(s), "known: "+right, nearest(s, choices))
		return "", false
	}
	if s != "" && (k.path == isPath || k.path == mayBePath && strings.ContainsRune(s, '/') && !strings.Contains(s, "://")) {
		abs := s
		if !filepath.IsAbs(s) {
			abs = filepath.Join(dir, s)
		}
		abs, err := filepath.Abs(abs)
		if err != nil {
			l.mistake(k.Name, "cannot be made an absolute path: "+err.Error(), "", "")
			return "", false
		}
		s = abs
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		l.mistake(k.Name, "has control characters or is no UTF-8: "+show(s), "", "")
		return "", false
	}
	return s, true
}

// inRange checks a number against its key's bounds; NaN and infinities are in none.
func (l *loader) inRange(k *Key, x float64) bool {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		l.mistake(k.Name, "is "+formatFloat(x)+", which no run can use", k.Range(), "")
		return false
	}
	if k.min == 0 && k.max == 0 {
		return true
	}
	if x < k.min || x > k.max || k.above && x == k.min || k.below && x == k.max {
		l.mistake(k.Name, "is "+formatFloat(x), k.Range(), "")
		return false
	}
	return true
}

// number takes an integer where a number is wanted: lr = 1.
func number(v any) (float64, bool) {
	switch x := v.(type) {
	case float64:
		return x, true
	case int64:
		return float64(x), true
	}
	return 0, false
}

// kindOf names the type of a TOML value, with the value where it is short.
func kindOf(v any) string {
	switch x := v.(type) {
	case string:
		return "the text " + show(x)
	case int64:
		return "the integer " + show(x)
	case float64:
		return "the number " + tomlValue(x)
	case bool:
		return fmt.Sprint(x)
	case time.Time:
		return "a date or time"
	case map[string]any:
		return "a table"
	case []map[string]any, []any:
		return "a list"
	}
	return fmt.Sprintf("a %T", v)
}

// example shows how a value of the wrong type may have been meant.
func example(k *Key, v any) string {
	leaf := k.leaf()
	switch x := v.(type) {
	case string:
		if _, err := strconv.ParseFloat(x, 64); err == nil && k.Type() != "text" {
			return "write " + leaf + " = " + x + ", without quotes"
		}
		if x == "yes" || x == "on" {
			return "write " + leaf + " = true"
		}
		if x == "no" || x == "off" {
			return "write " + leaf + " = false"
		}
	case float64:
		if k.Type() == "integer" && x == math.Trunc(x) && math.Abs(x) < 1e15 {
			return "write " + leaf + " = " + strconv.FormatInt(int64(x), 10)
		}
	}
	if k.Type() == "text" {
		if c := k.choices(); len(c) > 0 {
			return "one of " + strings.Join(c, ", ") + ", in quotes"
		}
		return "put it between quotes"
	}
	return k.Range()
}

func sortedKeys(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}
