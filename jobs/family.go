package jobs

import (
	"slices"
	"strings"

	"github.com/pipetrain/pipetrain/model"
)

func familyNames() (names []string) {
	for _, f := range model.Families() {
		names = append(names, f.Name)
	}
	return names
}

// familyDoc describes the key model.kind.
func familyDoc() string {
	var kinds []string
	for _, f := range model.Families() {
		kinds = append(kinds, "`"+f.Name+"` "+f.Doc)
	}
	return "Family of the network: " + strings.Join(kinds, "; ") + "."
}

// owner has some of the keys of a table: a family of networks, or an optimizer's rule.
type owner struct {
	name string
	keys []model.Key
}

// withKeys puts the keys of owners behind a key of their table. Those that only some
// have name them.
func withKeys(list []Key, after string, owners []owner) []Key {
	at := 1 + slices.IndexFunc(list, func(k Key) bool { return k.Name == after })
	table, _, _ := strings.Cut(after, ".")
	var keys []Key
	for _, o := range owners {
		for _, k := range o.keys {
			name := table + "." + k.Name
			if i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == name }); i >= 0 {
				keys[i].owners = append(keys[i].owners, o.name)
				continue
			}
			keys = append(keys, Key{Name: name, Doc: k.Doc, Required: k.Required, Note: k.Note, Choices: k.Choices,
				min: k.Min, max: k.Max, above: k.Above, below: k.Below, owners: []string{o.name}})
		}
	}
	for i := range keys {
		if k := &keys[i]; len(k.owners) < len(owners) {
			k.Doc = strings.TrimSuffix(k.Doc, ".") + " (" + strings.Join(k.owners, ", ") + ")."
		}
	}
	return slices.Insert(list, at, keys...)
}

// families lists the default one first: its keys are those that most jobs have.
func families() (owners []owner) {
	for _, f := range model.Families() {
		owners = append(owners, owner{f.Name, f.Keys})
		if f.Name == model.DefaultKind {
			owners[0], owners[len(owners)-1] = owners[len(owners)-1], owners[0]
		}
	}
	return owners
}

// of says whether a model of a kind has the key.
func (k *Key) of(kind string) bool {
	return k.table() != "model" || k.owners == nil || slices.Contains(k.owners, kind)
}

// completeModel fills in what follows from other keys of the model. Keys that its family does
// not have must not be given, and what follows from them is not judged.
func (l *loader) completeModel(missing func(key string) bool) {
	m := &l.spec.Model
	for i := range keyList {
		k := &keyList[i]
		if k.of(m.Kind) {
			continue
		}
		if !missing(k.Name) && l.ok("model.kind", k.Name) {
			l.mistake(k.Name, "has no effect with model.kind = "+show(m.Kind), "leave it out", "")
		}
		l.bad[k.Name] = true
	}
	*m = m.WithDefaults()
	for _, k := range model.FindFamily(m.Kind).Keys {
		for _, from := range k.Follows {
			if missing("model." + k.Name) {
				l.follow("model."+k.Name, "model."+from)
			}
		}
	}
}

// validateModel reports what the job's family says of its own keys.
func (l *loader) validateModel() {
	m := l.spec.Model
	ok := func(keys ...string) bool {
		return !slices.ContainsFunc(keys, func(k string) bool { return l.bad["model."+k] })
	}
	for _, wrong := range model.FindFamily(m.Kind).Check(m, ok) {
		if wrong.Key == "" {
			l.report(l.origin("model"), "model", wrong.What+"; "+wrong.Right, "", "")
		} else {
			l.mistake("model."+wrong.Key, wrong.What, wrong.Right, "")
		}
	}
}
