package rank

import (
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/model"
)

// Memory categories, as in the memory table of the plan and the summary.
const (
	catWeights     = "weights"
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

func newLayout(layers []model.Layer, rows, n int) *layout {
	l := &layout{n: n}
	for _, layer := range layers {
		slots := layer.Slots()
		offs := make([]int64, len(slots))
		for i, s := range slots {
			t := &l.total[s.Life]
			offs[i] = *t
			*t += roundUp(int64(n)*slotBytes(s, rows), slotAlign)
		}
		l.off = append(l.off, offs)
	}
	return l
}

func slotBytes(s model.Slot, rows int) int64 {
	return int64(rows) * int64(s.Width) * s.Type.Size()
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

// slotIndex returns the index of the named slot of a layer, or -1.
func slotIndex(l model.Layer, name string) int {
	for i, s := range l.Slots() {
		if s.Name == name {
			return i
		}
	}
	return -1
}

// paramPlace is where a parameter lies in its stage's flat buffers.
type paramPlace struct {
	model.Param
	index int   // in the whole model, counting every copy of a tied one
	off   int64 // elements
}

// flatten places the parameters of layers [from, to) of a model in one flat
// buffer: those with weight decay first, so that one optimizer call covers
// each of the two runs. Each starts on an aligned address; the padding stays
// zero through reduction and update. starts[i] counts the model's parameters
// before layer i.
func flatten(layers []model.Layer, from, to int, starts []int) (places [][]paramPlace, decayed, total int64) {
	const step = kernels.ArenaAlign / 4
	places = make([][]paramPlace, to-from)
	for i := from; i < to; i++ {
		places[i-from] = make([]paramPlace, len(layers[i].Params()))
	}
	for _, decay := range []bool{true, false} {
		for i := from; i < to; i++ {
			for j, p := range layers[i].Params() {
				if p.Decay != decay {
					continue
				}
				places[i-from][j] = paramPlace{Param: p, index: starts[i] + j, off: total}
				total += roundUp(p.Len(), step)
			}
		}
		if decay {
			decayed = total
		}
	}
	return places, decayed, total
}

// paramStarts returns for each layer how many parameters the layers before it have,
// and the number of all.
func paramStarts(layers []model.Layer) (starts []int, all int) {
	for _, l := range layers {
		starts = append(starts, all)
		all += len(l.Params())
	}
	return starts, all
}
