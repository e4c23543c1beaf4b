package mpi_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
)

// soak is a short life of a rank: a ring of messages from several goroutines
// under garbage collection, an all-reduce, and an orderly end.
func soak(ctx context.Context, tr collectives.Transport) error {
	me, n := tr.Rank(), tr.Size()
	errs := make(chan error, 3)
	for lane := range 3 {
		go func() {
			for i := range 20 {
				b, got := make([]byte, (i%4)*40000+lane), make([]byte, (i%4)*40000+lane)
				r := tr.Irecv((me-1+n)%n, lane, got)
				if err := tr.Isend((me+1)%n, lane, b).Wait(ctx); err != nil {
					errs <- err
					return
				}
				if err := r.Wait(ctx); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	runtime.GC()
	f := make([]float32, 300000)
	for i := range f {
		f[i] = float32(me + 1)
	}
	if err := collectives.World(tr).IAllReduceSumF32(ctx, f).Wait(ctx); err != nil {
		return err
	}
	if want := float32(n * (n + 1) / 2); f[0] != want || f[len(f)-1] != want {
		return fmt.Errorf("sum is %g … %g, want %g", f[0], f[len(f)-1], want)
	}
	for range 3 {
		if err := <-errs; err != nil {
			return err
		}
	}
	return collectives.World(tr).Barrier(ctx)
}

// TestSoak starts and ends worlds again and again: PIPETRAIN_SOAK of them under
// each launcher (scripts/soak-mpi.sh), else a few.
func TestSoak(t *testing.T) {
	starts := 3
	if s := os.Getenv("PIPETRAIN_SOAK"); s != "" {
		var err error
		if starts, err = strconv.Atoi(s); err != nil {
			t.Fatalf("PIPETRAIN_SOAK=%q: want a number of starts", s)
		}
	}
	for _, l := range launchers(t) {
		t.Run(l.name, func(t *testing.T) {
			began, longest, failed := time.Now(), time.Duration(0), 0
			for i := range starts {
				start := time.Now()
				p := l.start(t, 2+i%3, "soak")
				took := time.Since(start)
				longest = max(longest, took)
				if took > 3*time.Second {
					t.Logf("start %d took %v: %s", i, took.Round(time.Millisecond), p.Output.String())
				}
				if p.Err != nil {
					failed++
					t.Errorf("start %d, %d ranks: %v\n%s", i, 2+i%3, p.Err, p.Output.String())
				}
				if (i+1)%100 == 0 {
					t.Logf("%d starts, %d failed", i+1, failed)
				}
			}
			t.Logf("%d starts of 2 to 4 ranks, %d failed, %v each, the longest %v",
				starts, failed, (time.Since(began) / time.Duration(max(starts, 1))).Round(time.Millisecond), longest.Round(time.Millisecond))
		})
	}
}
