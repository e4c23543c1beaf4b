package kerneltest

var embeddingCases = []Case{
	{Name: "Embedding/Forward", bothTypes: true, run: func(c *check) {
		for _, s := range [][3]int{{1, 1, 1}, {7, 5, 3}, {100, 64, 256}, {33, 130, 10}} {
			rows, dim, vocab := s[0], s[1], s[2]
			c.begin("rows %d dim %d vocab %d", rows, dim, vocab)
			table, ids := c.inT("table", c.normal(vocab*dim, 1)), c.ids("ids", c.tokens(rows, vocab))
			y := c.outT("y", rows*dim)
			c.d.EmbeddingForward(y.buf, table.buf, ids.buf, rows, dim)
			want := make([]float64, 0, rows*dim)
			for _, id := range ints(ids) {
				want = append(want, wide(table.data[int(id)*dim:(int(id)+1)*dim])...)
			}
			c.equal(y, want, tolerance{})
			c.end()
		}
	}},
	{Name: "Embedding/BackwardWeight", bothTypes: true, run: func(c *check) {
		for _, s := range [][3]int{{1, 1, 1}, {7, 5, 3}, {100, 64, 256}, {333, 130, 10}} {
			rows, dim, vocab := s[0], s[1], s[2]
			c.begin("rows %d dim %d vocab %d", rows, dim, vocab)
			dy, ids := c.inT("dy", c.normal(rows*dim, 1)), c.ids("ids", c.tokens(rows, vocab))
			table := c.inOut("dtable", c.normal(vocab*dim, 1))
			c.d.EmbeddingBackwardWeight(table.buf, ids.buf, dy.buf, rows, dim)
			// In order of i, in f32: the sum is defined to the bit.
			want := append([]float32(nil), table.data...)
			for i, id := range ints(ids) {
				for j := range dim {
					want[int(id)*dim+j] += dy.data[i*dim+j]
				}
			}
			c.equal(table, wide(want), tolerance{})
			c.end()
		}
	}},
	{Name: "Embedding/OutOfRange", run: func(c *check) {
		for _, bad := range []int32{-1, 4} {
			c.begin("id %d of 4", bad)
			table, ids := c.in("table", c.normal(4*3, 1)), c.ids("ids", []int32{0, bad})
			y := c.out("y", 6)
			c.d.EmbeddingForward(y.buf, table.buf, ids.buf, 2, 3)
			if c.d.Sync() == nil {
				c.failf("Sync reports nothing")
			}
		}
		c.expectFailure = true
	}},
}

func (c *check) tokens(n, vocab int) []int32 {
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(c.r.IntN(vocab))
	}
	return v
}

// ints returns the values of an operand that ids placed.
func ints(o *operand) []int32 {
	v := make([]int32, len(o.was)/4)
	copy(bytesOf(v), o.was)
	return v
}
