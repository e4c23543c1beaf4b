// Package transporttest is the conformance suite of the transports, and a
// seeded faulty transport for the tests of other packages.
//
// A case is one program that all ranks of a world perform, so that the same
// case runs with ranks as goroutines (Run) and as processes (RunRank, called in
// each). The suite is itself tried against transports broken on purpose.
package transporttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
)

// Options say what the transport under test promises beyond the contract, and
// how much to move.
type Options struct {
	Rendezvous bool // a send ends only when it is received
	MaxBytes   int  // largest message; 0: 64 MiB
	Timeout    time.Duration
	Only       string // run cases whose name contains this
}

func (o Options) maxBytes() int {
	if o.MaxBytes == 0 {
		return 64 << 20
	}
	return o.MaxBytes
}

func (o Options) timeout() time.Duration {
	if o.Timeout == 0 {
		return 60 * time.Second
	}
	return o.Timeout
}

// Case is a program of every rank.
type Case struct {
	Name  string
	Ranks [2]int // fewest and most ranks it is for
	// Ends says that the case closes the transport: it needs a world of its own,
	// and is not run where MPI can be initialised only once.
	Ends bool
	Body func(ctx context.Context, e *Env) error
}

// Env is what a case sees: the rank's transport and the options.
type Env struct {
	collectives.Transport
	Options
	World *collectives.Comm
}

// Cases lists the suite.
func Cases() []Case {
	all := append(pointToPoint(), failures()...)
	return append(all, collective()...)
}

// Run runs the suite with the ranks as goroutines; newWorld makes the n
// transports of a world. It is called once per case and number of ranks.
func Run(t *testing.T, newWorld func(t testing.TB, n int) []collectives.Transport, opt Options) {
	for _, c := range Cases() {
		if !strings.Contains(c.Name, opt.Only) {
			continue
		}
		t.Run(strings.ReplaceAll(c.Name, " ", "_"), func(t *testing.T) {
			for _, n := range []int{1, 2, 3, 4, 8} {
				if n < c.Ranks[0] || n > c.Ranks[1] || (Race && n > 4) {
					continue
				}
				if err := RunCase(c, newWorld(t, n), opt); err != nil {
					t.Errorf("%d ranks: %v", n, err)
				}
			}
		})
	}
}

// RunCase runs one case over a world of goroutines, and closes it.
func RunCase(c Case, world []collectives.Transport, opt Options) error {
	ctx, cancel := context.WithTimeout(context.Background(), opt.timeout())
	defer cancel()
	errs := make(chan error, len(world))
	for _, tr := range world {
		go func() { errs <- rankBody(ctx, c, tr, opt) }()
	}
	var all []error
	stuck := time.After(opt.timeout() + 10*time.Second)
	for range world {
		select {
		case err := <-errs:
			if err != nil {
				cancel() // the others wait for this rank in vain
				all = append(all, err)
			}
		case <-stuck:
			buf := make([]byte, 1<<20)
			return errors.Join(append(all, fmt.Errorf("a rank does not return, %v after its context ended:\n%s", 10*time.Second, buf[:runtime.Stack(buf, true)]))...)
		}
	}
	for _, tr := range world {
		if err := tr.Close(); err != nil {
			all = append(all, fmt.Errorf("close: %w", err))
		}
	}
	return errors.Join(all...)
}

// RunRank performs the cases over a transport whose other ranks are elsewhere
// and do the same. Cases that end the world are left out. The first failing
// case ends it, as the ranks are then no longer in step.
func RunRank(tr collectives.Transport, opt Options) error {
	for _, c := range Cases() {
		if c.Ends || tr.Size() < c.Ranks[0] || tr.Size() > c.Ranks[1] || !strings.Contains(c.Name, opt.Only) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), opt.timeout())
		err := rankBody(ctx, c, tr, opt)
		if err == nil {
			err = collectives.World(tr).Barrier(ctx)
		}
		cancel()
		if err != nil {
			return fmt.Errorf("case %q: %w", c.Name, err)
		}
	}
	return nil
}

func rankBody(ctx context.Context, c Case, tr collectives.Transport, opt Options) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("rank %d: panic: %v\n%s", tr.Rank(), p, debug.Stack())
		}
	}()
	e := &Env{Transport: tr, Options: opt, World: collectives.World(tr)}
	if err := c.Body(ctx, e); err != nil {
		return fmt.Errorf("rank %d: %w", tr.Rank(), err)
	}
	return nil
}

// fill writes bytes that depend on seed and place; verify finds the first that differs.
func fill(b []byte, seed uint64) {
	x := seed*0x9e3779b97f4a7c15 + 1
	for i := range b {
		if i&7 == 0 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		b[i] = byte(x >> (8 * (i & 7)))
	}
}

func verify(b []byte, seed uint64) error {
	x := seed*0x9e3779b97f4a7c15 + 1
	for i := range b {
		if i&7 == 0 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		if b[i] != byte(x>>(8*(i&7))) {
			return fmt.Errorf("byte %d of %d is %#02x, want %#02x", i, len(b), b[i], byte(x>>(8*(i&7))))
		}
	}
	return nil
}

// scribble overwrites what the transport has given back: a send that ended
// before its bytes were read shows.
func scribble(b []byte) {
	for i := range b {
		b[i] = 0xee
	}
}

func waitAll(ctx context.Context, reqs []collectives.Request) error {
	for i, r := range reqs {
		if err := r.Wait(ctx); err != nil {
			return fmt.Errorf("request %d of %d: %w", i, len(reqs), err)
		}
	}
	return nil
}
