package data

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// corpus writes a file of n bytes in which every 4 neighbours are unlike any others.
func corpus(t testing.TB, n int) (string, []byte) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	path := filepath.Join(t.TempDir(), "corpus")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path, b
}

func open(t testing.TB, c Config) Source {
	t.Helper()
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// wanted is a Sample of ids and targets, either of which may be nil.
func wanted(ids, targets []int32) Sample {
	into := Sample{}
	for name, v := range map[string][]int32{IDs: ids, Targets: targets} {
		if v != nil {
			into[name] = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
		}
	}
	return into
}

func sequence(s Source, n int64, ids, targets []int32) error {
	return s.Sample(n, wanted(ids, targets))
}

func holdout(s Source, n int64, ids, targets []int32) error {
	return s.HoldoutSample(n, wanted(ids, targets))
}

func text256(path string, seq int, holdout float64) Config {
	return Config{Kind: "text", Path: path, Seed: 7, Seq: seq, Vocab: 256, Holdout: holdout}
}

// An epoch visits every window of the training part once and no byte of the
// held-out part; targets are the ids moved by one.
func TestTextEpochCoversTrainingPart(t *testing.T) {
	for _, size := range []int{12, 16, 17, 18, 100, 1000, 4097} {
		const seq = 8
		path, b := corpus(t, size)
		s := open(t, text256(path, seq, 0.25))
		train := b[:size-size/4]
		if want := int64((len(train) - 1) / seq); s.Epoch() != want {
			t.Fatalf("%d bytes: %d windows, want %d", size, s.Epoch(), want)
		}
		for epoch := range int64(3) {
			seen := map[int]bool{}
			for n := range s.Epoch() {
				ids, targets := make([]int32, seq), make([]int32, seq)
				if err := sequence(s, epoch*s.Epoch()+n, ids, targets); err != nil {
					t.Fatal(err)
				}
				at := find(train, ids, targets)
				if at < 0 || at%seq != 0 || seen[at/seq] {
					t.Fatalf("%d bytes, epoch %d, sequence %d: window at %d, seen before: %v", size, epoch, n, at, seen[at/seq])
				}
				seen[at/seq] = true
			}
		}
	}
}

// find returns the offset of a window in b, -1 when it is not there.
func find(b []byte, ids, targets []int32) int {
	for at := 0; at+len(ids) < len(b); at++ {
		ok := true
		for i := range ids {
			if int32(b[at+i]) != ids[i] || int32(b[at+i+1]) != targets[i] {
				ok = false
				break
			}
		}
		if ok {
			return at
		}
	}
	return -1
}

func TestTextEpochsDifferInOrder(t *testing.T) {
	path, _ := corpus(t, 10001)
	s := open(t, text256(path, 10, 0))
	other := open(t, Config{Kind: "text", Path: path, Seed: 8, Seq: 10, Vocab: 256})
	var first, second, seeded []int32
	for n := range int64(40) {
		for _, x := range []struct {
			s   Source
			n   int64
			all *[]int32
		}{{s, n, &first}, {s, n + s.Epoch(), &second}, {other, n, &seeded}} {
			ids := make([]int32, 10)
			if err := sequence(x.s, x.n, ids, nil); err != nil {
				t.Fatal(err)
			}
			*x.all = append(*x.all, ids...)
		}
	}
	if slices.Equal(first, second) || slices.Equal(first, seeded) {
		t.Fatal("the order is the same in another epoch or with another seed")
	}
}

// Every cut of a step gives the same global batch in the same order.
func TestCutsSeeTheSameBatch(t *testing.T) {
	path, _ := corpus(t, 3000)
	for _, s := range []Source{open(t, text256(path, 16, 0.05)), open(t, Config{Kind: "synthetic", Seed: 3, Seq: 16, Vocab: 50})} {
		const batch = 24
		for step := 1; step <= 20; step += 7 { // the text has 178 windows: the steps pass into further epochs
			wantIDs, wantTargets := global(t, s, Cut{batch, 1, 1}, step)
			for _, c := range []Cut{{batch, 1, 24}, {batch, 2, 3}, {batch, 3, 4}, {batch, 24, 1}, {batch, 4, 6}} {
				ids, targets := global(t, s, c, step)
				if !slices.Equal(ids, wantIDs) || !slices.Equal(targets, wantTargets) {
					t.Fatalf("step %d: cut %+v sees another batch", step, c)
				}
			}
		}
	}
}

func global(t *testing.T, s Source, c Cut, step int) (ids, targets []int32) {
	t.Helper()
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	n := c.Size() * s.Fields()[0].Len
	for r := range c.Replicas {
		for k := range c.Microbatches {
			x, y := make([]int32, n), make([]int32, n)
			if err := Read(s, c, step, r, k, wanted(x, y)); err != nil {
				t.Fatal(err)
			}
			// One of the two alone is the same.
			only := make([]int32, n)
			if err := Read(s, c, step, r, k, wanted(nil, only)); err != nil || !slices.Equal(only, y) {
				t.Fatalf("targets alone differ (%v)", err)
			}
			ids, targets = append(ids, x...), append(targets, y...)
		}
	}
	return ids, targets
}

func TestStepsFollowEachOther(t *testing.T) {
	c := Cut{Batch: 12, Replicas: 2, Microbatches: 3}
	next := int64(0)
	for step := 1; step <= 4; step++ {
		for r := range 2 {
			for k := range 3 {
				if got := c.First(step, r, k); got != next {
					t.Fatalf("step %d replica %d micro-batch %d starts at %d, want %d", step, r, k, got, next)
				}
				next += int64(c.Size())
			}
		}
	}
}

func TestCutCheck(t *testing.T) {
	for _, c := range []Cut{{}, {10, 3, 1}, {10, 1, 4}, {-8, 2, 2}, {8, 0, 2}, {8, 2, -2}} {
		if c.Check() == nil {
			t.Errorf("cut %+v passes", c)
		}
	}
}

func TestHoldoutIsTheEnd(t *testing.T) {
	path, b := corpus(t, 1000)
	s := open(t, text256(path, 16, 0.1))
	if s.Holdout() != 6 { // (100 - 1) / 16
		t.Fatalf("%d held-out sequences, want 6", s.Holdout())
	}
	ids, targets := make([]int32, 16), make([]int32, 16)
	for n := range s.Holdout() {
		if err := holdout(s, n, ids, targets); err != nil {
			t.Fatal(err)
		}
		if at := find(b, ids, targets); at != 900+16*int(n) {
			t.Errorf("held-out sequence %d is at %d, want %d", n, at, 900+16*n)
		}
	}
	for _, n := range []int64{-1, 6, math.MaxInt64} {
		if holdout(s, n, ids, targets) == nil {
			t.Errorf("held-out sequence %d exists", n)
		}
	}
	if none := open(t, text256(path, 16, 0.01)); none.Holdout() != 0 {
		t.Errorf("10 bytes hold %d sequences of 16", none.Holdout())
	}
}

// Random sizes: every sequence that is promised can be read, lies in its part,
// and nothing that is promised is missing.
func TestTextParts(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 150 {
		size, seq, share := 2+r.IntN(3000), 1+r.IntN(200), float64(r.IntN(51))/100
		path, b := corpus(t, size)
		held := int(share * float64(size))
		s, err := Open(text256(path, seq, share))
		if err != nil {
			if size-held >= seq+1 {
				t.Fatalf("%d bytes, seq %d, holdout %v: %v", size, seq, share, err)
			}
			continue
		}
		ids, targets := make([]int32, seq), make([]int32, seq)
		within := func(n, from, to int) {
			for i := range ids {
				at := from + n*seq + i
				if at+1 >= to || ids[i] != int32(b[at]) || targets[i] != int32(b[at+1]) {
					t.Fatalf("%d bytes, seq %d, holdout %v: window %d of [%d, %d) is wrong at %d", size, seq, share, n, from, to, i)
				}
			}
		}
		for n := range s.Epoch() {
			if err := sequence(s, n, ids, targets); err != nil {
				t.Fatal(err)
			}
			window := permute(uint64(n), uint64(s.Epoch()), hash(7, streamOrder, 0))
			within(int(window), 0, size-held)
		}
		for n := range s.Holdout() {
			if err := holdout(s, n, ids, targets); err != nil {
				t.Fatal(err)
			}
			within(int(n), size-held, size)
		}
		if int(s.Epoch())*seq+seq+1 <= size-held || held > 0 && int(s.Holdout())*seq+seq+1 <= held {
			t.Fatalf("%d bytes, seq %d, holdout %v: %d and %d windows leave some out", size, seq, share, s.Epoch(), s.Holdout())
		}
		s.Close()
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	short := filepath.Join(dir, "short")
	if err := os.WriteFile(short, []byte("only a few"), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]Config{
		"no kind is called \"pictures\"":                  {Kind: "pictures", Seq: 4, Vocab: 256},
		"no format is called \"\"":                        {Kind: "tokens", Seq: 4, Vocab: 256},
		"does not exist":                                  text256(filepath.Join(dir, "nix"), 4, 0),
		"matches no file":                                 text256(filepath.Join(dir, "*.txt"), 4, 0),
		"is a folder":                                     text256(dir, 4, 0),
		"no regular file":                                 text256("/dev/zero", 4, 0),
		"10 bytes to train on; a sequence with its":       text256(short, 10, 0),
		"5 bytes to train on":                             text256(short, 9, 0.5),
		"a vocabulary of 255; the bytes":                  {Kind: "text", Path: short, Seq: 4, Vocab: 255},
		"a vocabulary of 1; synthetic data needs 2":       {Kind: "synthetic", Seq: 4, Vocab: 1},
		"a sequence of 0 tokens":                          text256(short, 0, 0),
		"holdout 0.6; it must":                            text256(short, 4, 0.6),
		"holdout NaN; it must lie between":                text256(short, 4, math.NaN()),
		"a sequence of 9223372036854775807 tokens; it mu": text256(short, math.MaxInt, 0),
	} {
		s, err := Open(c)
		if err == nil {
			s.Close()
			t.Errorf("%+v opens; want %q", c, want)
		} else if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "data: ") {
			t.Errorf("%+v: %q, want %q in it", c, err, want)
		}
	}
	if s, err := Open(text256(short, 9, 0)); err != nil || s.Epoch() != 1 {
		t.Errorf("seq + 1 bytes are enough: %v", err)
	}
}

// A corpus larger than memory costs neither time nor memory to open, and its
// far end is read like the rest.
func TestTextHuge(t *testing.T) {
	path, _ := corpus(t, 10)
	const size = 1 << 42
	if err := os.Truncate(path, size); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
	s := open(t, text256(path, 1024, 0.05))
	if want := int64((size - size/20 - 1) / 1024); s.Epoch() != want {
		t.Errorf("%d windows, want %d", s.Epoch(), want)
	}
	ids := make([]int32, 1024)
	for _, n := range []int64{0, s.Epoch() - 1, s.Epoch(), math.MaxInt64} {
		if err := sequence(s, n, ids, nil); err != nil {
			t.Errorf("sequence %d: %v", n, err)
		}
	}
	if err := holdout(s, s.Holdout()-1, ids, nil); err != nil {
		t.Error(err)
	}
}

// A file that shrinks is an error that says so, not a crash.
func TestTextShrinks(t *testing.T) {
	path, _ := corpus(t, 5000)
	s := open(t, text256(path, 99, 0))
	if err := os.Truncate(path, 1000); err != nil {
		t.Fatal(err)
	}
	failed := false
	ids := make([]int32, 99)
	for n := range s.Epoch() {
		if err := sequence(s, n, ids, nil); err != nil {
			failed = true
			if !strings.Contains(err.Error(), "has shrunk since the run started: it had 5000 bytes and has 1000 now") {
				t.Fatal(err)
			}
		}
	}
	if !failed {
		t.Fatal("reading past the end went unnoticed")
	}
}

func TestFingerprint(t *testing.T) {
	path, b := corpus(t, 500_000)
	a := open(t, text256(path, 16, 0)).Fingerprint()
	if again := open(t, text256(path, 16, 0)).Fingerprint(); again != a {
		t.Fatalf("%q, then %q", a, again)
	}
	if open(t, text256(path, 17, 0)).Fingerprint() == a {
		t.Error("another length of sequence has the same fingerprint")
	}
	for _, at := range []int{0, len(b) / 2, len(b) - 1} {
		changed := slices.Clone(b)
		changed[at] ^= 1
		if err := os.WriteFile(path, changed, 0o644); err != nil {
			t.Fatal(err)
		}
		if open(t, text256(path, 16, 0)).Fingerprint() == a {
			t.Errorf("byte %d changed, the fingerprint did not", at)
		}
	}
}

func TestReadRefusesWhatIsOutside(t *testing.T) {
	s := open(t, Config{Kind: "synthetic", Seq: 4, Vocab: 9})
	c := Cut{8, 2, 2}
	ids := make([]int32, 8)
	for _, at := range [][3]int{{0, 0, 0}, {1, -1, 0}, {1, 2, 0}, {1, 0, -1}, {1, 0, 2}} {
		if err := Read(s, c, at[0], at[1], at[2], wanted(ids, nil)); err == nil {
			t.Errorf("step, replica, micro-batch %v passes", at)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a slice of the wrong length passes")
		}
	}()
	_ = Read(s, c, 1, 0, 0, wanted(ids[:7], nil))
}

func TestConcurrentReadsAgree(t *testing.T) {
	path, _ := corpus(t, 20_000)
	s := open(t, text256(path, 64, 0))
	want := make([]int32, 64)
	if err := sequence(s, 5, want, nil); err != nil {
		t.Fatal(err)
	}
	done := make(chan bool)
	for g := range 4 {
		go func() {
			ok := true
			ids := make([]int32, 64)
			for n := range int64(200) {
				if sequence(s, n+int64(g), ids, nil) != nil || sequence(s, 5, ids, nil) != nil || !slices.Equal(ids, want) {
					ok = false
				}
			}
			done <- ok
		}()
	}
	for range 4 {
		if !<-done {
			t.Error("a read at the same time as others gave something else")
		}
	}
}

// The digest covers every byte, where the fingerprint takes samples.
func TestDigest(t *testing.T) {
	path, b := corpus(t, 500_000)
	digest := func() (string, string) {
		s := open(t, text256(path, 16, 0))
		sum, err := s.(Digester).Digest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return sum, s.Fingerprint()
	}
	sum, print := digest()
	if want := fmt.Sprintf("sha256=%x", sha256.Sum256(b)); sum != want {
		t.Errorf("digest %s, want %s", sum, want)
	}
	b[100_000] ^= 1
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if now, same := digest(); now == sum || same != print {
		t.Errorf("a byte between the samples changed: digest %s, fingerprint %s", now, same)
	}
	s := open(t, text256(path, 16, 0))
	if err := os.Truncate(path, 1000); err != nil {
		t.Fatal(err)
	}
	if _, err := s.(Digester).Digest(t.Context()); err == nil || !strings.Contains(err.Error(), "has shrunk") {
		t.Errorf("of a text that shrank: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.(Digester).Digest(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
