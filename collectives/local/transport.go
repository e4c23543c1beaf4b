package local

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
)

// Transport is one rank's end. All its state, the rings' sides included, is
// guarded by mu; large copies run outside it.
type Transport struct {
	rank, size int
	seg        *segment
	world      []*Transport // ranks in this process whose memory is ours; nil between processes
	inline     bool         // all ranks in this process: senders drive receivers, waiters block on channels
	rendezvous bool
	eager      int // largest message that passes through the ring at once
	piece      int
	spin       time.Duration
	yields     bool // ranks outnumber cores
	info       map[string]string

	mu      sync.Mutex
	peers   []*peer
	queues  map[uint64]*queue // by peer and tag
	ids     map[uint32]*request
	lastID  uint32
	jobs    []*copyJob
	copying int // jobs being performed outside mu
	lent    int // own buffers being read by ranks of this process
	pending int // requests not complete
	backlog int // peers with something to write
	kicks   []int
	news    bool // a request completed since sleepers were last told
	self    bool // this rank wrote into its own ring
	closed  bool

	waiters      int // goroutines in Wait that drive progress
	waits        uint64
	pollerAsleep bool // for long: it may be armed
	armed        bool // peers are to wake the poller
	pollerDone   chan struct{}
	probe        *uint64
	checked      atomic.Int64 // peers were last checked for life, Unix nanoseconds
	checkEvery   time.Duration
	ask          int // the peer that was last asked whether it lives
}

// peer is what a rank knows of another one, or of itself.
type peer struct {
	rank    int
	pid     int
	start   uint64
	direct  bool // its memory may be read
	in, out ring
	control []frame    // frames of the protocol waiting for room
	queue   []*request // sends waiting for room, in order
	streams []*request // sends going out in pieces
	pending int
	lost    *collectives.PeerLostError
}

func (p *peer) waiting() bool { return len(p.control)+len(p.queue)+len(p.streams) > 0 }

// queue matches the messages of one peer and tag, in order: at any time only
// one of the two lists has entries.
type queue struct {
	posted  []*request
	arrived []arrival
}

// arrival is a message nobody has asked for yet.
type arrival struct {
	f    frame
	data []byte // of an eager one
}

// copyJob is an offered message to be copied from its sender's memory.
type copyJob struct {
	p *peer
	r *request
	f frame
}

func newTransport(rank int, seg *segment, opt Options) *Transport {
	t := &Transport{
		rank: rank, size: seg.size, seg: seg, rendezvous: opt.Rendezvous,
		eager:  min(16<<10, seg.ring/4),
		piece:  min(64<<10, seg.ring/4),
		queues: map[uint64]*queue{}, ids: map[uint32]*request{},
		checkEvery: 200 * time.Millisecond,
	}
	cores := opt.Cores
	if cores <= 0 {
		cores = runtime.NumCPU()
	}
	t.yields = t.size > cores
	switch {
	case opt.Spin > 0:
		t.spin = opt.Spin
	case opt.Spin < 0:
		t.spin = 0
	case t.size > 8*cores:
		t.spin, t.yields = 0, false // who yields there waits for dozens of others, who yield too
	case t.yields:
		t.spin = 5 * time.Microsecond
	default:
		t.spin = 100 * time.Microsecond
	}
	for r := range t.size {
		t.peers = append(t.peers, &peer{rank: r, in: seg.ringOf(r, rank), out: seg.ringOf(rank, r)})
	}
	t.info = map[string]string{
		"transport": "shared memory of one host",
		"ring":      strconv.Itoa(seg.ring>>10) + " KiB a pair",
		"eager":     strconv.Itoa(t.eager>>10) + " KiB",
		"cores":     strconv.Itoa(cores),
		"spin":      t.spin.String(),
	}
	return t
}

// Rank is the caller's place in the world.
func (t *Transport) Rank() int { return t.rank }

// Size is the number of ranks.
func (t *Transport) Size() int { return t.size }

// Kind is "local".
func (t *Transport) Kind() string { return "local" }

// Info describes rings, copying and waiting.
func (t *Transport) Info() map[string]string {
	m := make(map[string]string, len(t.info))
	for k, v := range t.info {
		m[k] = v
	}
	return m
}

func (t *Transport) check(what string, peer, tag int) error {
	if peer < 0 || peer >= t.size {
		return fmt.Errorf("local: %s rank %d, which is outside the world of %d", what, peer, t.size)
	}
	if tag < 0 || tag > collectives.MaxTag {
		return fmt.Errorf("local: %s rank %d: tag %d is outside 0..%d", what, peer, tag, collectives.MaxTag)
	}
	return nil
}

// Isend starts sending b; see collectives.Transport.
func (t *Transport) Isend(to, tag int, b []byte) collectives.Request {
	r := &request{t: t, peer: to, tag: tag, buf: b, send: true}
	if err := t.check("send to", to, tag); err != nil {
		r.fail(err)
		return r
	}
	t.mu.Lock()
	p := t.peers[to]
	if p.lost == nil && !t.closed {
		t.checkLeft(p)
	}
	switch {
	case t.closed:
		r.fail(collectives.ErrClosed)
	case p.lost != nil:
		r.fail(p.lost)
	}
	if r.finished() {
		t.mu.Unlock()
		return r
	}
	t.pending++
	p.pending++
	if p.waiting() || !t.trySend(p, r) {
		t.enqueue(p, func() { p.queue = append(p.queue, r) })
	}
	t.posted()
	return r
}

