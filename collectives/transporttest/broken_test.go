package transporttest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/collectives/local"
	"github.com/pipetrain/pipetrain/collectives/transporttest"
)

// broken is a transport with one fault.
type broken struct {
	collectives.Transport
	isend func(b *broken, to, tag int, p []byte) collectives.Request
	irecv func(b *broken, from, tag int, p []byte) collectives.Request

	mu    sync.Mutex
	count int
	held  map[[2]int]*lateRequest
}

func (b *broken) Isend(to, tag int, p []byte) collectives.Request {
	if b.isend == nil {
		return b.Transport.Isend(to, tag, p)
	}
	return b.isend(b, to, tag, p)
}

func (b *broken) Irecv(from, tag int, p []byte) collectives.Request {
	if b.irecv == nil {
		return b.Transport.Irecv(from, tag, p)
	}
	return b.irecv(b, from, tag, p)
}

func (b *broken) every(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count++
	return b.count%n == 0
}

type finished struct{}

func (finished) Wait(context.Context) error { return nil }
func (finished) Test() (bool, error)        { return true, nil }

// lateRequest is a send that starts when the next of its tag has, or in a while.
type lateRequest struct {
	once  sync.Once
	start func() collectives.Request
	r     collectives.Request
}

func (l *lateRequest) begin() { l.once.Do(func() { l.r = l.start() }) }
func (l *lateRequest) Wait(ctx context.Context) error {
	l.begin()
	return l.r.Wait(ctx)
}
func (l *lateRequest) Test() (bool, error) {
	l.begin()
	return l.r.Test()
}

// wrapped changes what a request says.
type wrapped struct {
	collectives.Request
	change func(error) error
	ctx    context.Context
}

func (w wrapped) Wait(ctx context.Context) error {
	if w.ctx != nil {
		ctx = w.ctx
	}
	return w.change(w.Request.Wait(ctx))
}

func (w wrapped) Test() (bool, error) {
	done, err := w.Request.Test()
	return done, w.change(err)
}

func same(err error) error { return err }

var faults = map[string]func(b *broken){
	"drops one in 50": func(b *broken) {
		b.isend = func(b *broken, to, tag int, p []byte) collectives.Request {
			if b.every(50) {
				return finished{}
			}
			return b.Transport.Isend(to, tag, p)
		}
	},
	"reorders within a tag": func(b *broken) {
		b.held = map[[2]int]*lateRequest{}
		b.isend = func(b *broken, to, tag int, p []byte) collectives.Request {
			k := [2]int{to, tag}
			b.mu.Lock()
			before := b.held[k]
			delete(b.held, k)
			var l *lateRequest
			if before == nil {
				l = &lateRequest{start: func() collectives.Request { return b.Transport.Isend(to, tag, p) }}
				b.held[k] = l
			}
			b.mu.Unlock()
			if l != nil {
				time.AfterFunc(2*time.Millisecond, l.begin)
				return l
			}
			r := b.Transport.Isend(to, tag, p)
			before.begin()
			return r
		}
	},
	"truncates by one byte": func(b *broken) {
		cut := func(p []byte) []byte { return p[:max(0, len(p)-1)] }
		b.isend = func(b *broken, to, tag int, p []byte) collectives.Request { return b.Transport.Isend(to, tag, cut(p)) }
		b.irecv = func(b *broken, from, tag int, p []byte) collectives.Request {
			return b.Transport.Irecv(from, tag, cut(p))
		}
	},
	"flips a bit in large messages": func(b *broken) {
		b.isend = func(b *broken, to, tag int, p []byte) collectives.Request {
			if len(p) > 100000 && b.every(3) {
				p = slices.Clone(p)
				p[len(p)/2] ^= 4
			}
			return b.Transport.Isend(to, tag, p)
		}
	},
	"ends sends early": func(b *broken) {
		b.isend = func(b *broken, to, tag int, p []byte) collectives.Request {
			go func() {
				time.Sleep(200 * time.Microsecond)
				b.Transport.Isend(to, tag, p)
			}()
			return finished{}
		}
	},
	"ends receives early": func(b *broken) {
		b.irecv = func(b *broken, from, tag int, p []byte) collectives.Request {
			b.Transport.Irecv(from, tag, p)
			return finished{}
		}
	},
	"passes over wrong lengths": func(b *broken) {
		b.irecv = func(b *broken, from, tag int, p []byte) collectives.Request {
			return wrapped{b.Transport.Irecv(from, tag, p), func(err error) error {
				if errors.As(err, new(*collectives.LengthError)) {
					return nil
				}
				return err
			}, nil}
		}
	},
	"takes the tag modulo 8": func(b *broken) {
		b.isend = func(b *broken, to, tag int, p []byte) collectives.Request { return b.Transport.Isend(to, tag&7, p) }
		b.irecv = func(b *broken, from, tag int, p []byte) collectives.Request { return b.Transport.Irecv(from, tag&7, p) }
	},
	"hears no context": func(b *broken) {
		b.irecv = func(b *broken, from, tag int, p []byte) collectives.Request {
			ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
			time.AfterFunc(time.Second, cancel)
			return wrapped{b.Transport.Irecv(from, tag, p), same, ctx}
		}
	},
	"says nothing of closing": func(b *broken) {
		b.irecv = func(b *broken, from, tag int, p []byte) collectives.Request {
			return wrapped{b.Transport.Irecv(from, tag, p), func(err error) error {
				if errors.Is(err, collectives.ErrClosed) || errors.As(err, new(*collectives.PeerLostError)) {
					return nil
				}
				return err
			}, nil}
		}
	},
}

