package driver_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/kernels/cuda/driver"
)

// pool returns a pool and two streams.
func pool(t *testing.T) (*driver.Context, *driver.Pool, [2]*driver.Stream) {
	t.Helper()
	c := context(t)
	p, err := c.NewPool()
	if err != nil {
		t.Fatal(err)
	}
	var s [2]*driver.Stream
	for i := range s {
		if s[i], err = c.NewStream(0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s[i].Destroy(); err != nil {
				t.Error(err)
			}
		})
	}
	return c, p, s
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// A pool keeps what was freed until it is trimmed, and the device's free memory says so.
func TestPoolKeepsAndTrims(t *testing.T) {
	c, p, s := pool(t)
	before, _, err := c.MemGetInfo()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		a := must[driver.Addr](t)(p.Alloc(3<<20, s[0]))
		if err := s[0].Set(a, 1, 3<<20); err != nil {
			t.Error(err)
		}
		if err := p.Free(a, s[0]); err != nil {
			t.Error(err)
		}
	}
	if err := s[0].Synchronize(); err != nil {
		t.Error(err)
	}
	reserved, used := must[int64](t)(p.Reserved()), must[int64](t)(p.Used())
	if free, _, err := c.MemGetInfo(); err != nil || reserved < 3<<20 || used != 0 || before-free != reserved {
		t.Errorf("%d bytes reserved, %d used, %d of the device gone: %v", reserved, used, before-free, err)
	}
	if err := p.Trim(0); err != nil {
		t.Error(err)
	}
	if free, _, err := c.MemGetInfo(); err != nil || free != before || must[int64](t)(p.Reserved()) != 0 {
		t.Errorf("after Trim %d bytes of the device are gone: %v", before-free, err)
	}
	if _, err := p.Alloc(1<<40, s[0]); !errors.Is(err, driver.OutOfMemory) || !strings.Contains(err.Error(), "asked for 1099511627776 bytes") {
		t.Errorf("more than there is: %v", err)
	}
	if err := p.Destroy(); err != nil {
		t.Error(err)
	}
}

// Each mistake in the order of streams is refused, whatever the streams happen to do.
func TestPoolOrder(t *testing.T) {
	refused := func(t *testing.T, err error, why string) {
		t.Helper()
		if !errors.Is(err, driver.InvalidValue) || !strings.Contains(err.Error(), why) {
			t.Errorf("want %q: %v", why, err)
		}
	}
	for name, do := range map[string]func(t *testing.T, c *driver.Context, p *driver.Pool, s [2]*driver.Stream, a driver.Addr, e *driver.Event){
		"another stream": func(t *testing.T, c *driver.Context, p *driver.Pool, s [2]*driver.Stream, a driver.Addr, e *driver.Event) {
			refused(t, s[1].Set(a, 0, 8), "not behind its allocation")
			if err := errors.Join(e.Record(s[0]), s[1].Wait(e), s[1].Set(a, 0, 8)); err != nil {
				t.Errorf("behind the allocation: %v", err)
			}
			refused(t, p.Free(a, s[0]), "another stream may use it")
			if err := errors.Join(e.Record(s[1]), s[0].Wait(e), p.Free(a, s[0])); err != nil {
				t.Errorf("behind the last use: %v", err)
			}
			refused(t, s[1].Set(a, 0, 8), "invalid argument")
		},
		"the host waited": func(t *testing.T, c *driver.Context, p *driver.Pool, s [2]*driver.Stream, a driver.Addr, e *driver.Event) {
			if err := errors.Join(s[0].Synchronize(), s[1].Set(a, 0, 8), s[1].Synchronize(), p.Free(a, s[0])); err != nil {
				t.Error(err)
			}
		},
		"after free": func(t *testing.T, c *driver.Context, p *driver.Pool, s [2]*driver.Stream, a driver.Addr, e *driver.Event) {
			if err := p.Free(a, s[0]); err != nil {
				t.Error(err)
			}
			refused(t, s[0].Set(a, 0, 8), "")
			refused(t, p.Free(a, s[0]), "no memory of a pool, or was freed")
		},
		"of another kind": func(t *testing.T, c *driver.Context, p *driver.Pool, s [2]*driver.Stream, a driver.Addr, e *driver.Event) {
			other := must[driver.Addr](t)(c.MemAlloc(100))
			refused(t, p.Free(other, s[0]), "no memory of a pool")
			refused(t, c.MemFree(a), "")
			if _, err := c.MemHandle(a); err == nil {
				t.Error("memory of a pool was shared with other processes")
			}
			if err := errors.Join(c.MemFree(other), p.Free(a, s[0])); err != nil {
				t.Error(err)
			}
		},
		"a leak": func(t *testing.T, c *driver.Context, p *driver.Pool, s [2]*driver.Stream, a driver.Addr, e *driver.Event) {
			refused(t, p.Destroy(), "1 pieces of the pool were not freed")
			if err := p.Free(a, s[0]); err != nil {
				t.Error(err)
			}
		},
		"captured": func(t *testing.T, c *driver.Context, p *driver.Pool, s [2]*driver.Stream, a driver.Addr, e *driver.Event) {
			if err := s[1].BeginCapture(); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Alloc(8, s[1]); err == nil || !strings.Contains(err.Error(), "captured stream") {
				t.Errorf("an allocation in a captured stream: %v", err)
			}
			if err := s[1].Set(a, 0, 8); err != nil {
				t.Error(err)
			}
			g, err := s[1].EndCapture()
			if err != nil {
				t.Fatal(err)
			}
			refused(t, s[1].LaunchGraph(g), "not behind its allocation")
			if err := errors.Join(s[0].LaunchGraph(g), p.Free(a, s[0]), g.Destroy()); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, p, s := pool(t)
			a := must[driver.Addr](t)(p.Alloc(1000, s[0]))
			e := must[*driver.Event](t)(c.NewEvent(false))
			do(t, c, p, s, a, e)
			if err := errors.Join(c.Synchronize(), p.Destroy(), e.Destroy()); err != nil {
				t.Error(err)
			}
		})
	}
}
