package transporttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
)

func pointToPoint() []Case {
	return []Case{
		{Name: "sizes", Ranks: [2]int{2, 4}, Body: sizes},
		{Name: "many in flight", Ranks: [2]int{2, 8}, Body: manyInFlight},
		{Name: "tags out of order", Ranks: [2]int{2, 8}, Body: outOfOrder},
		{Name: "order within a tag", Ranks: [2]int{2, 4}, Body: orderWithinTag},
		{Name: "to itself", Ranks: [2]int{1, 2}, Body: toItself},
		{Name: "several goroutines", Ranks: [2]int{2, 4}, Body: severalGoroutines},
		{Name: "by Test alone", Ranks: [2]int{2, 3}, Body: byTestAlone},
		{Name: "patient waits", Ranks: [2]int{2, 4}, Body: patientWaits},
		{Name: "heap buffers under garbage collection", Ranks: [2]int{2, 4}, Body: heapBuffers},
		{Name: "device memory", Ranks: [2]int{2, 4}, Body: deviceMemory},
		{Name: "a send ends when received", Ranks: [2]int{2, 2}, Body: rendezvous},
	}
}

// sizes passes messages of many lengths round a ring, each waited for.
func sizes(ctx context.Context, e *Env) error {
	lens := []int{0, 1, 2, 7, 8, 31, 32, 33, 63, 64, 65, 255, 1000, 4095, 4096, 4097, 8191, 8192, 8193,
		16<<10 - 1, 16 << 10, 16<<10 + 1, 64 << 10, 64<<10 + 1, 256<<10 - 33, 256 << 10, 1<<20 + 3, 4 << 20, 16<<20 + 1, 64 << 20}
	me, n := e.Rank(), e.Size()
	next, prev := (me+1)%n, (me-1+n)%n
	for i, length := range lens {
		if length > e.maxBytes() || (n > 2 && length > 1<<20+3) {
			continue
		}
		out, in := make([]byte, length), make([]byte, length)
		fill(out, uint64(me*1000+i))
		r := e.Irecv(prev, i, in)
		s := e.Isend(next, i, out)
		if err := s.Wait(ctx); err != nil {
			return fmt.Errorf("sending %d bytes: %w", length, err)
		}
		scribble(out)
		if err := r.Wait(ctx); err != nil {
			return fmt.Errorf("receiving %d bytes: %w", length, err)
		}
		if err := verify(in, uint64(prev*1000+i)); err != nil {
			return fmt.Errorf("message of %d bytes from rank %d: %w", length, prev, err)
		}
		if done, err := r.Test(); !done || err != nil {
			return fmt.Errorf("after Wait, Test returned %v, %v", done, err)
		}
		if err := r.Wait(ctx); err != nil {
			return fmt.Errorf("a second Wait: %w", err)
		}
	}
	return nil
}

// manyInFlight posts everything between all pairs before anything is waited for.
func manyInFlight(ctx context.Context, e *Env) error {
	const per = 60
	me := e.Rank()
	length := func(from, to, k int) int {
		switch k % 6 {
		case 0:
			return 0
		case 5:
			return 20000 + 1000*k + from
		}
		return (k*37+from*11+to*5)%700 + 1
	}
	seed := func(from, to, k int) uint64 { return uint64(from*100000 + to*1000 + k) }
	var sends, recvs []collectives.Request
	var outs, ins [][]byte
	for k := range per {
		for p := range e.Size() {
			if p == me {
				continue
			}
			in := make([]byte, length(p, me, k))
			ins = append(ins, in)
			recvs = append(recvs, e.Irecv(p, k%7, in))
		}
	}
	for k := range per {
		for p := range e.Size() {
			if p == me {
				continue
			}
			out := make([]byte, length(me, p, k))
			fill(out, seed(me, p, k))
			outs = append(outs, out)
			sends = append(sends, e.Isend(p, k%7, out))
		}
	}
	for i, s := range sends {
		if err := s.Wait(ctx); err != nil {
			return fmt.Errorf("send %d: %w", i, err)
		}
		scribble(outs[i])
	}
	i := 0
	for k := range per {
		for p := range e.Size() {
			if p == me {
				continue
			}
			if err := recvs[i].Wait(ctx); err != nil {
				return fmt.Errorf("receive %d from rank %d: %w", k, p, err)
			}
			if err := verify(ins[i], seed(p, me, k)); err != nil {
				return fmt.Errorf("message %d from rank %d: %w", k, p, err)
			}
			i++
		}
	}
	return nil
}

