// Package data gives what is trained on: sources of samples,
// and their cut into batches, replicas and micro-batches.
//
// A source is a pure function: the n-th sample of a run follows from the seed
// and n alone. So any cut of the ranks, any schedule and a resumed run see the
// same global batch at the same step, nothing is handed from rank to rank, and
// nothing about the data needs saving but the step.
package data

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"
)

// Field is one thing that every sample has: Len elements of a type.
type Field struct {
	Name string
	Type string // "i32" or "u8"
	Len  int
}

// Bytes returns what the field takes in n samples.
func (f Field) Bytes(n int) int {
	if f.Type == "u8" {
		return n * f.Len
	}
	return 4 * n * f.Len
}

// Fields of token sequences, Seq elements of type i32 each: the ids, and as targets
// the token that follows each.
const (
	IDs     = "ids"
	Targets = "targets"
)

func tokenFields(seq int) []Field { return []Field{{IDs, "i32", seq}, {Targets, "i32", seq}} }

// Sample is where a source writes: memory for each field that is wanted, by name, in
// this machine's byte order. A rank wants the fields that its stages' layers name.
type Sample map[string][]byte

// I32 returns the elements of a field of type i32, nil where it is not wanted. It panics
// unless there are so many: their number is the caller's program, not the data.
func (s Sample) I32(name string, elems int) []int32 {
	b, wanted := s[name]
	if !wanted {
		return nil
	}
	if len(b) != 4*elems {
		panic(fmt.Sprintf("data: %d bytes for %d elements of %s", len(b), elems, name))
	}
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(b))), elems)
}

// Source gives samples. Methods may be called from several goroutines.
type Source interface {
	// Fields returns what a sample has.
	Fields() []Field
	// Terms returns how many losses the n-th training sample has: as many as targets count.
	Terms(n int64) int
	// Epoch returns the training samples after which the data repeats, in
	// another order; 0: never.
	Epoch() int64
	// Sample writes the n-th training sample of the run (from 0).
	Sample(n int64, into Sample) error
	// Holdout returns the number of samples kept for evaluation, which
	// training never sees; it may be 0.
	Holdout() int64
	// HoldoutSample writes the n-th of those, in the order of the data.
	HoldoutSample(n int64, into Sample) error
	// Fingerprint names the data and how it is read: equal on every rank of a
	// run, and when it resumes.
	Fingerprint() string
	Close() error
}

// FieldOf returns the named field of a source.
func FieldOf(s Source, name string) (Field, bool) {
	fields := s.Fields()
	i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
	if i < 0 {
		return Field{}, false
	}
	return fields[i], true
}

// Config says what to open.
type Config struct {
	Kind string // KindText, KindTokens, KindSynthetic
	// Format of tokens: the name of one of Formats, or FormatAuto.
	Format string
	Path   string // of a text or tokens: a file or a pattern
	Seed   int64  // decides the order of the sequences (and the content of synthetic ones)
	Seq    int    // tokens of a sequence
	// Vocab is the model's vocabulary: every token must be below it.
	Vocab int
	// Holdout is the share of a text or of tokens, at the end, kept for evaluation:
	// the last int64(Holdout × tokens). Negative or above 0.5 is refused.
	Holdout float64
}

// Kinds of data.
const (
	KindText      = "text"
	KindTokens    = "tokens"
	KindSynthetic = "synthetic"
)

// Kind is a kind of source: data.kind in a job file.
type Kind struct {
	Name string
	Doc  string // what a sample is made of
	// Files says that samples are windows of token files: path, holdout and, but for a
	// text, format apply.
	Files bool
	open  func(c Config) (Source, error)
}

// kinds are described each in the file of its source.
var kinds = []Kind{text, tokenFiles, syntheticKind}

// Kinds lists the kinds of data.
func Kinds() []Kind { return kinds }

// FindKind returns the kind of a name.
func FindKind(name string) (Kind, bool) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

// Open opens the source that c describes. The caller closes it.
func Open(c Config) (Source, error) {
	switch {
	case c.Seq < 1 || c.Seq > 1<<30:
		return nil, fmt.Errorf("data: a sequence of %d tokens; it must have 1 to 2^30", c.Seq)
	case !(c.Holdout >= 0 && c.Holdout <= 0.5):
		return nil, fmt.Errorf("data: holdout %v; it must lie between 0 and 0.5", c.Holdout)
	}
	if k, ok := FindKind(c.Kind); ok {
		return k.open(c)
	}
	var names []string
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	return nil, fmt.Errorf("data: no kind is called %q; known: %s", c.Kind, strings.Join(names, ", "))
}
