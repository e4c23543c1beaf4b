package null_test

import (
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cpu"
	"github.com/pipetrain/pipetrain/kernels/null"
)

// Sizes are those of the device that it stands for; buffers without memory behind them are never touched.
func TestDevice(t *testing.T) {
	real, err := cpu.New(cpu.Options{Threads: 1, BLAS: "go"})
	if err != nil {
		t.Fatal(err)
	}
	defer real.Close()
	d := null.New(real)
	shape := kernels.Attention{Batch: 2, Seq: 8, Heads: 4, KVHeads: 2, HeadDim: 16}
	for _, typ := range []kernels.DType{kernels.F32, kernels.BF16} {
		if got, want := d.AttentionWork(shape, typ), real.AttentionWork(shape, typ); got != want || want == 0 {
			t.Errorf("attention in %v: %d elements of work, the device needs %d", typ, got, want)
		}
	}
	b, err := d.Alloc(1 << 40)
	if err != nil || b.Bytes() != 1<<40 || d.Host(b) != nil {
		t.Errorf("a terabyte is %+v, %v", b, err)
	}
	x := b.Slice(0, 1024).As(kernels.F32)
	out := []byte{7}
	d.CopyIn(x, make([]byte, 1024))
	d.Add(x, x, x)
	d.SumSquares(b.Slice(0, 8).As(kernels.F64), x)
	d.Zero(b)
	d.CopyOut(out, b.Slice(0, 1))
	if err := d.Sync(); err != nil || out[0] != 7 {
		t.Errorf("%v; %d was copied out", err, out[0])
	}
	d.Free(b)
}
