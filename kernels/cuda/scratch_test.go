package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cuda"
	"github.com/pipetrain/pipetrain/kernels/cuda/driver"
	"github.com/pipetrain/pipetrain/kernels/cuda/emulation/emutest"
)

// scattered is a job whose scratch is more than queues keep: the gradient of a table, many rows of whose ids are equal,
// and a norm's.
type scattered struct {
	dtable, dgamma, dbeta []float32
}

const scatterRows, scatterDim, scatterVocab = 4500, 20, 300

// scatter computes it several times: on the first queue, on the second one at once, and recorded.
func scatter(d *cuda.Device) (all [3]scattered, err error) {
	dev := func(v []float32) kernels.Buffer {
		b, e := d.Alloc(int64(4 * len(v)))
		if e != nil {
			err = e
		}
		d.CopyIn(b, asBytes(v))
		return b.As(kernels.F32)
	}
	n := scatterRows * scatterDim
	v, ids, mean, rstd := make([]float32, n), make([]int32, scatterRows), make([]float32, scatterRows), make([]float32, scatterRows)
	for i := range v {
		v[i] = float32(math.Sin(float64(i)))
	}
	for i := range ids {
		ids[i], mean[i], rstd[i] = int32(i*i%scatterVocab), v[i], 1+v[i]*v[i]
	}
	b, err := d.Alloc(4 * scatterRows)
	if err != nil {
		return all, err
	}
	d.CopyIn(b, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(ids))), 4*len(ids)))
	dy, x, m, r := dev(v), dev(v), dev(mean), dev(rstd)
	var to [3][3]kernels.Buffer
	for i := range to {
		to[i] = [3]kernels.Buffer{dev(make([]float32, scatterVocab*scatterDim)), dev(make([]float32, scatterDim)), dev(make([]float32, scatterDim))}
	}
	ops := func(i int) {
		d.EmbeddingBackwardWeight(to[i][0], b.As(kernels.I32), dy, scatterRows, scatterDim)
		d.LayerNormBackwardWeight(to[i][1], to[i][2], dy, x, m, r, scatterRows, scatterDim)
	}
	rec, err := d.Record(func() { ops(2) })
	if err != nil {
		return all, err
	}
	d.Fork()
	ops(1)
	d.Join()
	ops(0)
	rec.Replay()
	d.Wait()
	for i, t := range to {
		all[i] = scattered{make([]float32, scatterVocab*scatterDim), make([]float32, scatterDim), make([]float32, scatterDim)}
		for j, v := range [][]float32{all[i].dtable, all[i].dgamma, all[i].dbeta} {
			d.CopyOut(asBytes(v), t[j])
		}
	}
	rec.Free()
	return all, d.Sync()
}

func childScatter(args string) error {
	f := strings.Fields(args)
	d, err := cuda.New(cuda.Options{Driver: f[0], CublasLt: "none"})
	if err != nil {
		return err
	}
	if got, want := d.Info()["scratch"], strings.ReplaceAll(f[1], "-", " "); got != want {
		return fmt.Errorf("scratch is %s, want %s", got, want)
	}
	all, err := scatter(d)
	if err != nil {
		return err
	}
	// Sums in the order of rows, as on the CPU; those of the norm within what another order makes of them.
	want := scattered{make([]float32, scatterVocab*scatterDim), nil, nil}
	beta := make([]float64, scatterDim)
	for i := range scatterRows {
		for c := range scatterDim {
			v := float32(math.Sin(float64(i*scatterDim + c)))
			want.dtable[i*i%scatterVocab*scatterDim+c] += v
			beta[c] += float64(v)
		}
	}
	for q, got := range all {
		for i, w := range want.dtable {
			if got.dtable[i] != w {
				return fmt.Errorf("queue %d: element %d of the table is %g, want %g", q, i, got.dtable[i], w)
			}
		}
		for c, w := range beta {
			if math.Abs(float64(got.dbeta[c])-w) > 1e-3 || got.dgamma[c] != all[0].dgamma[c] {
				return fmt.Errorf("queue %d: column %d: %g, want %g; %g and %g", q, c, got.dbeta[c], w, got.dgamma[c], all[0].dgamma[c])
			}
		}
	}
	return d.Close() // which finds what was not freed
}

// Large scratch comes from a memory pool, or where there are none from what queues keep; the numbers are the same.
func TestScratch(t *testing.T) {
	libcuda, _ := emulated(t, emutest.Options{})
	for _, c := range []struct{ pools, want string }{{"1", "memory-pool"}, {"0", "kept-by-queues"}, {"2", "kept-by-queues"}} {
		if out, err := child(t, "scatter "+libcuda+" "+c.want, "PIPETRAIN_EMULATION_POOLS="+c.pools); err != nil {
			t.Errorf("%s: %v: %s", c.want, err, out)
		}
	}
}

// What the pool reserves counts as the device's own, and goes back to the card when an allocation needs it.
func TestPoolMemoryCounted(t *testing.T) {
	libcuda, _ := emulated(t, emutest.Options{Fast: true})
	for _, pools := range []string{"1", "0"} {
		if out, err := child(t, "counted "+libcuda, "PIPETRAIN_EMULATION_POOLS="+pools, "PIPETRAIN_EMULATION_MEMORY=60000000"); err != nil {
			t.Errorf("pools %s: %v: %s", pools, err, out)
		}
	}
}

// cardMemory asks the driver.
func cardMemory(libcuda string) (free, total int64, err error) {
	lib, err := driver.Open(libcuda)
	if err != nil {
		return 0, 0, err
	}
	card, err := lib.Device(0)
	if err != nil {
		return 0, 0, err
	}
	ctx, err := card.PrimaryContext()
	if err != nil {
		return 0, 0, err
	}
	if err := ctx.Enter(); err != nil {
		return 0, 0, err
	}
	defer ctx.Leave()
	free, total, err = ctx.MemGetInfo()
	return free, total, errors.Join(err, ctx.Release())
}

func childCounted(libcuda string) error {
	d, err := cuda.New(cuda.Options{Driver: libcuda, CublasLt: "none"})
	if err != nil {
		return err
	}
	var own float64
	if _, err := fmt.Sscanf(d.Info()["own memory"], "%f MiB", &own); err != nil {
		return err
	}
	free, total, err := cardMemory(libcuda)
	if err != nil {
		return err
	}
	if gone := float64(total-free) / (1 << 20); math.Abs(gone-own) > 0.06 {
		return fmt.Errorf("%.2f MiB of the card are gone, and the device says %.2f", gone, own)
	}
	b, err := d.Alloc(free + 4<<20) // half of what the pool has reserved
	if hasPool := d.Info()["scratch"] == "memory pool"; hasPool != (err == nil) {
		return fmt.Errorf("an allocation that needs the pool's memory: %v", err)
	}
	if err == nil {
		d.Free(b)
	}
	return d.Close()
}
