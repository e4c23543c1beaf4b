package kerneltest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pipetrain/pipetrain/kernels"
)

// Far is a device as a GPU is one, made of devices of the host: it performs
// operations after they are called, on two queues and beside copies, each late
// by a random while; its memory is not the host's. Who forgets to wait gets
// wrong numbers. It has all of the optional abilities.
type Far struct {
	farOps
	inner  []kernels.Device
	queues []*farQueue // first, second, uploads, downloads and moves
	flaw   Flaw

	mu    sync.Mutex
	marks map[kernels.Mark]*farMark
	last  kernels.Mark
	err   error

	// Arenas of other devices of this process, by handle.
	shared *FarNode
}

// Flaw is a mistake that a Far can be made with, to see whether it is found.
type Flaw string

// Flaws.
const (
	Sound         Flaw = ""
	ForkTooEarly  Flaw = "the second queue does not wait for the first"
	WaitNotAtAll  Flaw = "the first queue does not wait for the second"
	CopyTooEarly  Flaw = "copies do not wait for their instant"
	AfterNothing  Flaw = "operations do not wait for an instant"
	AwaitNothing  Flaw = "the host does not wait for an instant"
	RecordAndDo   Flaw = "recording performs"
	ReplayForgets Flaw = "a replay leaves out the last operation"
)

// FarNode is where Far devices of this process find each other's memory.
type FarNode struct {
	mu     sync.Mutex
	shared map[string]kernels.Buffer
}

// NewFar makes a Far of what open opens, three times. node may be nil.
func NewFar(open func() (kernels.Device, error), node *FarNode, flaw Flaw) (*Far, error) {
	f := &Far{flaw: flaw, marks: map[kernels.Mark]*farMark{}, shared: node}
	for i := range 4 {
		d, err := open()
		if err != nil {
			return nil, err
		}
		f.inner = append(f.inner, d)
		f.queues = append(f.queues, newFarQueue(d, uint64(i)))
	}
	f.farOps = farOps{queue: f.queues[0]}
	return f, nil
}

// Name returns "far".
func (f *Far) Name() string { return "far" }

// Info says what the device is made of.
func (f *Far) Info() map[string]string { return f.inner[0].Info() }

// Alloc is kernels.Device's.
func (f *Far) Alloc(bytes int64) (kernels.Buffer, error) { return f.inner[0].Alloc(bytes) }

// Free is kernels.Device's.
func (f *Far) Free(b kernels.Buffer) {
	f.drain()
	f.inner[0].Free(b)
}

// Host returns nil: the memory is far.
func (f *Far) Host(kernels.Buffer) []byte { return nil }

// CopyIn is kernels.Device's; src may change when it returns.
func (f *Far) CopyIn(dst kernels.Buffer, src []byte) {
	src = append([]byte(nil), src...)
	f.do(func(d kernels.Device) { d.CopyIn(dst, src) })
}

// CopyOut is kernels.Device's.
func (f *Far) CopyOut(dst []byte, src kernels.Buffer) {
	done := make(chan struct{})
	f.do(func(d kernels.Device) {
		d.CopyOut(dst, src)
		close(done)
	})
	<-done
}

func (f *Far) drain() {
	for _, q := range f.queues {
		q.drain()
	}
}

// Sync is kernels.Device's.
func (f *Far) Sync() error {
	f.drain()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.inner {
		if err := d.Sync(); err != nil && f.err == nil {
			f.err = err
		}
	}
	return f.err
}

