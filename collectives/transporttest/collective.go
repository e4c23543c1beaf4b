package transporttest

import (
	"context"
	"fmt"
	"math"

	"github.com/pipetrain/pipetrain/collectives"
)

func collective() []Case {
	return []Case{
		{Name: "barrier and broadcast", Ranks: [2]int{1, 8}, Body: barrierBroadcast},
		{Name: "all-reduce", Ranks: [2]int{1, 8}, Body: allReduce},
		{Name: "gather", Ranks: [2]int{1, 8}, Body: gather},
		{Name: "rows and columns", Ranks: [2]int{1, 8}, Body: rowsAndColumns},
		{Name: "non-blocking all-reduce", Ranks: [2]int{1, 8}, Body: nonBlocking},
		{Name: "collectives beside messages", Ranks: [2]int{2, 4}, Body: beside},
	}
}

func barrierBroadcast(ctx context.Context, e *Env) error {
	for i, length := range []int{0, 1, 1000, 100000, 1<<20 + 7} {
		root := i % e.Size()
		b := make([]byte, length)
		if e.Rank() == root {
			fill(b, uint64(i))
		}
		if err := e.World.Broadcast(ctx, root, b); err != nil {
			return err
		}
		if err := verify(b, uint64(i)); err != nil {
			return fmt.Errorf("broadcast of %d bytes from %d: %w", length, root, err)
		}
		if err := e.World.Barrier(ctx); err != nil {
			return err
		}
	}
	return nil
}

// value is rank r's element i: numbers whose sum depends on the order of adding.
func value(r, i int) float64 {
	x := uint64(r*7919+i+1) * 0x9e3779b97f4a7c15
	scale := [...]float64{1e-4, 1e-3, 0.01, 0.1, 1, 10, 100, 1e3, 1e4}[(r*5+i)%9]
	return (float64(x>>11)/(1<<52) - 1) * scale
}

// allReduce compares bits with the sum formed in rank order.
func allReduce(ctx context.Context, e *Env) error {
	n := e.Size()
	for _, length := range []int{0, 1, 2, n, 100, 4097, 70001, 400003} {
		if length > 10000 && n > 4 {
			length /= n / 2
		}
		f32, f64 := make([]float32, length), make([]float64, length)
		for i := range length {
			v := value(e.Rank(), i)
			f32[i], f64[i] = float32(v), v
		}
		if err := e.World.AllReduceSumF32(ctx, f32); err != nil {
			return err
		}
		if err := e.World.AllReduceSumF64(ctx, f64); err != nil {
			return err
		}
		for i := range length {
			w64 := value(0, i)
			w32 := float32(w64)
			for r := 1; r < n; r++ {
				v := value(r, i)
				w32, w64 = w32+float32(v), w64+v
			}
			if math.Float32bits(f32[i]) != math.Float32bits(w32) || math.Float64bits(f64[i]) != math.Float64bits(w64) {
				return fmt.Errorf("length %d, element %d: %g %g, want %g %g", length, i, f32[i], f64[i], w32, w64)
			}
		}
	}
	return nil
}

func gather(ctx context.Context, e *Env) error {
	mine := func(r int) []byte {
		b := make([]byte, r*1000+r%2)
		fill(b, uint64(r))
		return b
	}
	check := func(all [][]byte) error {
		if len(all) != e.Size() {
			return fmt.Errorf("%d parts of %d", len(all), e.Size())
		}
		for r, b := range all {
			if len(b) != len(mine(r)) {
				return fmt.Errorf("part of rank %d has %d bytes, want %d", r, len(b), len(mine(r)))
			}
			if err := verify(b, uint64(r)); err != nil {
				return fmt.Errorf("part of rank %d: %w", r, err)
			}
		}
		return nil
	}
	root := e.Size() - 1
	all, err := e.World.Gather(ctx, root, mine(e.Rank()))
	if err != nil {
		return err
	}
	if e.Rank() == root {
		err = check(all)
	} else if all != nil {
		err = fmt.Errorf("a rank that is not root got %d parts", len(all))
	}
	if err != nil {
		return fmt.Errorf("gather: %w", err)
	}
	if all, err = e.World.AllGather(ctx, mine(e.Rank())); err != nil {
		return err
	}
	return check(all)
}

