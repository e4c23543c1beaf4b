package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/launcher"
)

// Exchange is what Exercise measured on one rank.
type Exchange struct {
	Rank      int     `json:"rank"`
	Size      int     `json:"size"`
	Kind      string  `json:"kind"`
	Latency   float64 `json:"latency_seconds"`   // 8 bytes to the next rank while as many come from the one before
	Bandwidth float64 `json:"bytes_per_second"`  // 4 MiB to the next rank
	AllReduce float64 `json:"allreduce_seconds"` // 1 MiB
	Path      string  `json:"path,omitempty"`    // of the MPI library
	Library   string  `json:"library,omitempty"` // what it says of itself
	Error     string  `json:"error,omitempty"`
}

// Exercise sends real messages between all ranks of a world and checks every
// byte: a ring in three sizes, then an all-reduce. Every rank of the world
// calls it.
func Exercise(ctx context.Context, t collectives.Transport) (Exchange, error) {
	info := t.Info()
	x := Exchange{Rank: t.Rank(), Size: t.Size(), Kind: t.Kind(), Path: info["path"], Library: info["library"]}
	next, before := (t.Rank()+1)%t.Size(), (t.Rank()+t.Size()-1)%t.Size()
	for round, n := range []int{8, 64 << 10, 4 << 20} {
		out, in := make([]byte, n), make([]byte, n)
		pattern(out, t.Rank(), round)
		best := time.Duration(1<<63 - 1)
		for range 4 {
			begin := time.Now()
			recv := t.Irecv(before, round, in)
			send := t.Isend(next, round, out)
			if err := errors.Join(send.Wait(ctx), recv.Wait(ctx)); err != nil {
				return x, fmt.Errorf("%d bytes to rank %d and from rank %d: %w", n, next, before, err)
			}
			best = min(best, time.Since(begin))
		}
		want := make([]byte, n)
		pattern(want, before, round)
		for i := range in {
			if in[i] != want[i] {
				return x, fmt.Errorf("message of %d bytes from rank %d: byte %d is %#x, want %#x", n, before, i, in[i], want[i])
			}
		}
		if n == 8 {
			x.Latency = best.Seconds()
		} else {
			x.Bandwidth = float64(n) / best.Seconds()
		}
	}
	sum := make([]float32, 1<<18)
	for i := range sum {
		sum[i] = float32(t.Rank() + i%5)
	}
	begin := time.Now()
	if err := collectives.World(t).AllReduceSumF32(ctx, sum); err != nil {
		return x, fmt.Errorf("all-reduce: %w", err)
	}
	x.AllReduce = time.Since(begin).Seconds()
	for i := range sum {
		if want := float32(t.Size()*(t.Size()-1)/2 + t.Size()*(i%5)); sum[i] != want {
			return x, fmt.Errorf("all-reduce: element %d is %g, want %g", i, sum[i], want)
		}
	}
	return x, nil
}

func pattern(b []byte, rank, round int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8 + rank*31 + round*3)
	}
}

// MPIRank is what a process does that doctor started under an MPI launcher: it
// joins the world, exercises it, closes it, and writes one line to w, which is
// stdout; the line also tells what went wrong. After an error the caller exits
// at once with another code than 0, so that the launcher ends the other rank.
func MPIRank(ctx context.Context, w io.Writer, join func() (collectives.Transport, error)) error {
	var x Exchange
	t, err := join()
	if err == nil {
		if x, err = Exercise(ctx, t); err == nil {
			err = t.Close()
		}
	}
	if err != nil {
		x.Error = err.Error()
	}
	line, e := json.Marshal(x)
	if e == nil {
		_, e = fmt.Fprintf(w, "%s%s\n", probeMark, line)
	}
	return errors.Join(err, e)
}

const probeMark = "pipetrain-doctor "

// checkAllRanks sends messages between all ranks of the world that a launcher
// started, this process being one of them.
func checkAllRanks(ctx context.Context, h *Host) []Finding {
	w := launcher.Detect(h.Env)
	if h.Join == nil || !w.IsRank() {
		return notARank(h)
	}
	t, err := h.Join()
	if err != nil {
		return []Finding{fails("use the launcher that belongs to the library, or name the library with transport.libmpi", "%s: %v", w, err)}
	}
	if t.Size() != w.Size {
		return []Finding{fails("use the launcher that belongs to the library, or name the library with transport.libmpi",
			"%s, but the library formed a world of %d: every rank would train alone", w, t.Size())}
	}
	h.joined = t
	x, err := Exercise(ctx, t)
	if err != nil {
		return []Finding{fails("see which hosts do not reach each other: firewall, several networks (Open MPI: --mca btl_tcp_if_include, MPICH: -iface)", "%s: %v", w, err)}
	}
	return []Finding{ok("%s over %s: %.1f µs for 8 B, %.1f GB/s to the next rank, 1 MiB all-reduced in %.2f ms", w, x.Kind, x.Latency*1e6, x.Bandwidth/1e9, x.AllReduce*1e3).
		with("exchange", x)}
}

// checkMessages sends messages between two ranks over the local transport.
func checkMessages(ctx context.Context, h *Host) []Finding {
	if h.World == nil {
		return []Finding{ok("not checked: no transport was handed in")}
	}
	world, err := h.World(2)
	if err != nil {
		return []Finding{fails("see the checks above: memfd, limits", "two ranks over the local transport: %v", err)}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	results, errs := make([]Exchange, len(world)), make([]error, len(world))
	var wg sync.WaitGroup
	for i, t := range world {
		wg.Go(func() {
			results[i], errs[i] = Exercise(ctx, t)
			if errs[i] != nil {
				cancel() // the other rank waits for messages that will not come
			}
		})
	}
	wg.Wait()
	for _, t := range world {
		t.Close()
	}
	if err := firstCause(errs); err != nil {
		return []Finding{fails("please report this, with the output of doctor --json; transport.kind = \"mpi\" is the other way", "two ranks over the local transport: %v", err)}
	}
	x := results[0]
	return []Finding{ok("send and all-reduce between 2 ranks: %.1f µs for 8 B, %.1f GB/s for 4 MiB, 1 MiB all-reduced in %.2f ms", x.Latency*1e6, x.Bandwidth/1e9, x.AllReduce*1e3).
		with("latency_seconds", x.Latency).with("bytes_per_second", x.Bandwidth).with("allreduce_seconds", x.AllReduce).with("info", world[0].Info())}
}

// firstCause returns the error that is not the consequence of another rank's.
func firstCause(errs []error) error {
	var any error
	for _, err := range errs {
		if err == nil {
			continue
		}
		if !errors.Is(err, context.Canceled) {
			return err
		}
		any = err
	}
	return any
}
