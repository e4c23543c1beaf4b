package collectives

import (
	"context"
	"sync"
	"unsafe"
)

// AllReduceSumF32 replaces buf on every member by the elementwise sum over the
// members, formed in the order 0..n-1. All have the same length.
func (c *Comm) AllReduceSumF32(ctx context.Context, buf []float32) error {
	return allReduce(ctx, c.begin("all-reduce sum f32"), buf, addF32)
}

// AllReduceSumF64 is AllReduceSumF32 for float64.
func (c *Comm) AllReduceSumF64(ctx context.Context, buf []float64) error {
	return allReduce(ctx, c.begin("all-reduce sum f64"), buf, addF64)
}

// IAllReduceSumF32 starts AllReduceSumF32 and returns at once. buf belongs to
// the request until it is complete. The reduction moves while the caller
// computes, without spinning; several may be in flight, started in the same
// order on every member. ctx ends the operation itself, not only a wait for it.
func (c *Comm) IAllReduceSumF32(ctx context.Context, buf []float32) Request {
	op := c.begin("all-reduce sum f32")
	r := &asyncRequest{done: make(chan struct{}), urgent: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = allReduce(PatientUntil(ctx, r.urgent), op, buf, addF32)
	}()
	return r
}

// asyncRequest is a collective that a goroutine performs.
type asyncRequest struct {
	done   chan struct{}
	err    error
	urgent chan struct{} // closed when somebody waits
	once   sync.Once
}

func (r *asyncRequest) Wait(ctx context.Context) error {
	r.once.Do(func() { close(r.urgent) })
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *asyncRequest) Test() (bool, error) {
	select {
	case <-r.done:
		return true, r.err
	default:
		return false, nil
	}
}

const (
	exchangeBytes = 64 << 10  // up to here (length × members) everyone sends all to everyone
	segmentBytes  = 256 << 10 // large messages move in pieces that stay in a core's cache
	segmentsAhead = 3         // pieces of contributions in flight per owner
)

type element interface{ float32 | float64 | int64 }

// allReduce puts into buf op(op(b0, b1), b2)… over the members' buffers, on
// every member with the same bits. combine sets dst = x op y; dst may be x or y.
//
// Small: everyone sends everything to everyone, one hop. Large: member r owns
// the r-th part; the owner receives the others' contributions to its part,
// combines them in member order and sends the result back: reduce-scatter and
// all-gather, each byte crossing twice, in segments so that combining, sending
// and receiving overlap.
func allReduce[T element](ctx context.Context, op operation, buf []T, combine func(dst, x, y []T)) error {
	n := len(op.c.ranks)
	if n == 1 || len(buf) == 0 {
		return ctx.Err()
	}
	if len(buf)*int(unsafe.Sizeof(buf[0]))*n <= exchangeBytes {
		return allReduceExchange(ctx, op, buf, combine)
	}
	return allReduceOwners(ctx, op, buf, combine)
}

func allReduceExchange[T element](ctx context.Context, op operation, buf []T, combine func(dst, x, y []T)) error {
	n, me := len(op.c.ranks), op.c.me
	all := make([]T, n*len(buf))
	part := func(i int) []T { return all[i*len(buf):][:len(buf)] }
	copy(part(me), buf)
	recvs, sends := pending{op: op}, pending{op: op}
	for d := 1; d < n; d++ {
		from := (me - d + n) % n
		recvs.add(from, op.recv(from, 0, asBytes(part(from))))
	}
	for d := 1; d < n; d++ {
		to := (me + d) % n
		sends.add(to, op.send(to, 0, asBytes(part(me))))
	}
	if err := recvs.wait(ctx); err != nil {
		return err
	}
	combine(buf, part(0), part(1))
	for i := 2; i < n; i++ {
		combine(buf, buf, part(i))
	}
	return sends.wait(ctx)
}

func allReduceOwners[T element](ctx context.Context, op operation, buf []T, combine func(dst, x, y []T)) error {
	n, me := len(op.c.ranks), op.c.me
	size := int(unsafe.Sizeof(buf[0]))
	// With many members the scratch of a segment would grow with n; shrink the segment instead.
	segElems := max(min(segmentBytes, (4<<20)/n), 16<<10) / size
	part := (len(buf) + n - 1) / n
	segs := (part + segElems - 1) / segElems
	// segment s of owner r; the last ones may be short or empty, alike on all members.
	segment := func(r, s int) []T {
		lo := min(r*part+s*segElems, len(buf))
		hi := min(r*part+min((s+1)*segElems, part), len(buf))
		return buf[lo:max(lo, hi)]
	}
	ahead := min(segmentsAhead, segs)
	scratch := make([]T, ahead*n*segElems)
	slot := func(s, r int) []T {
		return scratch[((s%ahead)*n+r)*segElems:][:len(segment(me, s))]
	}
	contribIn, contribOut := make([][]Request, segs), make([][]Request, segs)
	start := func(s int) {
		contribIn[s], contribOut[s] = make([]Request, n), make([]Request, n)
		for d := 1; d < n; d++ {
			r := (me - d + n) % n
			contribIn[s][r] = op.recv(r, 0, asBytes(slot(s, r)))
		}
		for d := 1; d < n; d++ {
			r := (me + d) % n
			contribOut[s][r] = op.send(r, 0, asBytes(segment(r, s)))
		}
	}
	for s := range ahead {
		start(s)
	}
	results := pending{op: op}
	for s := range segs {
		own := segment(me, s)
		acc := own // holds the sum of members 0..r-1
		if me > 0 {
			acc = slot(s, 0)
		}
		for r := range n {
			if r != me {
				if err := contribIn[s][r].Wait(ctx); err != nil {
					return op.fail(r, err)
				}
			}
			switch {
			case r == 0:
			case r == me:
				combine(own, acc, own)
				acc = own
			default:
				combine(acc, acc, slot(s, r))
			}
		}
		for d := 1; d < n; d++ {
			r := (me + d) % n
			results.add(r, op.send(r, 1, asBytes(own)))
		}
		// A result lands where this member's contribution lies, so that must be out first.
		for d := 1; d < n; d++ {
			r := (me - d + n) % n
			if err := contribOut[s][r].Wait(ctx); err != nil {
				return op.fail(r, err)
			}
			results.add(r, op.recv(r, 1, asBytes(segment(r, s))))
		}
		contribIn[s], contribOut[s] = nil, nil
		if s+ahead < segs {
			start(s + ahead)
		}
	}
	return results.wait(ctx)
}

// asBytes views v as bytes, in the machine's own order.
func asBytes[T element](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))
}

func addF32(dst, x, y []float32) {
	n := len(dst)
	x, y = x[:n], y[:n]
	i := 0
	for ; i+8 <= n; i += 8 {
		d, a, b := dst[i:i+8:i+8], x[i:i+8:i+8], y[i:i+8:i+8]
		d[0], d[1], d[2], d[3] = a[0]+b[0], a[1]+b[1], a[2]+b[2], a[3]+b[3]
		d[4], d[5], d[6], d[7] = a[4]+b[4], a[5]+b[5], a[6]+b[6], a[7]+b[7]
	}
	for ; i < n; i++ {
		dst[i] = x[i] + y[i]
	}
}

func addF64(dst, x, y []float64) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] + y[i]
	}
}