// rowsAndColumns makes rows, each in descending order, and columns, and uses both at once.
func rowsAndColumns(ctx context.Context, e *Env) error {
	me, n := e.Rank(), e.Size()
	var rowRanks, colRanks []int
	for r := range n {
		if r/2 == me/2 {
			rowRanks = append([]int{r}, rowRanks...)
		}
		if r%2 == me%2 {
			colRanks = append(colRanks, r)
		}
	}
	row, err := collectives.NewComm(e, rowRanks, 6)
	if err != nil {
		return err
	}
	col, err := collectives.NewComm(e, colRanks, 7)
	if err != nil {
		return err
	}
	size := min(2, n-me/2*2)
	if row.Size() != size || row.WorldRank(row.Rank()) != me || row.Rank() != (size-1)-me%2 {
		return fmt.Errorf("row: rank %d of %d, want %d of %d (descending)", row.Rank(), row.Size(), size-1-me%2, size)
	}
	if col.Size() != (n+1-me%2)/2 || col.Rank() != me/2 {
		return fmt.Errorf("column: rank %d of %d", col.Rank(), col.Size())
	}
	a, b := []float64{float64(me)}, []float64{float64(me)}
	if err := row.AllReduceSumF64(ctx, a); err != nil {
		return err
	}
	if err := col.AllReduceSumF64(ctx, b); err != nil {
		return err
	}
	var wa, wb float64
	for r := range n {
		if r/2 == me/2 {
			wa += float64(r)
		}
		if r%2 == me%2 {
			wb += float64(r)
		}
	}
	if a[0] != wa || b[0] != wb {
		return fmt.Errorf("sums over row and column: %g %g, want %g %g", a[0], b[0], wa, wb)
	}
	if n > 1 { // one made by hand, in another order
		ranks := []int{n - 1, 0}
		c, err := collectives.NewComm(e, ranks, 5)
		switch {
		case me != 0 && me != n-1:
			if err == nil {
				return fmt.Errorf("a communicator without its maker was made")
			}
		case err != nil:
			return err
		default:
			x := []byte{byte(me)}
			if err := c.Broadcast(ctx, 0, x); err != nil || x[0] != byte(n-1) {
				return fmt.Errorf("broadcast in %v: %v, %v", ranks, x, err)
			}
		}
	}
	return nil
}

// nonBlocking has several sums under way, waited for in another order.
func nonBlocking(ctx context.Context, e *Env) error {
	lens := []int{5, 100001, 3, 30000}
	bufs := make([][]float32, len(lens))
	reqs := make([]collectives.Request, len(lens))
	for k, length := range lens {
		bufs[k] = make([]float32, length)
		for i := range bufs[k] {
			bufs[k][i] = float32(value(e.Rank(), i+k))
		}
		reqs[k] = e.World.IAllReduceSumF32(ctx, bufs[k])
	}
	if err := e.World.Barrier(ctx); err != nil {
		return err
	}
	for _, k := range []int{2, 0, 3, 1} {
		if err := reqs[k].Wait(ctx); err != nil {
			return err
		}
		if done, err := reqs[k].Test(); !done || err != nil {
			return fmt.Errorf("after Wait, Test returned %v, %v", done, err)
		}
		for i := range bufs[k] {
			w := float32(value(0, i+k))
			for r := 1; r < e.Size(); r++ {
				w += float32(value(r, i+k))
			}
			if bufs[k][i] != w {
				return fmt.Errorf("sum %d, element %d: %g, want %g", k, i, bufs[k][i], w)
			}
		}
	}
	return nil
}

// beside has messages of the caller under way during collectives.
func beside(ctx context.Context, e *Env) error {
	me, n := e.Rank(), e.Size()
	next, prev := (me+1)%n, (me-1+n)%n
	in, out := make([]byte, 200000), make([]byte, 200000)
	fill(out, uint64(me))
	r := e.Irecv(prev, 0, in)
	f := make([]float32, 50000)
	if err := e.World.AllReduceSumF32(ctx, f); err != nil {
		return err
	}
	s := e.Isend(next, 0, out)
	if err := e.World.AllReduceSumF32(ctx, f); err != nil {
		return err
	}
	if err := waitAll(ctx, []collectives.Request{r, s}); err != nil {
		return err
	}
	return verify(in, uint64(prev))
}
