package model

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cpu"
)

// openCPU opens the CPU as a rank does, on one thread.
func openCPU(t testing.TB) kernels.Device {
	return open(t, cpu.Options{Threads: 1})
}

// ways are the ways in which the CPU computes: with what this machine has, with
// nothing but Go, on two threads.
var ways = map[string]cpu.Options{
	"cpu":         {Threads: 1},
	"plain Go":    {Threads: 1, BLAS: "go", ISA: "go"},
	"two threads": {Threads: 2},
}

func open(t testing.TB, o cpu.Options) kernels.Device {
	t.Helper()
	d, err := cpu.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// trial is a layer with values for some micro-batches of one shape.
type trial struct {
	cfg     Config
	layer   Layer
	shape   Shape
	n       int // micro-batches
	weights [][]float32
	x       [][]float32 // of each micro-batch; nil for Embed
	ids     [][]int32   // Embed's input or Head's targets
	dy      [][]float32 // nil for Head
	scale   float32     // LossScale
	known   *expectation
	spare   tape // memory of a tape that is done
}

// expectation is what the reference says, kept since it does not change.
type expectation struct{ out, dx, grads [][]float64 }

func newTrial(cfg Config, layer Layer, batch, n int) *trial {
	r := rand.New(rand.NewPCG(7, uint64(cfg.Dim)))
	t := &trial{cfg: cfg, layer: layer, shape: Shape{Batch: batch, Seq: cfg.Seq}, n: n, scale: 0.37}
	fill := func(n int, std, mean float64) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(mean + std*r.NormFloat64())
			if cfg.Type == kernels.BF16 { // 8 bits: what it can hold
				_, exp := math.Frexp(float64(v[i]))
				unit := math.Ldexp(1, exp-8)
				v[i] = float32(math.RoundToEven(float64(v[i])/unit) * unit)
			}
		}
		return v
	}
	for _, p := range layer.Params() {
		if p.Vector {
			t.weights = append(t.weights, fill(int(p.Len()), 0.2, 1))
		} else {
			t.weights = append(t.weights, fill(int(p.Len()), 1/math.Sqrt(float64(p.Cols)), 0))
		}
	}
	rows := t.shape.Rows()
	for range n {
		ids := make([]int32, rows)
		for i := range ids {
			ids[i] = int32(r.IntN(cfg.Vocab))
		}
		t.ids = append(t.ids, ids)
		t.x = append(t.x, fill(rows*cfg.Dim, 1, 0))
		t.dy = append(t.dy, fill(rows*cfg.Dim, 1, 0))
	}
	return t
}

// outcome is what a layer computed; nil dx where nobody asked.
type outcome struct {
	out, dx [][]float32 // of each micro-batch
	grads   [][]float32
}

// call is one pass of one or, for backward-p2, several micro-batches.
type call struct {
	pass        Pass
	first, last int
}

// Orders of the passes over n micro-batches.
func fused(n int) (calls []call) {
	for k := range n {
		calls = append(calls, call{PassForward, k, k}, call{PassInput, k, k}, call{PassWeight, k, k})
	}
	return calls
}

func split(n int) (calls []call) { // all forwards, all p1, then all p2, one at a time
	for _, p := range []Pass{PassForward, PassInput, PassWeight} {
		for k := range n {
			calls = append(calls, call{p, k, k})
		}
	}
	return calls
}

func concat(n int) []call {
	return append(split(n)[:2*n], call{PassWeight, 0, n - 1})
}

// memory is that of a trial: every buffer stands between guards, and what
// is not alive holds NaN.
type memory struct {
	dev    kernels.Device
	all    kernels.Buffer
	used   int64
	guards []kernels.Buffer
}

const guardBytes = 256

func (m *memory) take(n int64, t kernels.DType) kernels.Buffer {
	bytes := (n*t.Size() + 255) / 256 * 256
	m.guards = append(m.guards, m.all.Slice(m.used+n*t.Size(), bytes-n*t.Size()+guardBytes))
	b := m.all.Slice(m.used, n*t.Size()).As(t)
	m.used += bytes + guardBytes
	return b
}

// poisonAt is byte i of the poison in b, a NaN in f32 and in bf16, by its address.
func poisonAt(b kernels.Buffer, i int) byte {
	return [2]byte{0xde, 0x7f}[(b.Addr+uintptr(i))%2]
}

// poison fills b with NaN, ids and targets with 0: wrong, yet no reason to panic.
func (m *memory) poison(b kernels.Buffer) {
	if b.Empty() {
		return
	}
	raw := make([]byte, b.Bytes())
	for i := range raw {
		if b.Type != kernels.I32 {
			raw[i] = poisonAt(b, i)
		}
	}
	m.dev.CopyIn(b, raw)
}