// outOfOrder receives in another order than was sent, also long after.
func outOfOrder(ctx context.Context, e *Env) error {
	const per = 40
	me, n := e.Rank(), e.Size()
	next, prev := (me+1)%n, (me-1+n)%n
	length := func(k int) int { return []int{0, 3, 900, 30000, 120000}[k%5] + k }
	var sends []collectives.Request
	for k := range per {
		out := make([]byte, length(k))
		fill(out, uint64(me*100+k))
		sends = append(sends, e.Isend(next, 1000+k, out))
	}
	if !e.Rendezvous { // all are on their way before the first is asked for
		if err := e.World.Barrier(ctx); err != nil {
			return err
		}
	}
	order := rand.New(rand.NewPCG(7, uint64(me))).Perm(per)
	for _, k := range order {
		in := make([]byte, length(k))
		if err := e.Irecv(prev, 1000+k, in).Wait(ctx); err != nil {
			return fmt.Errorf("tag %d: %w", k, err)
		}
		if err := verify(in, uint64(prev*100+k)); err != nil {
			return fmt.Errorf("tag %d: %w", k, err)
		}
	}
	return waitAll(ctx, sends)
}

// orderWithinTag mixes small and large messages of one tag: they stay in order.
func orderWithinTag(ctx context.Context, e *Env) error {
	const per = 120
	me, n := e.Rank(), e.Size()
	next, prev := (me+1)%n, (me-1+n)%n
	length := func(k int) int {
		if k%10 == 3 {
			return 40000
		}
		return 16
	}
	var sends, recvs []collectives.Request
	var ins [][]byte
	for k := range per {
		if k%2 == 0 {
			in := make([]byte, length(k))
			ins, recvs = append(ins, in), append(recvs, e.Irecv(prev, 9, in))
		}
		out := make([]byte, length(k))
		fill(out, uint64(me*1000+k))
		sends = append(sends, e.Isend(next, 9, out))
		if k%2 == 1 { // the receive of an odd one is posted after its own send
			in := make([]byte, length(k))
			ins, recvs = append(ins, in), append(recvs, e.Irecv(prev, 9, in))
		}
	}
	for k := per - 1; k >= 0; k-- {
		if err := recvs[k].Wait(ctx); err != nil {
			return fmt.Errorf("message %d: %w", k, err)
		}
		if err := verify(ins[k], uint64(prev*1000+k)); err != nil {
			return fmt.Errorf("message %d of its tag: %w", k, err)
		}
	}
	return waitAll(ctx, sends)
}

func toItself(ctx context.Context, e *Env) error {
	for i, length := range []int{0, 5, 3000, 100000, 2 << 20} {
		out, in := make([]byte, length), make([]byte, length)
		fill(out, uint64(i))
		var r collectives.Request
		if i%2 == 0 {
			r = e.Irecv(e.Rank(), i, in)
		}
		s := e.Isend(e.Rank(), i, out)
		if r == nil {
			r = e.Irecv(e.Rank(), i, in)
		}
		if err := waitAll(ctx, []collectives.Request{s, r}); err != nil {
			return fmt.Errorf("%d bytes: %w", length, err)
		}
		if err := verify(in, uint64(i)); err != nil {
			return err
		}
	}
	return nil
}

