package local

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
)

func smoke(tr collectives.Transport) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c := collectives.World(tr)
	for _, n := range []int{1, 5, 1000, 30000, 300001} {
		f := make([]float32, n)
		for i := range f {
			f[i] = float32(i%7) + float32(tr.Rank())*0.1
		}
		if err := c.AllReduceSumF32(ctx, f); err != nil {
			return err
		}
		for i := range f {
			var w float32
			for r := range tr.Size() {
				if r == 0 {
					w = float32(i % 7)
				} else {
					w += float32(i%7) + float32(r)*0.1
				}
			}
			if f[i] != w {
				return fmt.Errorf("n=%d element %d: %g, want %g", n, i, f[i], w)
			}
		}
	}
	b := make([]byte, 3<<20)
	if tr.Rank() == 0 {
		for i := range b {
			b[i] = byte(i * 7)
		}
	}
	if err := c.Broadcast(ctx, 0, b); err != nil {
		return err
	}
	for i := range b {
		if b[i] != byte(i*7) {
			return fmt.Errorf("broadcast byte %d", i)
		}
	}
	all, err := c.Gather(ctx, 0, []byte(fmt.Sprint("rank", tr.Rank())))
	if err != nil {
		return err
	}
	for i := range all {
		if string(all[i]) != fmt.Sprint("rank", i) {
			return fmt.Errorf("gather %d: %q", i, all[i])
		}
	}
	me := tr.Rank()
	x, y := []byte("to myself, through the ring"), make([]byte, 27)
	q := tr.Irecv(me, 5, y)
	if err := tr.Isend(me, 5, x).Wait(ctx); err != nil {
		return err
	}
	if err := q.Wait(ctx); err != nil {
		return err
	}
	big, got := make([]byte, 1<<20), make([]byte, 1<<20)
	big[77] = 9
	q = tr.Irecv(me, 5, got)
	if err := tr.Isend(me, 5, big).Wait(ctx); err != nil {
		return err
	}
	if err := q.Wait(ctx); err != nil || got[77] != 9 {
		return fmt.Errorf("self: %v %d", err, got[77])
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	return tr.Close()
}

func TestSmoke(t *testing.T) {
	for _, opt := range []Options{{}, {Rendezvous: true}, {NoDirectCopy: true}, {Processes: true}, {Processes: true, NoDirectCopy: true, RingBytes: 8 << 10}, {Processes: true, Rendezvous: true, Spin: -1}} {
		for _, n := range []int{1, 2, 3, 4, 8} {
			t.Run(fmt.Sprintf("%+v/%d", opt, n), func(t *testing.T) {
				w := NewWorldWith(n, opt)
				errs := make(chan error, n)
				for _, tr := range w {
					go func() { errs <- smoke(tr) }()
				}
				for range w {
					if err := <-errs; err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}