// TestTheSuiteFindsFaults: every broken transport fails some case, and what is
// wrapped the same way without a fault passes.
func TestTheSuiteFindsFaults(t *testing.T) {
	opt := transporttest.Options{MaxBytes: 300 << 10, Timeout: 700 * time.Millisecond}
	for name, fault := range faults {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			if transporttest.Race && strings.Contains(name, "early") {
				t.Skip("reads and writes a buffer at once, which is the fault")
			}
			t.Parallel()
			var found []string
			for _, c := range transporttest.Cases() {
				if c.Ranks[1] < 2 {
					continue
				}
				world := local.NewWorld(2)
				for i, tr := range world {
					b := &broken{Transport: tr}
					fault(b)
					world[i] = b
				}
				if err := transporttest.RunCase(c, world, opt); err != nil {
					found = append(found, c.Name)
					if len(found) == 2 {
						break
					}
				}
			}
			if len(found) == 0 {
				t.Errorf("a transport that %s passes the suite", name)
			}
			t.Logf("found by %q", found)
		})
	}
	t.Run("no_fault", func(t *testing.T) {
		transporttest.Run(t, func(t testing.TB, n int) []collectives.Transport {
			world := local.NewWorld(n)
			for i, tr := range world {
				world[i] = &broken{Transport: tr}
			}
			return world
		}, transporttest.Options{MaxBytes: 300 << 10})
	})
}

// TestDelaysAreBorne: a transport that is only slow passes.
func TestDelaysAreBorne(t *testing.T) {
	for _, c := range transporttest.Cases() {
		if c.Ends || strings.Contains(c.Name, "in flight") {
			continue
		}
		world := local.NewWorld(2)
		for i, tr := range world {
			world[i] = transporttest.Faulty(tr, transporttest.Faults{Seed: 3, Delay: 300 * time.Microsecond})
		}
		if err := transporttest.RunCase(c, world, transporttest.Options{MaxBytes: 300 << 10}); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

func TestFaultyDropsAndAborts(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	run := func(f transporttest.Faults) (arrived []int, sender, receiver error) {
		world := local.NewWorld(2)
		s := transporttest.Faulty(world[0], f)
		for k := range 100 {
			if err := s.Isend(1, k, []byte{byte(k)}).Wait(ctx); err != nil {
				sender = err
				break
			}
		}
		if err := world[0].Isend(1, 200, nil).Wait(ctx); err == nil {
			receiver = world[1].Irecv(0, 200, nil).Wait(ctx)
		}
		for k := range 100 {
			if done, err := world[1].Irecv(0, k, make([]byte, 1)).Test(); done && err == nil {
				arrived = append(arrived, k)
			}
		}
		_ = world[0].Close()
		_ = world[1].Close()
		return arrived, sender, receiver
	}
	a, _, _ := run(transporttest.Faults{Seed: 1, Drop: 0.3})
	b, _, _ := run(transporttest.Faults{Seed: 1, Drop: 0.3})
	c, _, _ := run(transporttest.Faults{Seed: 2, Drop: 0.3})
	if len(a) < 50 || len(a) > 90 || !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Errorf("drops: %d, %d and %d of 100 arrived; want the same 70 or so for one seed, others for another", len(a), len(b), len(c))
	}
	if got, err, _ := run(transporttest.Faults{AbortAfter: 10}); len(got) != 9 || !errors.Is(err, collectives.ErrClosed) {
		t.Errorf("abort after 10: %d arrived, the sender saw %v", len(got), err)
	}
}
