package jobs

import (
	"strings"

	"github.com/BurntSushi/toml"
)

// override is one --set.
type override struct {
	arg   string // as given
	key   string
	raw   string // text after the "="
	value any    // raw as a TOML value; a bare word is its text
}

// readSets takes the --set arguments apart. The last one of a key wins.
func (l *loader) readSets(sets []string) []override {
	var list []override
	for _, arg := range sets {
		o := origin{set: arg}
		name, raw, found := strings.Cut(arg, "=")
		name, raw = strings.TrimSpace(name), strings.TrimSpace(raw)
		switch {
		case !found || name == "":
			if arg == "" {
				o.set = `""`
			}
			l.report(o, "", "is not of the form key=value", "e.g. --set train.steps=100", suggestUnknown(name))
			continue
		case isTable(name):
			l.report(o, name, "is a table", "set a key of it, e.g. --set "+firstKey(name)+"=…", "")
			continue
		case keysByName[name] == nil:
			l.report(o, name, "no such key", "", suggestUnknown(name))
			l.meant[suggestUnknown(name)] = true
			continue
		}
		v, wrong := setValue(raw)
		if wrong != "" {
			l.given[name] = o
			l.mistake(name, wrong, "put a text between quotes", "")
			continue
		}
		for i := range list {
			if list[i].key == name {
				list = append(list[:i], list[i+1:]...)
				break
			}
		}
		list = append(list, override{arg: arg, key: name, raw: raw, value: v})
	}
	return list
}

// setValue reads a value as TOML; what is no TOML value is a bare word, unless
// it starts like one.
func setValue(raw string) (any, string) {
	if strings.ContainsAny(raw, "\n\r") {
		return nil, "a value has one line"
	}
	if len(raw) > maxFileBytes || notText([]byte(raw)) >= 0 {
		return raw, "" // refused with the key's own reasons
	}
	if tooDeep(raw) == 0 {
		var tree map[string]any
		_, err := toml.Decode("v = "+raw, &tree)
		if err == nil && len(tree) == 1 && tree["v"] != nil {
			return tree["v"], ""
		}
	}
	if raw != "" && strings.ContainsRune("\"'[{", rune(raw[0])) {
		return nil, "is no TOML value: " + show(raw)
	}
	return raw, ""
}

// suggestUnknown is suggestKey, empty for an empty name.
func suggestUnknown(name string) string {
	if name == "" {
		return ""
	}
	return suggestKey(name)
}

func firstKey(table string) string {
	for _, k := range keyList {
		if k.table() == table {
			return k.Name
		}
	}
	return table
}

// decodeSets applies the overrides.
func (l *loader) decodeSets(list []override) {
	for _, o := range list {
		l.given[o.key] = origin{set: o.arg}
		k := keysByName[o.key]
		delete(l.bad, o.key) // a table that could not be read marks all its keys
		v := o.value
		// For a text, what was typed counts: 04:00:00 is a time of day in TOML
		// and 2024 a number, but here they are a limit and a name.
		if k.Type() == "text" {
			if _, isText := v.(string); !isText {
				v = o.raw
			}
		}
		l.decode(k, v, "")
	}
}

// CheckSets returns what is wrong with each "key=value" by itself: unknown keys, types, ranges, choices.
// It says nothing about how values go together, nor about files that they name.
func CheckSets(sets []string) []*Error {
	l := &loader{spec: Default(), given: map[string]origin{}, bad: map[string]bool{}, meant: map[string]bool{}}
	for _, s := range sets { // one at a time: the last one of a key would hide the others
		l.decodeSets(l.readSets([]string{s}))
	}
	return l.errs
}

// IsPath says whether the text of a key names a file or folder, relative to the job file's.
func IsPath(key, text string) bool {
	k := keysByName[key]
	return k != nil && text != "" && (k.path == isPath || k.path == mayBePath && strings.ContainsRune(text, '/') && !strings.Contains(text, "://"))
}
