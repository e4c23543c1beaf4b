package data

import (
	"fmt"
	"math"
)

// Streams keep the random numbers of different uses apart.
const (
	streamOrder uint64 = iota + 1
	streamRule
	streamTrain
	streamHoldout
)

// synthetic makes sequences that a model can learn and that need no file: a
// token is followed by its successor, under a permutation of the vocabulary that
// the seed selects, seven times of eight, else by any token. Entropy is the
// loss that a perfect model reaches.
type synthetic struct {
	seq, vocab int
	seed, rule uint64
}

// noise is the share of tokens that follow no rule: one in noise.
const noise = 8

// holdoutSequences is how many synthetic sequences there are to evaluate on.
const holdoutSequences = 64

var syntheticKind = Kind{Name: KindSynthetic, Doc: "a sequence made from the seed, learnable, no file needed", open: openSynthetic}

func openSynthetic(c Config) (Source, error) {
	if c.Vocab < 2 || c.Vocab > math.MaxInt32 {
		return nil, fmt.Errorf("data: a vocabulary of %d; synthetic data needs 2 to 2^31-1", c.Vocab)
	}
	return &synthetic{seq: c.Seq, vocab: c.Vocab, seed: uint64(c.Seed), rule: hash(uint64(c.Seed), streamRule, 0)}, nil
}

func (s *synthetic) Fields() []Field { return tokenFields(s.seq) }
func (s *synthetic) Terms(int64) int { return s.seq }
func (s *synthetic) Epoch() int64    { return 0 }
func (s *synthetic) Holdout() int64  { return holdoutSequences }
func (s *synthetic) Close() error    { return nil }

func (s *synthetic) Fingerprint() string {
	return fmt.Sprintf("synthetic vocab=%d seq=%d seed=%d", s.vocab, s.seq, int64(s.seed))
}

// Entropy returns the entropy of a token given the one before, in nats.
func (s *synthetic) Entropy() float64 {
	v := float64(s.vocab)
	rest := 1 / (noise * v)     // probability of each token but the successor
	hit := 1 - 1.0/noise + rest // of the successor, which noise hits too
	return -hit*math.Log(hit) - (v-1)*rest*math.Log(rest)
}

func (s *synthetic) Sample(n int64, into Sample) error {
	if n < 0 {
		return fmt.Errorf("data: synthetic sequence %d; they count from 0", n)
	}
	s.fill(hash(s.seed, streamTrain, uint64(n)), into)
	return nil
}

func (s *synthetic) HoldoutSample(n int64, into Sample) error {
	if n < 0 || n >= holdoutSequences {
		return fmt.Errorf("data: synthetic held-out sequence %d; there are %d", n, holdoutSequences)
	}
	s.fill(hash(s.seed, streamHoldout, uint64(n)), into)
	return nil
}

func (s *synthetic) fill(key uint64, into Sample) {
	ids, targets := into.I32(IDs, s.seq), into.I32(Targets, s.seq)
	v := uint64(s.vocab)
	token := below(hash(key, 0, 0), v)
	for i := range s.seq {
		if ids != nil {
			ids[i] = int32(token)
		}
		if h := hash(key, 1, uint64(i)); h%noise != 0 {
			token = permute(token, v, s.rule)
		} else {
			token = below(mix(h), v)
		}
		if targets != nil {
			targets[i] = int32(token)
		}
	}
}
