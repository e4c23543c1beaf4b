package transporttest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
)

func failures() []Case {
	return []Case{
		{Name: "wrong length", Ranks: [2]int{2, 4}, Body: wrongLength},
		{Name: "bad arguments", Ranks: [2]int{1, 2}, Body: badArguments},
		{Name: "a wait that is given up", Ranks: [2]int{2, 4}, Body: givenUp},
		{Name: "closing while waiting", Ranks: [2]int{1, 4}, Ends: true, Body: closing},
		{Name: "a peer that closes", Ranks: [2]int{2, 8}, Ends: true, Body: peerCloses},
	}
}

// wrongLength: the receive fails with LengthError, the message is used up, and
// what follows is not disturbed.
func wrongLength(ctx context.Context, e *Env) error {
	me, n := e.Rank(), e.Size()
	next, prev := (me+1)%n, (me-1+n)%n
	for i, c := range []struct{ send, want int }{{10, 11}, {11, 10}, {0, 1}, {1, 0}, {100000, 99999}, {50000, 100000}, {8, 100000}, {100000, 8}} {
		out, in := make([]byte, c.send), make([]byte, c.want)
		after, got := []byte{byte(i), 1, 2, 3}, make([]byte, 4)
		var r collectives.Request
		if i%2 == 0 {
			r = e.Irecv(prev, 3, in)
		}
		s, s2 := e.Isend(next, 3, out), e.Isend(next, 3, after)
		if i%2 == 1 {
			r = e.Irecv(prev, 3, in)
		}
		var wrong *collectives.LengthError
		err := r.Wait(ctx)
		if !errors.As(err, &wrong) {
			return fmt.Errorf("%d bytes sent, %d expected: Wait returned %v, want LengthError", c.send, c.want, err)
		}
		if wrong.From != prev || wrong.Tag != 3 || wrong.Want != c.want || wrong.Got == c.want {
			return fmt.Errorf("%d bytes sent, %d expected: the error says %+v", c.send, c.want, *wrong)
		}
		if done, err := r.Test(); !done || !errors.As(err, &wrong) {
			return fmt.Errorf("%d bytes sent, %d expected: Test returned %v, %v", c.send, c.want, done, err)
		}
		if err := e.Irecv(prev, 3, got).Wait(ctx); err != nil {
			return fmt.Errorf("the message after a wrong one: %w", err)
		}
		if got[0] != byte(i) || got[3] != 3 {
			return fmt.Errorf("the message after a wrong one holds %v", got)
		}
		if err := waitAll(ctx, []collectives.Request{s, s2}); err != nil {
			return fmt.Errorf("the send of a message nobody wanted at that length: %w", err)
		}
	}
	return nil
}

func badArguments(ctx context.Context, e *Env) error {
	b := make([]byte, 4)
	for _, c := range []struct{ rank, tag int }{{-1, 0}, {e.Size(), 0}, {1 << 40, 0}, {0, -1}, {0, collectives.MaxTag + 1}} {
		for what, r := range map[string]collectives.Request{"Isend": e.Isend(c.rank, c.tag, b), "Irecv": e.Irecv(c.rank, c.tag, b)} {
			if err := r.Wait(ctx); err == nil || ctx.Err() != nil {
				return fmt.Errorf("%s(%d, %d): %v, want an error at once", what, c.rank, c.tag, err)
			}
			if done, err := r.Test(); !done || err == nil {
				return fmt.Errorf("%s(%d, %d): Test says %v, %v", what, c.rank, c.tag, done, err)
			}
		}
	}
	return nil
}

// givenUp: a Wait whose context ends returns its error, and the message can still come.
func givenUp(ctx context.Context, e *Env) error {
	me, n := e.Rank(), e.Size()
	next, prev := (me+1)%n, (me-1+n)%n
	for _, length := range []int{4, 100000} {
		in, out := make([]byte, length), make([]byte, length)
		fill(out, uint64(me))
		r := e.Irecv(prev, 4, in)
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		err := r.Wait(short)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("a wait returned %v, want its context's error", err)
		}
		if done, err := r.Test(); done {
			return fmt.Errorf("a receive nobody has sent to is complete (%v)", err)
		}
		if err := e.World.Barrier(ctx); err != nil {
			return err
		}
		s := e.Isend(next, 4, out)
		if err := waitAll(ctx, []collectives.Request{r, s}); err != nil {
			return err
		}
		if err := verify(in, uint64(prev)); err != nil {
			return err
		}
	}
	return nil
}

// closing: a transport closed by one goroutine ends the waits of others.
func closing(ctx context.Context, e *Env) error {
	// All ranks have arrived before the first closes.
	if err := e.World.Barrier(ctx); err != nil {
		return err
	}
	me, n := e.Rank(), e.Size()
	next := (me + 1) % n
	waits := []func(collectives.Request) error{
		func(r collectives.Request) error { return r.Wait(ctx) },
		func(r collectives.Request) error { return r.Wait(collectives.Patient(ctx)) },
	}
	got := make(chan error, len(waits))
	for i, wait := range waits {
		r := e.Irecv(next, 77+i, make([]byte, 1000))
		go func() { got <- wait(r) }()
	}
	time.Sleep(10 * time.Millisecond)
	if err := e.Close(); err != nil {
		return fmt.Errorf("closing: %w", err)
	}
	for range waits {
		select {
		case err := <-got:
			// A neighbour may have closed first.
			var lost *collectives.PeerLostError
			if !errors.Is(err, collectives.ErrClosed) && (n == 1 || !errors.As(err, &lost)) {
				return fmt.Errorf("a wait ended with %v, want ErrClosed", err)
			}
		case <-ctx.Done():
			return errors.New("a wait did not end although the transport was closed")
		}
	}
	for what, r := range map[string]collectives.Request{"Isend": e.Isend(next, 1, nil), "Irecv": e.Irecv(next, 1, nil)} {
		if err := r.Wait(ctx); !errors.Is(err, collectives.ErrClosed) {
			return fmt.Errorf("%s on a closed transport: %v, want ErrClosed", what, err)
		}
	}
	if err := e.Close(); err != nil {
		return fmt.Errorf("a second Close: %w", err)
	}
	return nil
}

// peerCloses: what rank 0 has sent before it closes arrives; then it is lost.
func peerCloses(ctx context.Context, e *Env) error {
	if err := e.World.Barrier(ctx); err != nil {
		return err
	}
	if e.Rank() == 0 {
		var sends []collectives.Request
		for p := 1; p < e.Size(); p++ {
			sends = append(sends, e.Isend(p, 1, []byte("the last words")))
		}
		if err := waitAll(ctx, sends); err != nil {
			return err
		}
		return e.Close()
	}
	time.Sleep(5 * time.Millisecond)
	last, never := make([]byte, 14), e.Irecv(0, 2, make([]byte, 8))
	if err := e.Irecv(0, 1, last).Wait(ctx); err != nil || string(last) != "the last words" {
		return fmt.Errorf("what was sent before the close: %q, %v", last, err)
	}
	var lost *collectives.PeerLostError
	if err := never.Wait(ctx); !errors.As(err, &lost) || lost.Rank != 0 {
		return fmt.Errorf("a receive from a rank that closed: %v, want PeerLostError of rank 0", err)
	}
	if err := e.Isend(0, 3, make([]byte, 100)).Wait(ctx); !errors.As(err, &lost) {
		return fmt.Errorf("a send to a rank that closed: %v, want PeerLostError", err)
	}
	return nil
}