// Close is kernels.Device's.
func (f *Far) Close() error {
	f.drain()
	var errs []error
	for i, d := range f.inner {
		f.queues[i].stop()
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// farMark is an instant, passed when the channel is closed.
type farMark struct {
	passed chan struct{}
	at     time.Time
}

// mark notes an instant in a queue.
func (f *Far) mark(q *farQueue) kernels.Mark {
	m := &farMark{passed: make(chan struct{})}
	f.mu.Lock()
	f.last++
	id := f.last
	f.marks[id] = m
	f.mu.Unlock()
	q.add(func(kernels.Device) {
		m.at = time.Now()
		close(m.passed)
	})
	return id
}

// passed returns the channel of an instant; dropped ones are a mistake of the caller.
func (f *Far) passed(m kernels.Mark) *farMark {
	if m == 0 {
		always := &farMark{passed: make(chan struct{})}
		close(always.passed)
		return always
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	got := f.marks[m]
	if got == nil {
		panic(fmt.Sprintf("kerneltest: instant %d was dropped, or never was", m))
	}
	return got
}

// Mark is kernels.Marker's.
func (f *Far) Mark() kernels.Mark { return f.mark(f.queue) }

// After is kernels.Marker's.
func (f *Far) After(m kernels.Mark) {
	at := f.passed(m)
	if f.flaw != AfterNothing {
		f.queue.add(func(kernels.Device) { <-at.passed })
	}
}

// Between is kernels.Marker's.
func (f *Far) Between(from, to kernels.Mark) time.Duration {
	a, b := f.passed(from), f.passed(to)
	<-a.passed
	<-b.passed
	return b.at.Sub(a.at)
}

// Await is kernels.Marker's.
func (f *Far) Await(m kernels.Mark) error {
	if at := f.passed(m); f.flaw != AwaitNothing {
		<-at.passed
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Drop is kernels.Marker's.
func (f *Far) Drop(all ...kernels.Mark) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range all {
		if m != 0 && f.marks[m] == nil {
			panic(fmt.Sprintf("kerneltest: instant %d is dropped twice", m))
		}
		delete(f.marks, m)
	}
}

// Marks returns the instants that nobody dropped.
func (f *Far) Marks() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.marks)
}

// HostAlloc is kernels.Copier's.
func (f *Far) HostAlloc(bytes int64) ([]byte, error) { return make([]byte, bytes), nil }

// FreeHost is kernels.Copier's. The memory is spoilt, for those who still read it.
func (f *Far) FreeHost(b []byte) {
	for i := range b {
		b[i] = 0xee
	}
}

func (f *Far) copy(q *farQueue, after kernels.Mark, do func(d kernels.Device)) kernels.Mark {
	at := f.passed(after)
	q.add(func(d kernels.Device) {
		if f.flaw != CopyTooEarly {
			<-at.passed
		}
		do(d)
	})
	return f.mark(q)
}

// Upload is kernels.Copier's.
func (f *Far) Upload(dst kernels.Buffer, src []byte, after kernels.Mark) kernels.Mark {
	return f.copy(f.queues[2], after, func(d kernels.Device) { d.CopyIn(dst, src) })
}

// Download is kernels.Copier's.
func (f *Far) Download(dst []byte, src kernels.Buffer, after kernels.Mark) kernels.Mark {
	return f.copy(f.queues[3], after, func(d kernels.Device) { d.CopyOut(dst, src) })
}

// Move is kernels.Copier's.
func (f *Far) Move(dst, src kernels.Buffer, after kernels.Mark) kernels.Mark {
	return f.copy(f.queues[3], after, func(d kernels.Device) { d.Copy(dst, src) })
}

// Fork is kernels.Queues'.
func (f *Far) Fork() {
	first, second := f.queues[0], f.queues[1]
	if f.flaw != ForkTooEarly {
		m := f.mark(first)
		at := f.passed(m)
		second.add(func(kernels.Device) { <-at.passed })
		f.Drop(m)
	}
	f.queue = second
}

// Join is kernels.Queues'.
func (f *Far) Join() { f.queue = f.queues[0] }

// Wait is kernels.Queues'.
func (f *Far) Wait() {
	if f.flaw == WaitNotAtAll {
		return
	}
	m := f.mark(f.queues[1])
	at := f.passed(m)
	f.queues[0].add(func(kernels.Device) { <-at.passed })
	f.Drop(m)
}

// Record is kernels.Recorder's.
func (f *Far) Record(ops func()) (kernels.Recording, error) {
	r := &farRecording{f: f}
	f.recording = r
	ops()
	f.recording = nil
	if f.flaw == RecordAndDo {
		r.Replay()
	}
	if f.flaw == ReplayForgets {
		r.ops = r.ops[:len(r.ops)-1]
	}
	return r, nil
}

type farRecording struct {
	f   *Far
	ops []func(kernels.Device)
}

func (r *farRecording) Replay() {
	for _, op := range r.ops {
		r.f.do(op)
	}
}

func (r *farRecording) Free() { r.ops = nil }

// Export is kernels.Sharer's.
func (f *Far) Export(b kernels.Buffer) ([]byte, error) {
	if f.shared == nil {
		return nil, errors.New("this device shares no memory")
	}
	f.shared.mu.Lock()
	defer f.shared.mu.Unlock()
	if f.shared.shared == nil {
		f.shared.shared = map[string]kernels.Buffer{}
	}
	handle := fmt.Sprintf("far %x", b.Addr)
	f.shared.shared[handle] = b
	return []byte(handle), nil
}

// Import is kernels.Sharer's.
func (f *Far) Import(handle []byte, bytes int64) (kernels.Buffer, error) {
	if f.shared == nil {
		return kernels.Buffer{}, errors.New("this device shares no memory")
	}
	f.shared.mu.Lock()
	defer f.shared.mu.Unlock()
	b, ok := f.shared.shared[string(handle)]
	if !ok || b.Bytes() != bytes {
		return kernels.Buffer{}, fmt.Errorf("no allocation of %d bytes has handle %q", bytes, handle)
	}
	return b, nil
}

// Release is kernels.Sharer's.
func (f *Far) Release(kernels.Buffer) {}

// farQueue performs operations in order, in a goroutine of its own, now and then late.
type farQueue struct {
	d       kernels.Device
	mu      sync.Mutex
	changed *sync.Cond
	todo    []func(kernels.Device)
	busy    bool
	over    bool
	delay   *rand.Rand
}

func newFarQueue(d kernels.Device, seed uint64) *farQueue {
	q := &farQueue{d: d, delay: rand.New(rand.NewPCG(seed, 5))}
	q.changed = sync.NewCond(&q.mu)
	go q.run()
	return q
}

func (q *farQueue) run() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.todo) == 0 && !q.over {
			q.busy = false
			q.changed.Broadcast()
			q.changed.Wait()
		}
		if len(q.todo) == 0 {
			return
		}
		op := q.todo[0]
		q.todo = q.todo[1:]
		q.busy = true
		late := q.delay.IntN(16) == 0
		q.mu.Unlock()
		if late {
			time.Sleep(time.Duration(q.delay.IntN(200)) * time.Microsecond)
		}
		op(q.d)
		q.mu.Lock()
	}
}

func (q *farQueue) add(op func(kernels.Device)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.todo = append(q.todo, op)
	q.busy = true
	q.changed.Broadcast()
}

func (q *farQueue) drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.busy {
		q.changed.Wait()
	}
}

func (q *farQueue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = true
	q.changed.Broadcast()
}

func (f *farOps) do(op func(d kernels.Device)) {
	if f.recording != nil {
		f.recording.ops = append(f.recording.ops, op)
		return
	}
	f.queue.add(op)
}

// Copy is kernels.Device's.
func (f *farOps) Copy(dst, src kernels.Buffer) {
	f.do(func(d kernels.Device) { d.Copy(dst, src) })
}

// Zero is kernels.Device's.
func (f *farOps) Zero(b kernels.Buffer) {
	f.do(func(d kernels.Device) { d.Zero(b) })
}
