package transporttest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
)

// Overlap measures what a transport does while its caller computes, between
// ranks 0 and 1: how much of a transfer of 16 MiB each way is hidden behind a
// fixed amount of computing of about 50 ms, in percent of the time the transfer
// takes alone, and what share of a core goes into looking after a receive that
// nobody answers. Where every core computes there is nothing to hide behind:
// the copy takes its time from the computing. Rank 0 gets the figures.
func Overlap(ctx context.Context, tr collectives.Transport) ([]Figure, error) {
	world := collectives.World(tr)
	in, out := make([]byte, 16<<20), make([]byte, 16<<20)
	peer := 1 - tr.Rank()
	rounds := 1000
	for took := time.Duration(0); took < 50*time.Millisecond; rounds += rounds / 4 {
		began := time.Now()
		compute(rounds)
		took = time.Since(began)
	}
	// both says how long the transfer, the computing, or both together take.
	both := func(transfer, computing bool) (float64, error) {
		if err := world.Barrier(ctx); err != nil || peer < 0 {
			return 0, err
		}
		began := time.Now()
		var reqs []collectives.Request
		if transfer {
			reqs = append(reqs, tr.Irecv(peer, 1, in), tr.Isend(peer, 1, out))
		}
		if computing {
			compute(rounds)
		}
		err := waitAll(ctx, reqs)
		return time.Since(began).Seconds(), err
	}
	var times [3][]float64
	for range 15 {
		for i, c := range [][2]bool{{true, false}, {false, true}, {true, true}} {
			d, err := both(c[0], c[1])
			if err != nil {
				return nil, err
			}
			times[i] = append(times[i], d)
		}
	}
	var medians [3]float64
	for i := range times {
		slices.Sort(times[i])
		medians[i] = times[i][len(times[i])/2]
	}
	hidden := 0.0
	if medians[0] > 0 {
		hidden = (medians[0] + medians[1] - medians[2]) / medians[0]
	}

	var share float64
	if err := world.Barrier(ctx); err != nil {
		return nil, err
	}
	if peer >= 0 {
		r := tr.Irecv(peer, 2, make([]byte, 8))
		before := cpuTime()
		began := time.Now()
		time.Sleep(300 * time.Millisecond)
		share = float64(cpuTime()-before) / float64(time.Since(began))
		if err := tr.Isend(peer, 2, make([]byte, 8)).Wait(ctx); err != nil {
			return nil, err
		}
		if err := r.Wait(ctx); err != nil {
			return nil, fmt.Errorf("the receive left pending: %w", err)
		}
	}
	return []Figure{{"16MiB-hidden", min(1, max(0, hidden)) * 100, "%"}, {"poller-core-share", share * 100, "%"}}, nil
}

// compute is arithmetic that no compiler leaves out.
func compute(rounds int) {
	x := 1.0
	for range rounds * 1000 {
		x = x*1.0000001 + 0.1
		if x > 1e9 {
			x = 1
		}
	}
	computed.Store(math.Float64bits(x))
}

var computed atomic.Uint64

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
