package transporttest

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
)

// Faults is what a faulty transport does, drawn from Seed: the same seed and
// the same calls give the same faults.
type Faults struct {
	Seed uint64
	// Delay: every send starts up to this much later, in the order of each pair.
	Delay time.Duration
	// Drop is the share of sends (0 to 1) that never arrive, though they end well.
	Drop float64
	// AbortAfter ends the rank's part (Close) at that many sends; 0: never. Later
	// requests fail with ErrClosed, and the peers lose the rank.
	AbortAfter int
}

// Faulty wraps a transport, for tests of how its users bear faults.
func Faulty(t collectives.Transport, f Faults) collectives.Transport {
	return &faulty{Transport: t, f: f, rng: rand.New(rand.NewPCG(f.Seed, uint64(t.Rank()))), lanes: map[int]chan struct{}{}}
}

type faulty struct {
	collectives.Transport
	f Faults

	mu    sync.Mutex
	rng   *rand.Rand
	sends int
	lanes map[int]chan struct{} // per destination: closed when the last send has started
}

func (f *faulty) Isend(to, tag int, b []byte) collectives.Request {
	f.mu.Lock()
	f.sends++
	abort := f.f.AbortAfter > 0 && f.sends == f.f.AbortAfter
	drop := f.rng.Float64() < f.f.Drop
	var delay time.Duration
	if f.f.Delay > 0 {
		delay = time.Duration(f.rng.Int64N(int64(f.f.Delay)))
	}
	before := f.lanes[to]
	started := make(chan struct{})
	f.lanes[to] = started
	f.mu.Unlock()
	if abort {
		_ = f.Close()
	}
	if drop && !abort {
		close(started)
		return done{}
	}
	if delay == 0 || abort {
		if before != nil {
			<-before
		}
		defer close(started)
		return f.Transport.Isend(to, tag, b)
	}
	r := &later{started: started}
	go func() {
		defer close(started)
		time.Sleep(delay)
		if before != nil {
			<-before
		}
		r.Request = f.Transport.Isend(to, tag, b)
	}()
	return r
}

// later is a request that starts in a while.
type later struct {
	collectives.Request
	started chan struct{}
}

func (l *later) Wait(ctx context.Context) error {
	select {
	case <-l.started:
		return l.Request.Wait(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *later) Test() (bool, error) {
	select {
	case <-l.started:
		return l.Request.Test()
	default:
		return false, nil
	}
}

// done is a request that was fulfilled without anything happening.
type done struct{}

func (done) Wait(context.Context) error { return nil }
func (done) Test() (bool, error)        { return true, nil }
