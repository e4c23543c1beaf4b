package cpu

import "github.com/pipetrain/pipetrain/kernels"

// AddBias adds b to each row of x.
func (d *Device) AddBias(x, b kernels.Buffer, rows, dim int) {
	const op = "AddBias"
	vx, vb := actsOf(op, rows*dim, "x", x), like(op, dim, "b", b, x)
	// In blocks of columns: a row may be the whole of a sequence, with one position a token.
	block := min(dim, lowBlock)
	if block == 0 {
		return
	}
	blocks := (dim + block - 1) / block
	d.split(rows*blocks, max(1, lowBlock/block), func(w *workerScratch, from, to int) {
		for k := from; k < to; k++ {
			row, at := k/blocks, k%blocks*block
			n := min(block, dim-at)
			v := vx.read(d, w.row(1, lowBlock), row*dim+at, row*dim+at+n)
			d.vec.add(v, v, vb.read(d, w.row(0, lowBlock), at, at+n))
			vx.put(d, v, row*dim+at)
		}
	})
}

// AddColumns adds Σ_rows dy to dbias, rows in order.
func (d *Device) AddColumns(dbias, dy kernels.Buffer, rows, dim int) {
	const op = "AddColumns"
	vb, vdy := f32(op, "dbias", dbias, dim), actsOf(op, rows*dim, "dy", dy)
	d.split(dim, 64, func(w *workerScratch, from, to int) {
		for i := range rows {
			d.vec.add(vb[from:to], vb[from:to], vdy.read(d, w.row(0, to-from), i*dim+from, i*dim+to))
		}
	})
}
