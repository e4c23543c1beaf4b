package model

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/stats"
)

// BenchmarkBlocks runs forward and backward of 4 blocks (d = 512, 8 heads, seq
// 256, micro-batch 4) on one thread, and between the passes the device's own matrix
// product of 1024³, since the rate of a shared machine changes within minutes.
// It reports medians: GFLOP/s of the model's operations, the milliseconds of each
// pass, and what part of the product's rate the blocks reach. Times are the
// thread's own CPU time: on a busy machine the clock on the wall would count
// other processes' turns, of which a long pass sees more than a short product.
func BenchmarkBlocks(b *testing.B) {
	for _, t := range []kernels.DType{kernels.F32, kernels.BF16} {
		b.Run(t.String(), func(b *testing.B) { benchmarkBlocks(b, t) })
	}
}

func benchmarkBlocks(b *testing.B, t kernels.DType) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const layers = 4
	dev := openCPU(b)
	cfg := Config{Layers: layers, Dim: 512, Heads: 8, Seq: 256, Type: t}.WithDefaults()
	shape := Shape{Batch: 4, Seq: cfg.Seq}
	rows := int64(shape.Rows())
	m, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	blocks := Range{1, 1 + layers}
	n := &network{t: b, dev: dev, model: m}
	layout := NewLayout(m.ParamsOf(blocks))
	w, g := n.alloc(layout.Len, t), n.alloc(layout.Len, kernels.F32)
	for i, p := range layout.Params {
		v := make([]float32, p.Len())
		Initialise(v, p.Param, 1, p.Index)
		dev.CopyIn(layout.View(w, i), bytesAs(t, v))
	}
	noise := func(b kernels.Buffer) {
		r := rand.New(rand.NewPCG(1, 2))
		v := make([]float32, b.Len)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		dev.CopyIn(b, bytesAs(t, v))
	}
	var work int64
	var calls []*Call
	edge := n.alloc(rows*int64(cfg.Dim), t)
	for i := blocks.First; i < blocks.End; i++ {
		l := m.Layers[i]
		c := &Call{Dev: dev, Shape: shape, Weights: layout.Views(w, i), Grads: layout.Views(g, i)}
		for _, s := range l.Slots() {
			c.Slots = append(c.Slots, n.alloc(s.Len(shape), s.Type))
		}
		for p := PassForward; p <= PassWeight; p++ {
			work = max(work, l.Work(p, dev, shape))
		}
		calls = append(calls, c)
	}
	scratch := n.alloc(work, kernels.F32)
	x, dy := SlotIndex(m.Layers[blocks.First], SlotX), SlotIndex(m.Layers[blocks.First], SlotDY)
	for i, c := range calls {
		c.Work, c.Out, c.DX = scratch, edge, edge
		if i+1 < layers {
			c.Out = calls[i+1].Slots[x]
		}
		if i > 0 {
			c.DX = calls[i-1].Slots[dy]
		}
	}
	noise(calls[0].Slots[x])
	noise(calls[layers-1].Slots[dy])

	const side = 1024
	square := n.alloc(3*side*side, t)
	part := func(i int64) kernels.Buffer { return square.Slice(i*side*side, side*side) }
	noise(square)
	product := func() {
		dev.Gemm(false, true, side, side, side, 1, part(0), side, part(1), side, 0, part(2), side)
	}
	timed := func(f func()) float64 {
		start := threadSeconds(b)
		f()
		if err := dev.Sync(); err != nil {
			b.Fatal(err)
		}
		return threadSeconds(b) - start
	}
	product()

	var forward, input, weight, total, gemm []float64
	for b.Loop() {
		gemm = append(gemm, timed(product))
		f := timed(func() {
			for i, c := range calls {
				m.Layers[blocks.First+i].Forward(c)
			}
		})
		gemm = append(gemm, timed(product))
		p1 := timed(func() {
			for i := layers - 1; i >= 0; i-- {
				m.Layers[blocks.First+i].BackwardInput(calls[i])
			}
		})
		gemm = append(gemm, timed(product))
		p2 := timed(func() {
			for i := layers - 1; i >= 0; i-- {
				m.Layers[blocks.First+i].BackwardWeight(calls[i])
			}
		})
		gemm = append(gemm, timed(product))
		forward, input, weight, total = append(forward, f), append(input, p1), append(weight, p2), append(total, f+p1+p2)
	}
	var flops int64
	for p := PassForward; p <= PassWeight; p++ {
		flops += m.FLOPsOf(blocks, p, shape)
	}
	rate := float64(flops) / stats.Median(total) / 1e9
	gemmRate := 2 * side * side * side / stats.Median(gemm) / 1e9
	b.ReportMetric(rate, "GFLOP/s")
	b.ReportMetric(gemmRate, "gemm-GFLOP/s")
	b.ReportMetric(rate/gemmRate, "of-gemm")
	b.ReportMetric(1e3*stats.Median(forward), "F-ms")
	b.ReportMetric(1e3*stats.Median(input), "I-ms")
	b.ReportMetric(1e3*stats.Median(weight), "W-ms")
	info := dev.Info()
	b.Logf("%v; %.1f GFLOP a round", info, float64(flops)/1e9)
}

// threadSeconds returns the CPU time of the calling thread.
func threadSeconds(t testing.TB) float64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return float64(ts.Nano()) / 1e9
}
