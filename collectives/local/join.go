package local

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/pipetrain/pipetrain/collectives"
)

// Join makes this process rank of the world of size ranks whose segment Create
// made and the launcher passed on as file; file may be closed afterwards. It
// returns when all ranks have joined. Errors name the ranks that are missing or
// died, and whom a rank taken twice belongs to.
func Join(file *os.File, rank, size int, opt Options) (collectives.Transport, error) {
	if size < 1 || rank < 0 || rank >= size {
		return nil, fmt.Errorf("local: rank %d of a world of %d", rank, size)
	}
	seg, err := mapSegment(file, size)
	if err != nil {
		return nil, err
	}
	t := newTransport(rank, seg, opt)
	if !atomic.CompareAndSwapUint32(seg.slot32(rank, slotState), stateNone, stateTaken) {
		by := atomic.LoadUint32(seg.slot32(rank, slotPID))
		seg.unmap()
		return nil, fmt.Errorf("local: rank %d is already taken, by process %d: two ranks were started with one number, or a rank was started again", rank, by)
	}
	if !opt.NoDirectCopy {
		allowReading()
	}
	t.publish()
	if err := t.await(opt); err != nil {
		atomic.StoreUint32(seg.slot32(rank, slotState), stateClosed)
		seg.unmap()
		return nil, err
	}
	for _, p := range t.peers {
		t.learn(p)
	}
	if opt.NoDirectCopy {
		t.info["copy"] = "through the ring (as asked)"
		t.peers[rank].direct = true
	} else {
		t.probePeers()
	}
	t.startPoller()
	return t, nil
}

// publish tells the other ranks where this one is.
func (t *Transport) publish() {
	pid := os.Getpid()
	start, _ := processStart(pid)
	t.probe = new(uint64)
	*t.probe = segMagic ^ uint64(t.rank)
	s := t.seg
	atomic.StoreUint64(s.slot64(t.rank, slotStart), start)
	atomic.StoreUint64(s.slot64(t.rank, slotProbe), uint64(uintptr(unsafe.Pointer(t.probe))))
	atomic.StoreUint32(s.slot32(t.rank, slotPID), uint32(pid))
	atomic.StoreUint32(s.slot32(t.rank, slotState), stateJoined)
	if joined := s.u32(offJoined); atomic.AddUint32(joined, 1) == uint32(t.size) {
		futexWake(joined)
	}
}

func (t *Transport) learn(p *peer) {
	p.pid = int(atomic.LoadUint32(t.seg.slot32(p.rank, slotPID)))
	p.start = atomic.LoadUint64(t.seg.slot64(p.rank, slotStart))
}

// await waits until every rank has joined.
func (t *Transport) await(opt Options) error {
	ctx, timeout := opt.Context, opt.Timeout
	if ctx == nil {
		ctx = context.Background()
	}
	if timeout == 0 {
		timeout = 60 * time.Second
	}
	began, looked := time.Now(), time.Now()
	joined := t.seg.u32(offJoined)
	for {
		seen := atomic.LoadUint32(joined)
		var missing []string
		for r := range t.size {
			if t.seg.state(r) <= stateTaken {
				missing = append(missing, fmt.Sprint(r))
			}
		}
		if w := atomic.LoadUint64(t.seg.u64(offAbort)); w != 0 {
			return fmt.Errorf("local: rank %d: joining: %w", t.rank, t.leftError(0))
		}
		if len(missing) == 0 {
			return nil
		}
		waited := time.Since(began).Round(time.Millisecond)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("local: rank %d: joining, after %v, with rank(s) %s missing: %w", t.rank, waited, strings.Join(missing, ", "), err)
		}
		if waited > timeout {
			return fmt.Errorf("local: rank %d: rank(s) %s of %d did not join within %v: see what they logged, or raise the timeout",
				t.rank, strings.Join(missing, ", "), t.size, timeout)
		}
		if time.Since(looked) > t.checkEvery {
			looked = time.Now()
			// A few at a time: hundreds of ranks that ask for hundreds each would do nothing else.
			for range min(t.size, checkAtOnce) {
				t.ask = (t.ask + 1) % t.size
				p := t.peers[t.ask]
				if t.seg.state(p.rank) == stateJoined {
					if t.learn(p); !t.alive(p) {
						return fmt.Errorf("local: rank %d: joining: %w", t.rank,
							&collectives.PeerLostError{Rank: p.rank, Reason: fmt.Sprintf("process %d died before the world was complete", p.pid)})
					}
				}
			}
		}
		// Who is last wakes the others; till then each looks whether it is to go on waiting.
		for end := time.Now().Add(t.ticks(joinTick)); atomic.LoadUint32(joined) == seen && time.Now().Before(end); {
			futexSleep(joined, seen, time.Until(end))
		}
		if atomic.LoadUint32(joined) < uint32(t.size) {
			time.Sleep(t.ticks(joinPause)) // others come now, one after another
		}
	}
}

const (
	joinTick    = 20 * time.Millisecond
	joinPause   = 50 * time.Microsecond
	checkAtOnce = 16 // peers that are asked at once whether they live
)

// ticks is how often what is looked at every d is looked at in a world of this size: each of
// its ranks looks at all others.
func (t *Transport) ticks(d time.Duration) time.Duration {
	return d * time.Duration(max(1, t.size/32))
}

// probePeers tries to read a word of every peer's memory.
func (t *Transport) probePeers() {
	t.info["copy"] = "from the peer's memory (process_vm_readv)"
	for _, p := range t.peers {
		if p.rank == t.rank {
			p.direct = true
			continue
		}
		word := make([]byte, 8)
		err := readMemory(p.pid, word, atomic.LoadUint64(t.seg.slot64(p.rank, slotProbe)))
		got := *(*uint64)(unsafe.Pointer(&word[0]))
		switch {
		case err == nil && got == segMagic^uint64(p.rank):
			p.direct = true
		case err == nil:
			// Another pid namespace: the number names some other process.
			t.info["copy"] = fmt.Sprintf("through the ring (rank %d is in another pid namespace)", p.rank)
		default:
			t.info["copy"] = fmt.Sprintf("through the ring (process_vm_readv: %v)", err)
		}
	}
}
