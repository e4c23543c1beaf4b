package model

import "fmt"

// Range is the layers [First, End) of a stage.
type Range struct{ First, End int }

// Cut shares the layers out over stages: the embedding with the first, the
// head with the last, at least one block each, so that the slowest stage has as
// few FLOPs as possible. Among equals it takes the most even cut, then the one
// with fewer blocks early on, since under 1F1B the first stages keep the most
// micro-batches. It fails when stages is below 1 or above the number of blocks.
func (m *Model) Cut(stages int) ([]Range, error) {
	blocks := m.Config.Layers
	if stages < 1 || stages > blocks {
		return nil, fmt.Errorf("model: cut into %d stages: there are %d blocks and a stage needs one at least; choose 1 to %d stages, or more layers",
			stages, blocks, blocks)
	}
	shape := Shape{1, m.Config.Seq}
	cost := func(i int) int64 {
		return m.Layers[i].FLOPs(PassForward, shape) + m.Layers[i].FLOPs(PassInput, shape) + m.Layers[i].FLOPs(PassWeight, shape)
	}
	c := cutter{stages: stages, blocks: blocks, first: cost(0), block: cost(1), last: cost(blocks + 1)}
	counts := c.best()

	cut := make([]Range, stages)
	at := 1
	for s, n := range counts {
		cut[s] = Range{at, at + n}
		at += n
	}
	cut[0].First = 0
	cut[stages-1].End = len(m.Layers)
	return cut, nil
}

// cutter works on numbers of blocks alone: blocks cost the same, so that only
// the ends differ.
type cutter struct {
	stages, blocks     int
	first, block, last int64
}

// best returns the blocks of each stage. The inner stages share what the ends leave
// as evenly as possible, so only the ends' shares need trying.
func (c cutter) best() []int {
	if c.stages == 1 {
		return []int{c.blocks}
	}
	inner := c.stages - 2
	var bestA, bestZ int
	var bestMax int64
	var bestSquares float64
	for a := 1; a <= c.blocks-inner-1; a++ {
		// Without inner stages the last takes all that the first leaves.
		z := 1
		if inner == 0 {
			z = c.blocks - a
		}
		for ; z <= c.blocks-inner-a; z++ {
			worst, squares := c.judge(a, c.blocks-a-z, z)
			if bestA == 0 || worst < bestMax || worst == bestMax && squares < bestSquares {
				bestA, bestZ, bestMax, bestSquares = a, z, worst, squares
			}
		}
	}
	counts := append([]int{bestA}, spread(c.blocks-bestA-bestZ, inner)...)
	return append(counts, bestZ)
}

// spread shares n out over parts as evenly as possible, larger shares last.
func spread(n, parts int) []int {
	out := make([]int, parts)
	for i := range out {
		out[i] = n / parts
		if i >= parts-n%parts {
			out[i]++
		}
	}
	return out
}

// judge returns the slowest stage's cost and the sum of the squares of all, for
// a blocks on the first stage, z on the last and rest on the inner ones.
func (c cutter) judge(a, rest, z int) (worst int64, squares float64) {
	add := func(cost int64, stages int) {
		if stages > 0 {
			worst = max(worst, cost)
			squares += float64(stages) * float64(cost) * float64(cost)
		}
	}
	add(c.first+int64(a)*c.block, 1)
	add(c.last+int64(z)*c.block, 1)
	if inner := c.stages - 2; inner > 0 {
		more := rest % inner
		add(int64(rest/inner)*c.block, inner-more)
		add(int64(rest/inner+1)*c.block, more)
	}
	return worst, squares
}