// Irecv starts receiving len(b) bytes; see collectives.Transport.
func (t *Transport) Irecv(from, tag int, b []byte) collectives.Request {
	r := &request{t: t, peer: from, tag: tag, buf: b}
	if err := t.check("receive from", from, tag); err != nil {
		r.fail(err)
		return r
	}
	t.mu.Lock()
	if t.closed {
		r.fail(collectives.ErrClosed)
		t.mu.Unlock()
		return r
	}
	p := t.peers[from]
	t.pending++
	p.pending++
	t.drain(p)
	q := t.queue(from, tag)
	if len(q.arrived) > 0 {
		a := q.arrived[0]
		q.arrived[0] = arrival{}
		q.arrived = q.arrived[1:]
		t.match(p, r, a.f, a.data)
		t.prune(from, tag, q)
	} else {
		q.posted = append(q.posted, r)
		if p.lost != nil {
			t.failAll(p, p.lost)
		}
	}
	t.posted()
	return r
}

// posted ends Isend and Irecv: it lets the background poller look after the
// request and gives mu back. When that is news to the peers, or something waits
// to be written, it looks at the rings once.
func (t *Transport) posted() {
	if t.arm() || t.backlog > 0 {
		t.step()
	}
	t.unlock()
}

// Close ends this rank's part; see collectives.Transport. Messages it has sent
// completely can still be received.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	// Peers wait for what we owe them of the protocol; give them a second.
	for end := time.Now().Add(time.Second); t.owes() && time.Now().Before(end); {
		t.step()
		t.unlock()
		runtime.Gosched()
		t.mu.Lock()
	}
	t.closed = true
	for t.copying > 0 || t.lent > 0 {
		t.mu.Unlock()
		runtime.Gosched()
		t.mu.Lock()
	}
	// Before buffers go back to their owners: a peer that copied from our memory
	// and still finds us joined has copied a buffer that was valid.
	atomic.StoreUint32(t.seg.slot32(t.rank, slotState), stateClosed)
	for _, p := range t.peers {
		t.failAll(p, collectives.ErrClosed)
	}
	t.jobs = nil
	for _, p := range t.peers {
		t.wake(p)
	}
	t.unlock()
	t.stopPoller()
	for {
		t.mu.Lock()
		if t.waiters == 0 {
			break
		}
		t.mu.Unlock()
		runtime.Gosched()
	}
	if !t.inline {
		t.seg.unmap()
	}
	t.mu.Unlock()
	return nil
}

func (t *Transport) owes() bool {
	for _, p := range t.peers {
		if len(p.control) > 0 && p.lost == nil && p.rank != t.rank {
			t.checkLeft(p)
			if p.lost == nil {
				return true
			}
		}
	}
	return false
}

// Abort ends this process with the code, after telling the other ranks: their
// pending and later requests fail at once with PeerLostError. The launcher ends
// ranks that compute and do not communicate.
func (t *Transport) Abort(code int) {
	t.mu.Lock()
	if !t.closed {
		word := uint64(abortSet) | uint64(t.rank)<<32 | uint64(uint32(code))
		atomic.CompareAndSwapUint64(t.seg.u64(offAbort), 0, word)
		atomic.StoreUint32(t.seg.slot32(t.rank, slotState), stateAborted)
		for _, p := range t.peers {
			t.wake(p)
		}
	}
	os.Exit(code)
}

// NewWorld makes a world whose ranks are goroutines of this process. Waits block
// on channels alone (testing/synctest sees a deadlock as one), and the sender's
// goroutine moves the message.
func NewWorld(size int) []collectives.Transport { return NewWorldWith(size, Options{}) }

// NewWorldWith is NewWorld with options.
func NewWorldWith(size int, opt Options) []collectives.Transport {
	ringSize := opt.RingBytes
	if ringSize == 0 {
		// Goroutine worlds are many and short in tests; their rings are real memory.
		ringSize = min(32<<10, ringBytesFor(size))
	}
	if ringSize < 8<<10 || ringSize&(ringSize-1) != 0 {
		panic(fmt.Sprintf("local: ring of %d bytes: want a power of two, at least 8 KiB", ringSize))
	}
	seg := newHeapSegment(size, ringSize)
	world := make([]*Transport, size)
	out := make([]collectives.Transport, size)
	for r := range world {
		t := newTransport(r, seg, opt)
		t.world, t.inline = world, !opt.Processes
		world[r], out[r] = t, t
		t.info["copy"] = "in one process"
		t.publish()
	}
	for _, t := range world {
		for _, p := range t.peers {
			t.learn(p)
			p.direct = !opt.NoDirectCopy || p.rank == t.rank
		}
		if opt.Processes {
			if !opt.NoDirectCopy {
				t.world = nil
				t.probePeers()
			}
			t.startPoller()
		}
	}
	return out
}

var _ collectives.Transport = (*Transport)(nil)
