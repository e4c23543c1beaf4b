package study

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/pipetrain/pipetrain/jobs"
)

// decode fills the file from its tree.
func (f *File) decode(tree map[string]any) {
	fields := f.fields()
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		v := tree[name]
		switch name {
		case "set":
			f.decodeSet(v)
		case "axis":
			f.decodeAxes(v)
		case "exclude":
			f.decodeExcludes(v)
		case "scaling", "launch", "gate":
			table, ok := v.(map[string]any)
			if !ok {
				f.mistake(f.line(name), name, "is a table", "write ["+name+"] on a line of its own, its keys below")
				continue
			}
			for _, leaf := range slices.Sorted(maps.Keys(table)) {
				f.take(fields, name+"."+leaf, table[leaf], f.line(name+"."+leaf))
			}
		default:
			f.take(fields, name, v, f.line(name))
		}
	}
}

// take stores one value in its field.
func (f *File) take(fields map[string]any, name string, v any, line int) {
	to, ok := fields[name]
	if !ok {
		names := slices.Sorted(maps.Keys(fields))
		f.mistake(line, name, "no such key", "there are "+strings.Join(names, ", ")+", [set], [[axis]], [[exclude]]")
		return
	}
	wrong := func(want string) { f.mistake(line, name, fmt.Sprintf("is %s, not %s", shown(v), want), "") }
	switch to := to.(type) {
	case *string:
		if s, ok := v.(string); ok {
			*to = s
		} else {
			wrong("a text")
		}
	case *int:
		if n, ok := v.(int64); ok {
			*to = int(n)
		} else {
			wrong("an integer")
		}
	case *int64:
		if n, ok := v.(int64); ok {
			*to = n
		} else {
			wrong("an integer")
		}
	case *float64:
		switch x := v.(type) {
		case float64:
			*to = x
		case int64:
			*to = float64(x)
		default:
			wrong("a number")
		}
	case *time.Duration:
		d, err := duration(v)
		if err != nil {
			wrong(`a time: "90s", "5h", or a number of seconds`)
		}
		*to = d
	case *[]string:
		list, ok := v.([]any)
		if !ok {
			wrong("a list of texts")
			return
		}
		*to = nil
		for _, x := range list {
			s, ok := x.(string)
			if !ok {
				wrong("a list of texts")
				return
			}
			*to = append(*to, s)
		}
	}
}

func duration(v any) (time.Duration, error) {
	switch x := v.(type) {
	case string:
		if x == "" {
			return 0, nil
		}
		return time.ParseDuration(x)
	case int64:
		return time.Duration(x) * time.Second, nil
	case float64:
		return time.Duration(x * float64(time.Second)), nil
	}
	return 0, errors.New("no time")
}

// flatten returns the values of nested tables by dotted key.
func flatten(prefix string, v any, out map[string]any) {
	table, ok := v.(map[string]any)
	if !ok {
		out[prefix] = v
		return
	}
	for k, x := range table {
		if prefix != "" {
			k = prefix + "." + k
		}
		flatten(k, x, out)
	}
}

func (f *File) decodeSet(v any) {
	if _, ok := v.(map[string]any); !ok {
		f.mistake(f.line("set"), "set", "is a table", "write [set] on a line of its own, keys of the job below")
		return
	}
	flat := map[string]any{}
	flatten("", v, flat)
	for _, k := range slices.Sorted(maps.Keys(flat)) {
		f.Set = append(f.Set, Setting{k, flat[k], f.line("set." + k)})
	}
}

// tablesOf returns the lines of the n-th [[name]] and of its keys.
func (f *File) tablesOf(name string, n int) (line int, keys map[string]int) {
	keys = map[string]int{}
	for _, p := range f.lines {
		if p.Name == name && p.Header {
			if n--; n < -1 {
				return line, keys
			}
			if n == -1 {
				line = p.Line
			}
		}
		if leaf, ok := strings.CutPrefix(p.Name, name+"."); ok && n == -1 {
			keys[leaf] = p.Line
		}
	}
	return line, keys
}

// tables returns the tables of a list of tables, and whether it is one.
func (f *File) tables(name string, v any) []map[string]any {
	list, ok := v.([]map[string]any)
	if !ok {
		f.mistake(f.line(name), name, "is a list of tables", "write [["+name+"]] with two brackets")
	}
	return list
}

func (f *File) decodeAxes(v any) {
	for n, table := range f.tables("axis", v) {
		a := Axis{Values: map[string][]any{}}
		a.Line, a.lines = f.tablesOf("axis", n)
		at := func(key string) int {
			if l := a.lines[key]; l > 0 {
				return l
			}
			return a.Line
		}
		flat := map[string]any{}
		flatten("", table, flat)
		length := -1
		for _, k := range slices.Sorted(maps.Keys(flat)) {
			list, ok := flat[k].([]any)
			if !ok || len(list) == 0 {
				f.mistake(at(k), "axis: "+k, "is "+shown(flat[k])+", not a list of values", "e.g. "+k+" = [1, 2, 4]")
				continue
			}
			if length >= 0 && len(list) != length {
				f.mistake(at(k), "axis: "+k, fmt.Sprintf("has %d values, the axis has %d: its keys advance together", len(list), length), "as many of each, or an [[axis]] of its own")
				continue
			}
			length = len(list)
			if k != "label" {
				a.Keys, a.Values[k] = append(a.Keys, k), list
				continue
			}
			for _, x := range list {
				s, ok := x.(string)
				if !ok || s == "" || slices.Contains(a.Labels, s) {
					f.mistake(at(k), "axis: label", shown(x)+" is no text of its own", "a different text for each value")
				}
				a.Labels = append(a.Labels, s)
			}
		}
		if len(a.Keys) == 0 {
			f.mistake(a.Line, "axis", "has no key of the job", "e.g. parallel.stages = [1, 2, 4]")
			continue
		}
		f.Axes = append(f.Axes, a)
	}
}

func (f *File) decodeExcludes(v any) {
	for n, table := range f.tables("exclude", v) {
		line, _ := f.tablesOf("exclude", n)
		e := Exclude{Keys: map[string]any{}, Line: line}
		flatten("", table, e.Keys)
		f.Excludes = append(f.Excludes, e)
	}
}

// override takes --set arguments: keys of the study, else of its job.
func (f *File) override(sets []string) {
	fields := f.fields()
	for _, arg := range sets {
		key, raw, ok := strings.Cut(arg, "=")
		key, raw = strings.TrimSpace(key), strings.TrimSpace(raw)
		if !ok || key == "" {
			f.errs = append(f.errs, &jobs.Error{Set: arg, What: "is not of the form key=value", Right: "e.g. --set repeats=3"})
			continue
		}
		var v any = raw
		var tree map[string]any
		if _, err := toml.Decode("v = "+raw, &tree); err == nil && tree["v"] != nil {
			v = tree["v"]
		}
		if _, own := fields[key]; own {
			f.take(fields, key, v, 0)
			continue
		}
		f.Set = slices.DeleteFunc(f.Set, func(s Setting) bool { return s.Key == key })
		f.Set = append(f.Set, Setting{key, v, 0})
	}
}
