package data

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// text reads a file's bytes as tokens. Its training part is divided into
// windows of Seq tokens that do not overlap; each epoch visits every window
// once, in an order of its own. A window's targets end with the first token of
// the next one, so that an epoch predicts every byte but the first once.
//
// The file is read where needed, a sequence a system call out of the page
// cache: a copy in each rank would cost a rank's memory, and a mapping kills
// the process with SIGBUS when the file shrinks.
type text struct {
	file        *os.File
	path        string
	size, held  int64 // bytes of the file, and of those kept for evaluation
	seq         int
	seed        uint64
	epoch       int64 // windows to train on
	fingerprint string
	buffers     sync.Pool // *[]byte of seq+1
}

func openText(c Config) (*text, error) {
	if c.Vocab < 256 {
		return nil, fmt.Errorf("data: a vocabulary of %d; the bytes of a text need 256", c.Vocab)
	}
	info, err := os.Stat(c.Path)
	switch {
	case errors.Is(err, os.ErrNotExist) && strings.ContainsAny(c.Path, "*?"):
		return nil, fmt.Errorf("data: %s: patterns are not expanded; join the files into one", c.Path)
	case err != nil:
		return nil, fmt.Errorf("data: %w", err)
	case info.IsDir():
		return nil, fmt.Errorf("data: %s is a folder; join its files into one", c.Path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("data: %s is no regular file; ranks read it at many places at once", c.Path)
	}
	f, err := os.Open(c.Path)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	t := &text{file: f, path: c.Path, seq: c.Seq, seed: uint64(c.Seed)}
	if err := t.divide(c.Holdout); err != nil {
		f.Close()
		return nil, err
	}
	t.buffers.New = func() any { b := make([]byte, c.Seq+1); return &b }
	return t, nil
}

// divide sets the sizes of the parts, from the file that is open: the path may
// have another by now.
func (t *text) divide(share float64) error {
	info, err := t.file.Stat()
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	t.size = info.Size()
	t.held = int64(share * float64(t.size))
	t.epoch = (t.size - t.held - 1) / int64(t.seq)
	if t.epoch < 1 {
		return fmt.Errorf("data: %s: %d bytes to train on; a sequence with its targets needs seq + 1 = %d", t.path, t.size-t.held, t.seq+1)
	}
	t.fingerprint, err = t.digest()
	return err
}

// digest describes the text by its size and three samples of its content: to
// read all of a large corpus on every rank would delay the start.
func (t *text) digest() (string, error) {
	const sample = 64 << 10
	h := sha256.New()
	for _, at := range []int64{0, t.size / 2, t.size - sample} {
		if _, err := io.Copy(h, io.NewSectionReader(t.file, max(at, 0), sample)); err != nil {
			return "", fmt.Errorf("data: %s: %w", t.path, err)
		}
	}
	return fmt.Sprintf("text bytes=%d holdout=%d seq=%d seed=%d sha256=%x", t.size, t.held, t.seq, int64(t.seed), h.Sum(nil)[:8]), nil
}

func (t *text) Vocab() int          { return 256 }
func (t *text) Seq() int            { return t.seq }
func (t *text) Epoch() int64        { return t.epoch }
func (t *text) Fingerprint() string { return t.fingerprint }
func (t *text) Close() error        { return t.file.Close() }

func (t *text) Holdout() int64 { return max(0, (t.held-1)/int64(t.seq)) }

func (t *text) Sequence(n int64, ids, targets []int32) error {
	if n < 0 {
		return fmt.Errorf("data: %s: sequence %d; they count from 0", t.path, n)
	}
	epoch, i := n/t.epoch, n%t.epoch
	window := permute(uint64(i), uint64(t.epoch), hash(t.seed, streamOrder, uint64(epoch)))
	return t.window(int64(window)*int64(t.seq), ids, targets)
}

func (t *text) HoldoutSequence(n int64, ids, targets []int32) error {
	if n < 0 || n >= t.Holdout() {
		return fmt.Errorf("data: %s: held-out sequence %d; there are %d", t.path, n, t.Holdout())
	}
	return t.window(t.size-t.held+n*int64(t.seq), ids, targets)
}

// window reads the seq+1 bytes at an offset.
func (t *text) window(at int64, ids, targets []int32) error {
	checkSlices(t.seq, ids, targets)
	p := t.buffers.Get().(*[]byte)
	defer t.buffers.Put(p)
	b := *p
	if n, err := t.file.ReadAt(b, at); n < len(b) {
		if errors.Is(err, io.EOF) {
			left := at + int64(n)
			if info, err := t.file.Stat(); err == nil {
				left = info.Size()
			}
			return fmt.Errorf("data: %s has shrunk since the run started: it had %d bytes and has %d now; restore it and resume", t.path, t.size, left)
		}
		return fmt.Errorf("data: %s: %d bytes at offset %d: %w", t.path, len(b), at, err)
	}
	for i := range ids {
		ids[i] = int32(b[i])
	}
	for i := range targets {
		targets[i] = int32(b[i+1])
	}
	return nil
}