func severalGoroutines(ctx context.Context, e *Env) error {
	const lanes, rounds = 4, 30
	me, n := e.Rank(), e.Size()
	next, prev := (me+1)%n, (me-1+n)%n
	errs := make(chan error, lanes)
	var group sync.WaitGroup
	for lane := range lanes {
		group.Go(func() {
			for k := range rounds {
				length := (k%3)*15000 + lane
				out, in := make([]byte, length), make([]byte, length)
				fill(out, uint64(me*1000+lane*100+k))
				r, s := e.Irecv(prev, 50+lane, in), e.Isend(next, 50+lane, out)
				if err := waitAll(ctx, []collectives.Request{r, s}); err != nil {
					errs <- fmt.Errorf("goroutine %d, round %d: %w", lane, k, err)
					return
				}
				if err := verify(in, uint64(prev*1000+lane*100+k)); err != nil {
					errs <- fmt.Errorf("goroutine %d, round %d: %w", lane, k, err)
					return
				}
			}
		})
	}
	group.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// byTestAlone never waits: Test must let things move.
func byTestAlone(ctx context.Context, e *Env) error {
	me, n := e.Rank(), e.Size()
	next, prev := (me+1)%n, (me-1+n)%n
	for i, length := range []int{0, 10, 50000, 3 << 20} {
		out, in := make([]byte, length), make([]byte, length)
		fill(out, uint64(me*10+i))
		for _, r := range []collectives.Request{e.Irecv(prev, i, in), e.Isend(next, i, out)} {
			for {
				done, err := r.Test()
				if err != nil {
					return err
				}
				if done {
					break
				}
				if ctx.Err() != nil {
					return fmt.Errorf("%d bytes do not move by Test alone: %w", length, ctx.Err())
				}
				time.Sleep(50 * time.Microsecond)
			}
		}
		if err := verify(in, uint64(prev*10+i)); err != nil {
			return err
		}
	}
	return nil
}

// patientWaits sleep while the transport's own poller does the work.
func patientWaits(ctx context.Context, e *Env) error {
	ctx = collectives.Patient(ctx)
	me, n := e.Rank(), e.Size()
	next, prev := (me+1)%n, (me-1+n)%n
	for i, length := range []int{0, 10, 50000, 3 << 20} {
		out, in := make([]byte, length), make([]byte, length)
		fill(out, uint64(me*10+i))
		if err := waitAll(ctx, []collectives.Request{e.Irecv(prev, i, in), e.Isend(next, i, out)}); err != nil {
			return err
		}
		if err := verify(in, uint64(prev*10+i)); err != nil {
			return err
		}
	}
	return nil
}

// heapBuffers keeps nothing but the requests, and collects garbage all the time.
func heapBuffers(ctx context.Context, e *Env) error {
	me, n := e.Rank(), e.Size()
	next, prev := (me+1)%n, (me-1+n)%n
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
				time.Sleep(time.Millisecond)
			}
		}
	})
	defer group.Wait()
	defer close(stop)
	for round := range 20 {
		var sends []collectives.Request
		var ins [][]byte
		var recvs []collectives.Request
		for k := range 6 {
			in := make([]byte, 1000+k*17000)
			ins, recvs = append(ins, in), append(recvs, e.Irecv(prev, k, in))
		}
		for k := range 6 {
			out := make([]byte, 1000+k*17000)
			fill(out, uint64(me*10000+round*10+k))
			sends = append(sends, e.Isend(next, k, out))
		}
		for k := range 6 {
			if err := recvs[k].Wait(ctx); err != nil {
				return err
			}
			if err := verify(ins[k], uint64(prev*10000+round*10+k)); err != nil {
				return fmt.Errorf("round %d, message %d: %w", round, k, err)
			}
		}
		if err := waitAll(ctx, sends); err != nil {
			return err
		}
	}
	return nil
}

// rendezvous holds only of a transport that promises it.
func rendezvous(ctx context.Context, e *Env) error {
	if !e.Rendezvous {
		return nil
	}
	for i, length := range []int{0, 8, 50000} {
		b := make([]byte, length)
		if e.Rank() == 0 {
			s := e.Isend(1, 5, b)
			for range 20 {
				if done, err := s.Test(); done {
					return fmt.Errorf("a send of %d bytes ended (%v) before the receive was posted", length, err)
				}
				time.Sleep(time.Millisecond)
			}
			if err := e.Isend(1, 6, nil).Wait(ctx); err != nil {
				return err
			}
			if err := s.Wait(ctx); err != nil {
				return err
			}
			continue
		}
		if err := e.Irecv(0, 6, nil).Wait(ctx); err != nil {
			return err
		}
		if err := e.Irecv(0, 5, b).Wait(ctx); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
	}
	return nil
}
