package model

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestPartition compares with every possible partition of lists of unlike costs.
func TestPartition(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	for range 400 {
		costs := make([]int64, 1+r.IntN(9))
		for i := range costs {
			costs[i] = int64(r.IntN(6)) // zeros and ties among them
		}
		for parts := 1; parts <= len(costs); parts++ {
			var best []int
			var bestMost, bestSquares int64
			var try func(counts []int, at int)
			try = func(counts []int, at int) {
				if len(counts) < parts {
					for k := 1; at+k <= len(costs)-(parts-1-len(counts)); k++ {
						try(append(slices.Clone(counts), k), at+k)
					}
					return
				}
				if at < len(costs) {
					return
				}
				var most, squares int64
				at = 0
				for _, k := range counts {
					var sum int64
					for _, c := range costs[at : at+k] {
						sum += c
					}
					at += k
					most, squares = max(most, sum), squares+sum*sum
				}
				// Counts come in lexicographic order: the first of equals is that with fewer early on.
				if best == nil || most < bestMost || most == bestMost && squares < bestSquares {
					best, bestMost, bestSquares = counts, most, squares
				}
			}
			try(nil, 0)
			if got := Partition(costs, parts); !slices.Equal(got, best) {
				t.Fatalf("%v in %d parts: %v, best %v", costs, parts, got, best)
			}
		}
	}
}

// Squares beyond 64 bits are compared exactly, and thousands of layers take no time to speak of.
func TestPartitionOfMuch(t *testing.T) {
	big := int64(1) << 60
	if got := Partition([]int64{big, big - 1, 1, big}, 3); !slices.Equal(got, []int{1, 2, 1}) {
		t.Errorf("%v", got)
	}
	costs := make([]int64, 4096)
	for i := range costs {
		costs[i] = 1e12 + int64(i%7)
	}
	start := time.Now()
	for _, parts := range []int{1, 2, 64, 2048, 4095, 4096} {
		at := 0
		for _, k := range Partition(costs, parts) {
			at += k
		}
		if at != len(costs) {
			t.Errorf("%d parts have %d costs", parts, at)
		}
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}
