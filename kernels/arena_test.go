package kernels

import (
	"errors"
	"math/rand"
	"testing"
)

func TestArenaReusesAndCoalesces(t *testing.T) {
	a := NewArena(Buffer{})
	x, _ := a.Alloc(1000, "a")
	y, _ := a.Alloc(2000, "b")
	z, _ := a.Alloc(10, "a")
	if a.Extent() != 1024+2048+256 {
		t.Fatalf("extent %d", a.Extent())
	}
	a.Free(x)
	a.Free(y) // joins x's hole: 3072 bytes
	w, _ := a.Alloc(3072, "c")
	if w.Addr != 0 {
		t.Errorf("the joined hole was not reused: block at %d", w.Addr)
	}
	a.Free(w)
	a.Free(z)
	if a.Used() != 0 || a.end != 0 || len(a.free) != 0 {
		t.Errorf("an empty arena keeps used %d, end %d, free %v", a.Used(), a.end, a.free)
	}
	if peak, by := a.Peak(); peak != 3328 || by["b"] != 2048 || by["a"] != 1280 {
		t.Errorf("peak %d %v", peak, by)
	}
}

func TestArenaRefusesWhatDoesNotFit(t *testing.T) {
	a := NewArena(Buffer{Addr: 1 << 20, Len: 1024, Type: U8})
	if _, err := a.Alloc(1025, "weights"); err == nil {
		t.Fatal("1025 bytes fitted into 1024")
	} else if e := (*NoMemoryError)(nil); !errors.As(err, &e) || e.Category != "weights" {
		t.Fatalf("error %v", err)
	}
	b, err := a.Alloc(1024, "weights")
	if err != nil || b.Addr != 1<<20 {
		t.Fatalf("block %v, %v", b, err)
	}
	a.Free(b)
	defer func() {
		if recover() == nil {
			t.Error("freeing twice went unnoticed")
		}
	}()
	a.Free(b)
}

// A random sequence on a dry arena, replayed on a real one of the dry one's
// extent, must fit, give the same offsets and never hand out a byte twice.
func TestArenaPlanHolds(t *testing.T) {
	for seed := range int64(50) {
		run := func(a *Arena, origin uintptr) (offs []uintptr) {
			r := rand.New(rand.NewSource(seed))
			var live []Block
			for range 400 {
				if len(live) > 0 && r.Intn(100) < 45 {
					i := r.Intn(len(live))
					a.Free(live[i])
					live = append(live[:i], live[i+1:]...)
					continue
				}
				b, err := a.Alloc(int64(r.Intn(5000)), "x")
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range live {
					if !b.Empty() && !o.Empty() && b.Addr < o.Addr+uintptr(o.bytes) && o.Addr < b.Addr+uintptr(b.bytes) {
						t.Fatalf("seed %d: blocks overlap", seed)
					}
				}
				live = append(live, b)
				if !b.Empty() {
					offs = append(offs, b.Addr-origin)
				}
			}
			return offs
		}
		dry := NewArena(Buffer{})
		want := run(dry, 0)
		real := NewArena(Buffer{Addr: 4096, Len: dry.Extent(), Type: U8})
		got := run(real, 4096)
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("seed %d: block %d at %d, planned %d", seed, i, got[i], want[i])
			}
		}
		if p, _ := dry.Peak(); p > dry.Extent() || real.Extent() != dry.Extent() {
			t.Fatalf("extents %d, %d, peak %d", dry.Extent(), real.Extent(), p)
		}
	}
}
