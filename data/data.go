// Package data gives what is trained on: sources of token sequences,
// and their cut into batches, replicas and micro-batches.
//
// A source is a pure function: the n-th sequence of a run follows from the seed
// and n alone. So any cut of the ranks, any schedule and a resumed run see the
// same global batch at the same step, nothing is handed from rank to rank, and
// nothing about the data needs saving but the step.
package data

import (
	"fmt"
	"strings"
)

// Source gives token sequences. Methods may be called from several goroutines.
type Source interface {
	// Vocab returns a number above every token id.
	Vocab() int
	// Seq returns the tokens of a sequence.
	Seq() int
	// Epoch returns the training sequences after which the data repeats, in
	// another order; 0: never.
	Epoch() int64
	// Sequence writes the n-th training sequence of the run (from 0): Seq token
	// ids, and as targets the token that follows each. Either may be nil when
	// not wanted, as on ranks without the first or the last stage.
	Sequence(n int64, ids, targets []int32) error
	// Holdout returns the number of sequences kept for evaluation, which
	// training never sees; it may be 0.
	Holdout() int64
	// HoldoutSequence writes the n-th of those, in the order of the data.
	HoldoutSequence(n int64, ids, targets []int32) error
	// Fingerprint names the data and how it is read: equal on every rank of a
	// run, and when it resumes.
	Fingerprint() string
	Close() error
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
	KindText      = "text"      // the bytes of files
	KindTokens    = "tokens"    // tokens that were made beforehand, in files
	KindSynthetic = "synthetic" // made from the seed
)

// Kinds lists the kinds of data.
func Kinds() []string { return []string{KindText, KindTokens, KindSynthetic} }

// Open opens the source that c describes. The caller closes it.
func Open(c Config) (Source, error) {
	switch {
	case c.Seq < 1 || c.Seq > 1<<30:
		return nil, fmt.Errorf("data: a sequence of %d tokens; it must have 1 to 2^30", c.Seq)
	case !(c.Holdout >= 0 && c.Holdout <= 0.5):
		return nil, fmt.Errorf("data: holdout %v; it must lie between 0 and 0.5", c.Holdout)
	}
	switch c.Kind {
	case KindText, KindTokens:
		return openTokens(c)
	case KindSynthetic:
		return openSynthetic(c)
	}
	return nil, fmt.Errorf("data: no kind is called %q; known: %s", c.Kind, strings.Join(Kinds(), ", "))
}

// checkSlices panics unless the slices have the length they must have: their
// size is the caller's program, not the data.
func checkSlices(want int, ids, targets []int32) {
	if ids != nil && len(ids) != want || targets != nil && len(targets) != want {
		panic(fmt.Sprintf("data: %d ids and %d targets for %d tokens", len(ids), len(targets), want))
	}
}
