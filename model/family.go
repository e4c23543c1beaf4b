package model

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Family is one kind of network. A file of this package registers it; job files, plans,
// runs and checkpoints know it from then on.
type Family struct {
	Name string // of model.kind in a job file
	Doc  string // what it is
	Keys []Key  // its keys in [model], each a field of Config

	// Defaults has the values of keys that do not follow from others; Complete gives
	// the keys that are still zero what follows.
	Defaults Config
	Complete func(c *Config)
	// Check returns the values that are within their bounds and cannot work all the same. ok
	// says whether keys are right on their own; what follows from others is not judged.
	Check func(c Config, ok func(keys ...string) bool) []Mistake

	// Layers returns the network, first to last (see Chain).
	Layers func(c Config) []Layer
	// HF returns the contents of the config.json with which Hugging Face transformers loads
	// the saved parameters.
	HF func(c Config) map[string]any
}

// Key is a key of [model] or [optimizer] in a job file. Families may share a key, and so may
// rules, with the same bounds.
type Key struct {
	Name, Doc    string
	Required     bool
	Default      float64  // of a rule's key
	Note         string   // what the default is, where it follows from other keys
	Follows      []string // those keys
	Choices      []string // of a text
	Min, Max     float64  // bounds of a number; both 0: none
	Above, Below bool     // Min, Max themselves are excluded
}

// mustShare panics where two lists have a key of one name and two meanings.
func mustShare(one, other string, a, b []Key) {
	for _, x := range a {
		for _, y := range b {
			if x.Name == y.Name && (x.Min != y.Min || x.Max != y.Max || x.Above != y.Above || x.Below != y.Below || x.Default != y.Default) {
				panic(fmt.Sprintf("model: %s and %s: key %s has two ranges or defaults", one, other, x.Name))
			}
		}
	}
}

// Mistake says what is wrong with a key's value, and what would be right. An empty
// Key means the whole.
type Mistake struct{ Key, What, Right string }

// wrong says what is wrong with a value on its own; empty: nothing.
func (k Key) wrong(value any) (what, right string) {
	var x float64
	switch v := value.(type) {
	case int:
		x = float64(v)
	case float64:
		x = v
	case string:
		if !slices.Contains(k.Choices, v) {
			return fmt.Sprintf("%q is unknown", v), "known: " + strings.Join(k.Choices, ", ")
		}
		return "", ""
	default:
		return "", ""
	}
	if math.IsNaN(x) || x < k.Min || x > k.Max || k.Above && x == k.Min || k.Below && x == k.Max {
		return fmt.Sprintf("is %v", value), fmt.Sprintf("it must lie between %v and %v", k.Min, k.Max)
	}
	return "", ""
}

// families are sorted by name.
var families []*Family

// registerFamily adds a family. A key that families share has one range.
func registerFamily(f Family) {
	for _, k := range f.Keys {
		f.Defaults.field(k.Name) // it must be there
	}
	for _, other := range families {
		mustShare(other.Name, f.Name, other.Keys, f.Keys)
	}
	f.Defaults.Kind = f.Name
	families = append(families, &f)
	slices.SortFunc(families, func(a, b *Family) int { return strings.Compare(a.Name, b.Name) })
}

// Families returns the registered families, sorted by name.
func Families() []*Family { return families }

// FindFamily returns the family of a name, nil when there is none.
func FindFamily(name string) *Family {
	for _, f := range families {
		if f.Name == name {
			return f
		}
	}
	return nil
}
