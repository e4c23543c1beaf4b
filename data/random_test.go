package data

import (
	"fmt"
	"math"
	"testing"
)

func TestPermuteIsAPermutation(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 4, 5, 7, 16, 17, 64, 65, 1000, 4096, 4097, 50_000} {
		for key := range uint64(5) {
			seen := make([]bool, n)
			for i := range n {
				p := permute(i, n, key)
				if p >= n || seen[p] {
					t.Fatalf("n %d key %d: %d goes to %d, outside or taken", n, key, i, p)
				}
				seen[p] = true
			}
		}
	}
}

// Large domains, where a table could not check it: distinct results inside.
func TestPermuteLargeDomain(t *testing.T) {
	for _, n := range []uint64{1<<40 + 1, 1 << 62, 1<<63 - 1, math.MaxUint64} {
		seen := map[uint64]bool{}
		for i := range uint64(2000) {
			p := permute(n-1-i, n, 9)
			if p >= n || seen[p] {
				t.Fatalf("n %d: %d goes to %d", n, n-1-i, p)
			}
			seen[p] = true
		}
	}
}

// The order looks random: each place is equally likely for each index over the
// keys, and neighbours do not stay neighbours.
func TestPermuteLooksRandom(t *testing.T) {
	const n, keys = 24, 12_000
	var counts [n][n]float64
	neighbours, fixed := 0.0, 0.0
	for key := range uint64(keys) {
		last := uint64(n * 2)
		for i := range uint64(n) {
			p := permute(i, n, hash(1, 2, key))
			counts[i][p]++
			if p == last+1 {
				neighbours++
			}
			if p == i {
				fixed++
			}
			last = p
		}
	}
	// Chi-square over the n×n table has (n-1)² degrees of freedom.
	chi := 0.0
	for i := range counts {
		for p := range counts[i] {
			d := counts[i][p] - keys/n
			chi += d * d / (keys / n)
		}
	}
	freedom := float64((n - 1) * (n - 1))
	if z := (chi - freedom) / math.Sqrt(2*freedom); math.Abs(z) > 5 {
		t.Errorf("chi-square %.0f for %.0f degrees of freedom: %.1f standard deviations off", chi, freedom, z)
	}
	// One fixed point and (n-1)/n pairs of neighbours a permutation, on average.
	for what, got := range map[string]float64{"fixed points": fixed / keys, "neighbours": neighbours / keys * n / (n - 1)} {
		if math.Abs(got-1) > 5/math.Sqrt(keys) {
			t.Errorf("%.3f %s a permutation, want 1", got, what)
		}
	}
}

func TestBelow(t *testing.T) {
	const n, draws = 10, 100_000
	var counts [n]int
	for i := range uint64(draws) {
		counts[below(hash(3, 4, i), n)]++
	}
	for v, c := range counts {
		if math.Abs(float64(c)-draws/n) > 5*math.Sqrt(draws/n) {
			t.Errorf("%d comes %d times of %d", v, c, draws)
		}
	}
}

// The model that counts what follows what must reach the entropy that the
// source states, and a model that only counts tokens must not come near.
func TestSyntheticIsLearnable(t *testing.T) {
	const vocab, seq, n = 64, 128, 2000
	c := Config{Kind: "synthetic", Seed: 11, Seq: seq, Vocab: vocab}
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	pairs := make([][vocab]float64, vocab)
	var singles [vocab]float64
	ids, targets := make([]int32, seq), make([]int32, seq)
	for i := range int64(n) {
		if err := sequence(s, i, ids, targets); err != nil {
			t.Fatal(err)
		}
		for k := range ids {
			if ids[k] < 0 || ids[k] >= vocab || k > 0 && ids[k] != targets[k-1] {
				t.Fatalf("sequence %d: id %d at %d", i, ids[k], k)
			}
			pairs[ids[k]][targets[k]]++
			singles[targets[k]]++
		}
	}
	var bigram, unigram, count float64
	for i := range s.Holdout() {
		if err := holdout(s, i, ids, targets); err != nil {
			t.Fatal(err)
		}
		for k := range ids {
			row := pairs[ids[k]]
			total := 0.0
			for _, x := range row {
				total += x
			}
			bigram -= math.Log((row[targets[k]] + 0.5) / (total + 0.5*vocab))
			unigram -= math.Log(singles[targets[k]] / (n * seq))
			count++
		}
	}
	bigram, unigram = bigram/count, unigram/count
	floor := s.(*synthetic).Entropy()
	if math.Abs(bigram-floor) > 0.06 {
		t.Errorf("counting pairs reaches %.3f on held-out data, the entropy is %.3f", bigram, floor)
	}
	if math.Abs(unigram-math.Log(vocab)) > 0.05 {
		t.Errorf("counting tokens reaches %.3f; all tokens should be equally likely (%.3f)", unigram, math.Log(vocab))
	}
}

// What is evaluated on is never trained on.
func TestSyntheticHoldoutIsApart(t *testing.T) {
	s, err := Open(Config{Kind: "synthetic", Seed: 5, Seq: 32, Vocab: 256})
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]int32, 32)
	seen := map[string]bool{}
	for n := range int64(1000) {
		if err := sequence(s, n, ids, nil); err != nil {
			t.Fatal(err)
		}
		seen[fmt.Sprint(ids)] = true
	}
	if len(seen) != 1000 {
		t.Errorf("%d of 1000 training sequences are distinct", len(seen))
	}
	for n := range s.Holdout() {
		if err := holdout(s, n, ids, nil); err != nil {
			t.Fatal(err)
		}
		if seen[fmt.Sprint(ids)] {
			t.Errorf("held-out sequence %d is trained on", n)
		}
	}
}

func FuzzPermute(f *testing.F) {
	f.Add(uint64(3), uint64(10), uint64(1))
	f.Fuzz(func(t *testing.T, i, n, key uint64) {
		if n == 0 {
			return
		}
		i %= n
		p := permute(i, n, key)
		if p >= n {
			t.Fatalf("permute(%d, %d, %d) = %d", i, n, key, p)
		}
		if n > 1 {
			if j := (i + 1) % n; permute(j, n, key) == p {
				t.Fatalf("%d and %d of %d go to the same place under key %d", i, j, n, key)
			}
		}
	})
}

func BenchmarkTextSequence(b *testing.B) {
	path, _ := corpus(b, 1<<20)
	s := open(b, text256(path, 256, 0.05))
	ids, targets := make([]int32, 256), make([]int32, 256)
	b.SetBytes(256)
	for n := range b.N {
		if err := sequence(s, int64(n), ids, targets); err != nil {
			b.Fatal(err)
		}
	}
}
