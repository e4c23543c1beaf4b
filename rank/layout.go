package rank

import (
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/model"
)

// Memory categories, as in the memory table of the plan and the summary.
const (
	catWeights     = "weights"
	catRounded     = "bf16 weights" // what the layers read, where that is not the weights themselves
	catVersions    = "old weights"  // of asynchronous schedules, while micro-batches read them
	catGradients   = "gradients"
	catOptimizer   = "optimizer"
	catActivations = "activations" // from F until I, or until W
	catP2Inputs    = "p2 inputs"   // from I until W
	catTransfers   = "transfers"
	catScratch     = "scratch"
)

const slotAlign = kernels.ArenaAlign

// layout places the slots of a stage's layers in the three blocks (one a life)
// of n micro-batches that one W covers. Within a block a slot's matrices of the n
// micro-batches lie one behind the other, so a concatenated W is one product
// without copying.
type layout struct {
	n     int
	off   [][]int64 // [layer][slot], bytes from the block's start
	total [3]int64  // bytes of the block of each life
}

func newLayout(layers []model.Layer, one model.Shape, n int) *layout {
	l := &layout{n: n}
	for _, layer := range layers {
		slots := layer.Slots()
		offs := make([]int64, len(slots))
		for i, s := range slots {
			t := &l.total[s.Life]
			offs[i] = *t
			*t += roundUp(s.Bytes(one.Times(n)), slotAlign)
		}
		l.off = append(l.off, offs)
	}
	return l
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }
