package collectives

import (
	"context"
	"fmt"
	"sync"
)

// Tags up to FirstCollectiveTag-1 are the caller's (pipeline messages); those
// from it up to MaxTag belong to the communicators:
//
//	1 | id, 12 bits | operation, 10 bits | phase, 1 bit
const FirstCollectiveTag = 1 << 23

const opsFlight = 1 << 10

// MaxCommID is the largest id NewComm accepts.
const MaxCommID = 1<<12 - 1

// Comm is an ordered group of world ranks. Its operations are collective: every
// member calls the same ones in the same order. Results are the same bits on
// every member, whatever the transport: sums are formed in the order of the
// members, 0..n-1.
//
// After an operation failed (also by its context), messages of it may still be
// in flight: the buffers passed to it and the communicator are then good for nothing.
type Comm struct {
	t     Transport
	ranks []int
	me    int
	id    int

	mu sync.Mutex
	op int // operations started
}

// NewComm makes a communicator of these world ranks, in this order; the caller's
// own rank must be among them. id (0..MaxCommID) keeps the messages of
// communicators apart that share a pair of ranks: members pass the same id, and
// communicators with two ranks in common have different ids.
func NewComm(t Transport, ranks []int, id int) (*Comm, error) {
	if id < 0 || id > MaxCommID {
		return nil, fmt.Errorf("collectives: communicator id %d is outside 0..%d", id, MaxCommID)
	}
	return newComm(t, ranks, id)
}

// World is the communicator of all ranks, with id 0.
func World(t Transport) *Comm {
	ranks := make([]int, t.Size())
	for i := range ranks {
		ranks[i] = i
	}
	c, err := newComm(t, ranks, 0)
	if err != nil {
		panic(err) // a transport whose rank is outside its own size
	}
	return c
}

func newComm(t Transport, ranks []int, id int) (*Comm, error) {
	c := &Comm{t: t, ranks: append([]int(nil), ranks...), me: -1, id: id}
	seen := make(map[int]bool, len(ranks))
	for i, r := range ranks {
		if r < 0 || r >= t.Size() {
			return nil, fmt.Errorf("collectives: communicator %d: rank %d is outside the world of %d", id, r, t.Size())
		}
		if seen[r] {
			return nil, fmt.Errorf("collectives: communicator %d: rank %d is listed twice in %v", id, r, ranks)
		}
		seen[r] = true
		if r == t.Rank() {
			c.me = i
		}
	}
	if c.me < 0 {
		return nil, fmt.Errorf("collectives: communicator %d: world rank %d is not among its ranks %v", id, t.Rank(), ranks)
	}
	return c, nil
}

// Rank is the caller's place in the group, Size the number of members.
func (c *Comm) Rank() int { return c.me }

// Size is the number of members.
func (c *Comm) Size() int { return len(c.ranks) }

// WorldRank translates a member into its world rank.
func (c *Comm) WorldRank(member int) int { return c.ranks[member] }

// Transport is what the communicator sends over.
func (c *Comm) Transport() Transport { return c.t }

// operation is one collective in flight: its tags and name.
type operation struct {
	c    *Comm
	name string
	tag  int // phase 0; phase 1 is tag+1
}

func (c *Comm) begin(name string) operation {
	c.mu.Lock()
	n := c.op
	c.op++
	c.mu.Unlock()
	return operation{c, name, FirstCollectiveTag | c.id<<11 | (n%opsFlight)<<1}
}

func (o operation) send(member, phase int, b []byte) Request {
	return o.c.t.Isend(o.c.ranks[member], o.tag+phase, b)
}

func (o operation) recv(member, phase int, b []byte) Request {
	return o.c.t.Irecv(o.c.ranks[member], o.tag+phase, b)
}

func (o operation) fail(member int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("collectives: %s of communicator %d, with rank %d: %w", o.name, o.c.id, o.c.ranks[member], err)
}

// pending collects requests with the member they belong to.
type pending struct {
	op   operation
	reqs []Request
	from []int
}

func (p *pending) add(member int, r Request) {
	p.reqs = append(p.reqs, r)
	p.from = append(p.from, member)
}

func (p *pending) wait(ctx context.Context) error {
	for i, r := range p.reqs {
		if err := r.Wait(ctx); err != nil {
			return p.op.fail(p.from[i], err)
		}
	}
	p.reqs, p.from = p.reqs[:0], p.from[:0]
	return nil
}

