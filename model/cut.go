package model

import (
	"fmt"
	"math/bits"
	"slices"
)

// Range is the layers [First, End) of a stage.
type Range struct{ First, End int }

// Cut shares the layers out over stages by their FLOPs, as Partition does. The first and
// the last layer are no stages of their own: embedding and head hold large matrices
// and, beside their neighbour, cost no message. It fails when stages is below 1 or
// above the number of the layers between.
func (m *Model) Cut(stages int) ([]Range, error) {
	n := len(m.Layers)
	blocks := max(1, n-2)
	if stages < 1 || stages > blocks {
		return nil, fmt.Errorf("model: cut into %d stages: there are %d blocks and a stage needs one at least; choose 1 to %d stages, or more layers",
			stages, blocks, blocks)
	}
	costs := make([]int64, blocks)
	for i := range m.Layers {
		costs[min(max(0, i-1), blocks-1)] += m.stepFLOPs(i)
	}
	cut := make([]Range, stages)
	at := 1
	for s, k := range Partition(costs, stages) {
		cut[s] = Range{at, at + k}
		at += k
	}
	cut[0].First, cut[stages-1].End = 0, n
	return cut, nil
}

// stepFLOPs returns the operations of all passes of a layer for one sample.
func (m *Model) stepFLOPs(layer int) (n int64) {
	for p := PassForward; p <= PassWeight; p++ {
		n += m.Layers[layer].FLOPs(p, m.Shape(1))
	}
	return n
}

// Partition cuts a list of costs into parts of consecutive ones, at least one each, and
// returns how many each part has. The largest part is as small as can be.
// Among such cuts it takes the most even one, by the sum of the squares, then the one
// with fewer costs early on, since under 1F1B the first stages keep the most
// micro-batches. The costs must be 0 or more, and add up within an int64.
func Partition(costs []int64, parts int) []int {
	n, slack := len(costs), len(costs)-parts
	bound := smallestBound(costs, parts)
	// Part p begins at cost p to p+slack. least[i] is the smallest sum of squares of costs[i:]
	// in the parts from p on, none above the bound; take[p][i-p] is how many part p has then.
	least := make([]square, n+1)
	for i := range n {
		least[i] = impossible
	}
	take := make([][]int32, parts)
	for p := parts - 1; p >= 0; p-- {
		take[p] = make([]int32, slack+1)
		next := slices.Clone(least)
		for i := range least {
			least[i] = impossible
		}
		for i := p; i <= p+slack; i++ {
			var sum int64
			for end := i + 1; end <= p+1+slack; end++ {
				if sum += costs[end-1]; sum > bound {
					break
				}
				if next[end] == impossible {
					continue
				}
				if s := next[end].plus(sum); s.less(least[i]) {
					least[i], take[p][i-p] = s, int32(end-i)
				}
			}
		}
	}
	counts, at := make([]int, parts), 0
	for p := range counts {
		counts[p] = int(take[p][at-p])
		at += counts[p]
	}
	return counts
}

// smallestBound returns the least cost that the largest of the parts must have.
func smallestBound(costs []int64, parts int) int64 {
	var low, high int64 // high is enough
	for _, c := range costs {
		low, high = max(low, c), high+c
	}
	for low < high {
		bound := low + (high-low)/2
		need, sum := 1, int64(0)
		for _, c := range costs {
			if sum+c > bound {
				need, sum = need+1, 0
			}
			sum += c
		}
		if need <= parts {
			high = bound
		} else {
			low = bound + 1
		}
	}
	return low
}

// square is a sum of squares in 128 bits: ties are broken exactly.
type square struct{ high, low uint64 }

var impossible = square{1<<64 - 1, 1<<64 - 1}

// plus returns s + x².
func (s square) plus(x int64) square {
	high, low := bits.Mul64(uint64(x), uint64(x))
	low, carry := bits.Add64(low, s.low, 0)
	high, _ = bits.Add64(high, s.high, carry)
	return square{high, low}
}

func (s square) less(t square) bool {
	return s.high < t.high || s.high == t.high && s.low < t.low
}
