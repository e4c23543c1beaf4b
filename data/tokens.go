package data

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"sort"
	"sync"
)

// tokens reads the files of a text or of tokens that were made beforehand. The
// training part of each is divided into windows of Seq tokens that do not overlap,
// and none of which crosses from one file into the next; each epoch visits every
// window once, in an order of its own. A window's targets end with the first token
// of the next one, so that an epoch predicts every token of a file but the first once.
//
// The held-out part is the end of all files laid one behind the other.
//
// Files are read where needed, a sequence a system call out of the page cache: a
// copy in each rank would cost a rank's memory, and a mapping kills the process
// with SIGBUS when the file shrinks.
type tokens struct {
	shards      []shard
	format      string
	path        string // as it was asked for
	seq         int
	vocab       int
	seed        uint64
	held        int64   // tokens kept for evaluation
	total       int64   // tokens of all files
	train, rest windows // to train on, and held out
	fingerprint string
	buffers     sync.Pool // *[]byte of seq+1 of the widest tokens
}

// windows counts the windows of the files.
type windows struct {
	start []int64 // by shard: its first token
	upTo  []int64 // by shard: windows of it and of those before
}

// add appends a shard of which the tokens from start on, n of them, belong here.
func (w *windows) add(start, n, seq int64) {
	before := w.count()
	w.start, w.upTo = append(w.start, start), append(w.upTo, before+max(0, (n-1)/seq))
}

func (w *windows) count() int64 {
	if len(w.upTo) == 0 {
		return 0
	}
	return w.upTo[len(w.upTo)-1]
}

// find returns the shard of a window, and its first token there.
func (w *windows) find(window, seq int64) (shard int, first int64) {
	i := sort.Search(len(w.upTo), func(i int) bool { return w.upTo[i] > window })
	if i > 0 {
		window -= w.upTo[i-1]
	}
	return i, w.start[i] + window*seq
}

var (
	text       = Kind{KindText, "the bytes of files", true, openTokens}
	tokenFiles = Kind{KindTokens, "files of tokens that were made beforehand", true, openTokens}
)

func openTokens(c Config) (Source, error) {
	t := &tokens{path: c.Path, seq: c.Seq, vocab: c.Vocab, seed: uint64(c.Seed)}
	if c.Kind == KindText {
		if t.vocab = 256; c.Vocab < 256 {
			return nil, fmt.Errorf("data: a vocabulary of %d; the bytes of a text need 256", c.Vocab)
		}
	}
	var err error
	if t.shards, t.format, err = openShards(c.Kind, c.Format, c.Path); err != nil {
		return nil, err
	}
	if err := t.divide(c.Holdout); err != nil {
		closeAll(t.shards)
		return nil, err
	}
	width := int64(1)
	for _, s := range t.shards {
		width = max(width, s.code.width)
	}
	t.buffers.New = func() any { b := make([]byte, int64(c.Seq+1)*width); return &b }
	return t, nil
}

// divide sets the sizes of the parts.
func (t *tokens) divide(share float64) error {
	counts := make([]int64, len(t.shards))
	for i, s := range t.shards {
		counts[i] = s.tokens
		t.total += s.tokens
	}
	t.held = Held(t.total, share)
	t.train, t.rest = divide(counts, t.total-t.held, int64(t.seq))
	if t.train.count() < 1 {
		return fmt.Errorf("data: %s: %d %s to train on; a sequence with its targets needs seq + 1 = %d%s", t.path, t.total-t.held, t.unit(), t.seq+1, ofOneFile(len(t.shards)))
	}
	var err error
	t.fingerprint, err = t.digest()
	return err
}

// divide shares out files with these numbers of tokens, of which the first trained
// over all files are for training.
func divide(counts []int64, trained, seq int64) (train, rest windows) {
	for _, all := range counts {
		n := min(all, trained)
		train.add(0, n, seq)
		rest.add(n, all-n, seq)
		trained -= n
	}
	return train, rest
}

func ofOneFile(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(", of one of the %d files", n)
}

func (t *tokens) unit() string {
	if t.format == KindText {
		return "bytes"
	}
	return "tokens"
}

// Held returns how many tokens at the end of total are kept for evaluation.
func Held(total int64, share float64) int64 { return int64(share * float64(total)) }

// digest describes the data by sizes and samples of the content: to read all
// of a large corpus on every rank would delay the start.
func (t *tokens) digest() (string, error) {
	sample := int64(64 << 10)
	if len(t.shards) > 16 {
		sample = 4 << 10
	}
	h := sha256.New()
	for _, s := range t.shards {
		if len(t.shards) > 1 {
			_ = binary.Write(h, binary.LittleEndian, s.size)
		}
		for _, at := range []int64{0, s.size / 2, s.size - sample} {
			if _, err := io.Copy(h, io.NewSectionReader(s.file, max(at, 0), sample)); err != nil {
				return "", unreadable(s.path, err)
			}
		}
	}
	return fmt.Sprintf("%s %s=%d holdout=%d seq=%d seed=%d sha256=%x", t.format, t.unit(), t.total, t.held, t.seq, int64(t.seed), h.Sum(nil)[:8]), nil
}

func (t *tokens) Fields() []Field     { return tokenFields(t.seq) }
func (t *tokens) Terms(int64) int     { return t.seq }
func (t *tokens) Epoch() int64        { return t.train.count() }
func (t *tokens) Fingerprint() string { return t.fingerprint }
func (t *tokens) Close() error        { return closeAll(t.shards) }
func (t *tokens) Holdout() int64      { return t.rest.count() }

func (t *tokens) Sample(n int64, into Sample) error {
	if n < 0 {
		return fmt.Errorf("data: %s: sequence %d; they count from 0", t.path, n)
	}
	epoch, i := n/t.Epoch(), n%t.Epoch()
	window := permute(uint64(i), uint64(t.Epoch()), hash(t.seed, streamOrder, uint64(epoch)))
	return t.window(&t.train, int64(window), into)
}

func (t *tokens) HoldoutSample(n int64, into Sample) error {
	if n < 0 || n >= t.Holdout() {
		return fmt.Errorf("data: %s: held-out sequence %d; there are %d", t.path, n, t.Holdout())
	}
	return t.window(&t.rest, n, into)
}

// window reads the seq+1 tokens of a window.
func (t *tokens) window(w *windows, n int64, into Sample) error {
	ids, targets := into.I32(IDs, t.seq), into.I32(Targets, t.seq)
	i, first := w.find(n, int64(t.seq))
	s := &t.shards[i]
	p := t.buffers.Get().(*[]byte)
	defer t.buffers.Put(p)
	b := (*p)[:int64(t.seq+1)*s.code.width]
	if err := s.read(b, first); err != nil {
		return err
	}
	for j := range t.seq + 1 {
		v := s.code.at(b, j)
		if v < 0 || v >= int64(t.vocab) {
			return &FileError{s.path, s.offset + (first+int64(j))*s.code.width,
				fmt.Sprintf("token %d is %d, and the vocabulary ends at %d", first+int64(j), v, t.vocab-1), "model.vocab as large as the tokenizer's"}
		}
		if j < t.seq && ids != nil {
			ids[j] = int32(v)
		}
		if j > 0 && targets != nil {
			targets[j-1] = int32(v)
		}
	}
	return nil
}
