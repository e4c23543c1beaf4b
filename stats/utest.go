package stats

import (
	"math"
	"slices"
)

// Largest samples whose U test is exact; beyond, it is by the normal distribution with corrections
// for ties and continuity.
const (
	exactU     = 50
	exactUTies = 25
)

// UTest returns the two-sided p-value of the U test of Mann and Whitney: how often two samples of one
// distribution would lie as far apart as these or farther. Ties count half, and the distribution of U
// is exact for them too. It is 1 where a sample is empty or all values are equal.
func UTest(a, b []float64) float64 {
	if len(a) == 0 || len(b) == 0 {
		return 1
	}
	ties, u := rankSum(a, b)
	n, m := len(a), len(b)
	if len(ties) == 1 {
		return 1
	}
	limit := exactU
	if len(ties) < n+m {
		limit = exactUTies
	}
	if max(n, m) > limit {
		return normalU(n, m, ties, float64(u)/2)
	}
	small := min(u, 2*n*m-u)
	if 2*small == 2*n*m { // the middle of a symmetric distribution
		return 1
	}
	return min(1, 2*lowerU(n, m, ties, small))
}

// rankSum returns the sizes of the groups of equal values, in order, and 2U of the sample a.
func rankSum(a, b []float64) (ties []int, doubleU int) {
	type value struct {
		x   float64
		ofA bool
	}
	all := make([]value, 0, len(a)+len(b))
	for _, x := range a {
		all = append(all, value{x, true})
	}
	for _, x := range b {
		all = append(all, value{x, false})
	}
	slices.SortFunc(all, func(p, q value) int {
		switch {
		case p.x < q.x:
			return -1
		case p.x > q.x:
			return 1
		}
		return 0
	})
	below := 0 // values of b passed
	for i := 0; i < len(all); {
		j, ofA := i, 0
		for ; j < len(all) && all[j].x == all[i].x; j++ {
			if all[j].ofA {
				ofA++
			}
		}
		ofB := j - i - ofA
		doubleU += ofA * (2*below + ofB)
		below += ofB
		ties = append(ties, j-i)
		i = j
	}
	return ties, doubleU
}

// lowerU returns P(2U ≤ limit) for samples of n and m values with the given groups of equal values:
// all ways to deal the n places of the first sample to the groups, by the 2U that they make.
func lowerU(n, m int, ties []int, limit int) float64 {
	// ways[k][s]: ways to take k values for the first sample with 2U = s.
	ways := make([][]float64, n+1)
	for k := range ways {
		ways[k] = make([]float64, limit+1)
	}
	ways[0][0] = 1
	passed := 0
	for _, size := range ties {
		for k := min(n, passed+size); k >= 0; k-- {
			next := make([]float64, limit+1)
			for take := range size + 1 {
				before := k - take
				if before < 0 || before > passed {
					continue
				}
				others := passed - before // of the second sample, in groups below
				add := take * (2*others + size - take)
				choose := binomial(size, take)
				for s := add; s <= limit; s++ {
					next[s] += choose * ways[before][s-add]
				}
			}
			ways[k] = next
		}
		passed += size
	}
	sum := 0.0
	for _, w := range ways[n] {
		sum += w
	}
	return sum / binomial(n+m, n)
}

func binomial(n, k int) float64 {
	x := 1.0
	for i := 1; i <= min(k, n-k); i++ {
		x = x * float64(n-min(k, n-k)+i) / float64(i)
	}
	return math.Round(x)
}

// normalU is the p-value by the normal distribution.
func normalU(n, m int, ties []int, u float64) float64 {
	correction := 0.0
	for _, t := range ties {
		correction += float64(t) * (float64(t)*float64(t) - 1)
	}
	all, product := float64(n+m), float64(n)*float64(m)
	sd := math.Sqrt(product * ((all + 1) - correction/(all*(all-1))) / 12)
	away := math.Abs(u-product/2) - 0.5
	if away < 0 { // u is the mean itself
		away = 0
	}
	return math.Erfc(away / (sd * math.Sqrt2))
}
