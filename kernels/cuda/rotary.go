package cuda

import (
	"math"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cuda/driver"
)

// rotaryKey names a table of angles; sequences of any length up to seq use it.
type rotaryKey struct {
	seq, half int
	theta     float32
}

// Rotary turns the first `heads` heads of each row of x by the row's position.
func (d *Device) Rotary(x kernels.Buffer, rows, seq, heads, headDim, ld int, theta float32, inverse bool) {
	const op = "Rotary"
	t := float(op, "x", x)
	if seq < 1 || headDim%2 != 0 || ld < heads*headDim {
		panic("cuda: Rotary: seq below 1, an odd headDim, or a stride below the heads")
	}
	if rows == 0 || heads == 0 || headDim == 0 {
		return
	}
	px := want(op, "x", x, t, area(rows-1, ld)+area(heads, headDim))
	d.perform(op, func() error {
		half := headDim / 2
		table, err := d.angles(rotaryKey{seq, half, theta})
		if err != nil {
			return err
		}
		sign := float32(1)
		if inverse {
			sign = -1
		}
		d.args.Reset().Addr(px).Addr(uintptr(table)).Addr(uintptr(table) + uintptr(4*seq*half)).Int(seq).Int(heads).Int(half).Long(int64(ld)).Float(sign)
		return d.launch("rotary", t, grid{x: rows, threads: rowThreads(heads*half, 1, 256)})
	})
}

// angles returns a table of cosines, then sines, made in f64 the first time. It is made on
// a stream of its own and waited for, so that it may come within a recording.
func (d *Device) angles(k rotaryKey) (driver.Addr, error) {
	if p, ok := d.rotary[k]; ok {
		return p, nil
	}
	n := k.seq * k.half
	b := make([]float32, 2*n)
	for p := range k.seq {
		for j := range k.half {
			a := float64(p) * math.Pow(float64(k.theta), -float64(j)/float64(k.half))
			b[p*k.half+j], b[n+p*k.half+j] = float32(math.Cos(a)), float32(math.Sin(a))
		}
	}
	p, err := d.memory.own(d.ctx, int64(8*n))
	if err != nil {
		return 0, err
	}
	if err := d.staging.in(d.up, p, bytesOf(b)); err != nil {
		return 0, err
	}
	if err := d.up.Synchronize(); err != nil {
		return 0, err
	}
	d.rotary[k] = p
	return p, nil
}