// Barrier returns when every member has called it. Dissemination: ceil(log2 n)
// rounds of empty messages.
func (c *Comm) Barrier(ctx context.Context) error {
	op, n := c.begin("barrier"), len(c.ranks)
	for d := 1; d < n; d *= 2 {
		to, from := (c.me+d)%n, (c.me-d+n)%n
		p := pending{op: op}
		p.add(from, op.recv(from, 0, nil))
		p.add(to, op.send(to, 0, nil))
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Broadcast copies root's b into every member's b; all have the same length.
// A binomial tree, in segments so that a member forwards while it receives.
func (c *Comm) Broadcast(ctx context.Context, root int, b []byte) error {
	op, n := c.begin("broadcast"), len(c.ranks)
	if root < 0 || root >= n {
		return fmt.Errorf("collectives: broadcast of communicator %d: root %d is outside 0..%d", c.id, root, n-1)
	}
	const segment = 512 << 10
	v := (c.me - root + n) % n // place in the tree
	parent, low := -1, 1
	for ; low < n; low *= 2 {
		if v&low != 0 {
			parent = (v - low + root) % n
			break
		}
	}
	var children []int
	for d := low / 2; d > 0; d /= 2 {
		if v+d < n {
			children = append(children, (v+d+root)%n)
		}
	}
	var recvs []Request
	if parent >= 0 {
		for lo := 0; lo == 0 || lo < len(b); lo += segment {
			recvs = append(recvs, op.recv(parent, 0, b[lo:min(lo+segment, len(b))]))
		}
	}
	sends := pending{op: op}
	for i, lo := 0, 0; lo == 0 || lo < len(b); i, lo = i+1, lo+segment {
		if parent >= 0 {
			if err := recvs[i].Wait(ctx); err != nil {
				return op.fail(parent, err)
			}
		}
		for _, ch := range children {
			sends.add(ch, op.send(ch, 0, b[lo:min(lo+segment, len(b))]))
		}
	}
	return sends.wait(ctx)
}

// Gather brings every member's b, of any length, to root: element i of the
// result is member i's. The others get nil.
func (c *Comm) Gather(ctx context.Context, root int, b []byte) ([][]byte, error) {
	op, n := c.begin("gather"), len(c.ranks)
	if root < 0 || root >= n {
		return nil, fmt.Errorf("collectives: gather of communicator %d: root %d is outside 0..%d", c.id, root, n-1)
	}
	p := pending{op: op}
	if c.me != root {
		p.add(root, op.send(root, 0, putLen(len(b))))
		p.add(root, op.send(root, 1, b))
		return nil, p.wait(ctx)
	}
	out, lens := make([][]byte, n), make([][8]byte, n)
	for i := range n {
		if i != root {
			p.add(i, op.recv(i, 0, lens[i][:]))
		}
	}
	if err := p.wait(ctx); err != nil {
		return nil, err
	}
	for i := range n {
		if i == root {
			out[i] = append([]byte{}, b...)
			continue
		}
		out[i] = make([]byte, getLen(lens[i]))
		p.add(i, op.recv(i, 1, out[i]))
	}
	return out, p.wait(ctx)
}

// AllGather brings every member's b, of any length, to every member.
func (c *Comm) AllGather(ctx context.Context, b []byte) ([][]byte, error) {
	op, n := c.begin("all-gather"), len(c.ranks)
	out, lens := make([][]byte, n), make([][8]byte, n)
	p := pending{op: op}
	for d := 1; d < n; d++ {
		from, to := (c.me-d+n)%n, (c.me+d)%n
		p.add(from, op.recv(from, 0, lens[from][:]))
		p.add(to, op.send(to, 0, putLen(len(b))))
	}
	if err := p.wait(ctx); err != nil {
		return nil, err
	}
	out[c.me] = append([]byte{}, b...)
	for d := 1; d < n; d++ {
		from, to := (c.me-d+n)%n, (c.me+d)%n
		out[from] = make([]byte, getLen(lens[from]))
		p.add(from, op.recv(from, 1, out[from]))
		p.add(to, op.send(to, 1, b))
	}
	return out, p.wait(ctx)
}

func putLen(n int) []byte {
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(n >> (8 * i))
	}
	return b
}

func getLen(b [8]byte) int {
	n := 0
	for i, x := range b {
		n |= int(x) << (8 * i)
	}
	return n
}
