package cpu

import "github.com/pipetrain/pipetrain/kernels"

// EmbeddingForward gathers y[i] = table[ids[i]].
func (d *Device) EmbeddingForward(y, table, ids kernels.Buffer, rows, dim int) {
	const op = "EmbeddingForward"
	vy, vi := actsOf(op, rows*dim, "y", y), i32(op, "ids", ids, rows)
	n := vocabOf(op, table, dim)
	vt := like(op, n*dim, "table", table, y)
	if !d.idsInside(op, vi, n) {
		clear(vy.full)
		clear(vy.low)
		return
	}
	d.splitRows(rows, dim, func(_ *workerScratch, from, to int) {
		for i := from; i < to; i++ {
			id := int(vi[i])
			if vy.low != nil {
				copy(vy.low[i*dim:(i+1)*dim], vt.low[id*dim:(id+1)*dim])
			} else {
				copy(vy.full[i*dim:(i+1)*dim], vt.full[id*dim:(id+1)*dim])
			}
		}
	})
}

// EmbeddingBackwardWeight scatters dtable[ids[i]] += dy[i], in order of i.
func (d *Device) EmbeddingBackwardWeight(dtable, ids, dy kernels.Buffer, rows, dim int) {
	const op = "EmbeddingBackwardWeight"
	vd, vi := actsOf(op, rows*dim, "dy", dy), i32(op, "ids", ids, rows)
	n := vocabOf(op, dtable, dim)
	vt := f32(op, "dtable", dtable, n*dim)
	if !d.idsInside(op, vi, n) {
		return
	}
	// Two rows may name one id, so threads share columns out instead.
	d.split(dim, 64, func(w *workerScratch, from, to int) {
		for i, id := range vi {
			t := vt[int(id)*dim+from : int(id)*dim+to]
			d.vec.add(t, t, vd.read(d, w.row(0, to-from), i*dim+from, i*dim+to))
		}
	})
}

func vocabOf(op string, table kernels.Buffer, dim int) int {
	if dim <= 0 {
		panic("cpu: " + op + ": dim must be at least 1")
	}
	return int(table.Len) / dim
}

// idsInside says whether all ids name a row of the table. Ids are data, not
// shapes, so a wrong one is a failure that Sync reports.
func (d *Device) idsInside(op string, ids []int32, n int) bool {
	for i, id := range ids {
		if id < 0 || int(id) >= n {
			d.fail("%s: row %d: id %d is outside the table of %d rows", op, i, id, n)
			return false
		}
	}
	return true
}