// run performs the calls as an engine would and returns what came out, or what
// the layer did that it must not: written outside its buffers, changed weights.
func (tr *trial) run(dev kernels.Device, calls []call, wantDX bool) (*outcome, error) {
	slots := tr.layer.Slots()
	big := tr.shape.Times(tr.n)
	var work int64
	for _, p := range []Pass{PassForward, PassInput, PassWeight} {
		work = max(work, tr.layer.Work(p, dev, tr.shape), tr.layer.Work(p, dev, big))
	}
	bytes := work*4 + 8*1024 + tr.layer.Out().Bytes(big) + tr.layer.In().Bytes(big)
	for _, s := range slots {
		bytes += s.Bytes(big) + 1024
	}
	for _, w := range tr.weights {
		bytes += int64(len(w))*8 + 2048
	}
	all, err := dev.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	defer dev.Free(all)
	m := &memory{dev: dev, all: all}
	m.poison(all.Slice(0, all.Len/4*4))

	var weights, grads []kernels.Buffer
	for _, w := range tr.weights {
		b := m.take(int64(len(w)), tr.cfg.Type)
		dev.CopyIn(b, bytesAs(tr.cfg.Type, w))
		weights = append(weights, b)
		g := m.take(int64(len(w)), kernels.F32)
		dev.Zero(g)
		grads = append(grads, g)
	}
	// A slot's micro-batches stand one after another, as backward-p2 sees them.
	held := make([]kernels.Buffer, len(slots))
	for i, s := range slots {
		held[i] = m.take(s.Len(big), s.Type)
		m.poison(held[i])
	}
	part := func(slot, first, last int) kernels.Buffer {
		one := slots[slot].Len(tr.shape)
		return held[slot].Slice(int64(first)*one, int64(last-first+1)*one)
	}
	out := m.take(tr.layer.Out().Len(tr.shape), tr.layer.Out().Type)
	dx := m.take(tr.layer.In().Len(tr.shape), tr.cfg.Type)
	scratch := m.take(work, kernels.F32)

	res := &outcome{out: make([][]float32, tr.n), dx: make([][]float32, tr.n)}
	for _, c := range calls {
		shape := tr.shape.Times(c.last - c.first + 1)
		lc := &Call{Dev: dev, Shape: shape, Weights: weights, LossScale: tr.scale}
		// Exactly the scratch that the layer asked for this pass, not a float more.
		need := tr.layer.Work(c.pass, dev, shape)
		m.poison(scratch)
		lc.Work = scratch.Slice(0, need)
		for i, s := range slots {
			var b kernels.Buffer
			if s.Life.Alive(c.pass) {
				b = part(i, c.first, c.last)
			}
			lc.Slots = append(lc.Slots, b)
			switch {
			case s.Field != "" && c.pass == PassForward:
				dev.CopyIn(b, i32Bytes(tr.ids[c.first]))
			case s.Name == SlotX && c.pass == PassForward:
				dev.CopyIn(b, bytesAs(s.Type, tr.x[c.first]))
			case s.Name == SlotDY && c.pass == PassInput:
				dev.CopyIn(b, bytesAs(s.Type, tr.dy[c.first]))
			}
		}
		m.poison(out)
		m.poison(dx)
		switch c.pass {
		case PassForward:
			lc.Out = out
			tr.layer.Forward(lc)
			res.out[c.first] = readF32(dev, out)
		case PassInput:
			if wantDX {
				lc.DX = dx
			}
			tr.layer.BackwardInput(lc)
			if wantDX {
				res.dx[c.first] = readF32(dev, dx)
			} else if err := m.untouched(dx); err != nil {
				return nil, fmt.Errorf("BackwardInput without DX: %w", err)
			}
		case PassWeight:
			lc.Grads = grads
			tr.layer.BackwardWeight(lc)
		}
		// What this pass ended is gone.
		for i, s := range slots {
			if c.pass == PassInput && s.Life == UntilInput || c.pass == PassWeight {
				m.poison(part(i, c.first, c.last))
			}
		}
		if err := m.untouched(scratch.Slice(need, scratch.Len-need)); err != nil {
			return nil, fmt.Errorf("scratch beyond Work(pass %d): %w", c.pass, err)
		}
	}
	for i, g := range grads {
		res.grads = append(res.grads, readF32(dev, g))
		if !slices.Equal(readF32(dev, weights[i]), tr.weights[i]) {
			return nil, fmt.Errorf("weight %d was changed", i)
		}
	}
	for i, g := range m.guards {
		if err := m.untouched(g); err != nil {
			return nil, fmt.Errorf("guard %d: %w", i, err)
		}
	}
	return res, dev.Sync()
}

// untouched says whether b still holds the poison of f32 buffers and guards.
func (m *memory) untouched(b kernels.Buffer) error {
	raw := make([]byte, b.Bytes())
	if len(raw) == 0 {
		return nil
	}
	m.dev.CopyOut(raw, b)
	for i, got := range raw {
		if got != poisonAt(b, i) {
			return fmt.Errorf("byte %d was written", i)
		}
	}
	return nil
}

func f32Bytes(v []float32) []byte {
	out := make([]byte, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(x))
	}
	return out
}

func i32Bytes(v []int32) []byte {
	out := make([]byte, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(out[4*i:], uint32(x))
	}
	return out
}

// bytesAs returns numbers that a type holds exactly as it holds them.
func bytesAs(t kernels.DType, v []float32) []byte {
	out := f32Bytes(v)
	if t == kernels.BF16 {
		for i := range v {
			copy(out[2*i:2*i+2], out[4*i+2:4*i+4])
		}
		out = out[:2*len(v)]
	}
	return out
}

func readF32(dev kernels.Device, b kernels.Buffer) []float32 {
	raw := make([]byte, b.Bytes())
	dev.CopyOut(raw, b)
	out := make([]float32, b.Len)
	if b.Type == kernels.BF16 {
		for i := range out {
			out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[2*i:])) << 16)
		}
		return out
	}
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

// apart returns the largest difference as a part of want's largest number.
func apart[T, U float32 | float64](got []T, want []U) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	var diff, size float64
	for i := range want {
		d := math.Abs(float64(got[i]) - float64(want[i]))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		diff, size = max(diff, d), max(size, math.Abs(float64(want[i])))
	}
	if diff == 0 {
		return 0
	}
	return diff / size
}
