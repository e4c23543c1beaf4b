package schedule

import "fmt"

// checkOrder checks that the compute ops can run at all: a dry run in which a
// tensor is on the next stage's rank as soon as it is made.
func checkOrder(s *Schedule) error { return newDryRun(s, false, false).run() }

// checkDeadlock dry-runs a lowered schedule with its transfers. A SEND does not hold up its
// rank; a WAIT does until the send is over: at once, or with rendezvous when its receive is
// posted, which the receiver does ahead (Horizons).
func checkDeadlock(s *Schedule, rendezvous bool) error {
	return newDryRun(s, true, rendezvous).run()
}

// dryRun performs a schedule without times.
type dryRun struct {
	s                     *Schedule
	transfers, rendezvous bool
	saw                   []uint16  // kinds done, by stage × micro-batches
	in                    [2][]bool // the stage's input, the gradient of its output is on its rank
	posted                [2][]bool // its receive is posted
	pc                    []int
	horizons              [][]int // by rank, where there are transfers
	next                  []int   // by rank: receives before it are posted
	joined                []int   // ranks that wait in a stage's reduction or are through
	joinedAt              []int   // pc of the reduction that a rank joined
	blocked               []bool
	ready                 []int
}

func newDryRun(s *Schedule, transfers, rendezvous bool) *dryRun {
	d := &dryRun{
		s: s, transfers: transfers, rendezvous: rendezvous,
		saw: make([]uint16, s.Stages*s.Microbatches), in: twoWays[bool](s),
		pc: make([]int, s.Ranks), next: make([]int, s.Ranks),
		joined: make([]int, s.Stages), joinedAt: make([]int, s.Ranks),
		blocked: make([]bool, s.Ranks),
	}
	if transfers {
		d.posted = twoWays[bool](s)
		for _, program := range s.Programs {
			d.horizons = append(d.horizons, Horizons(program))
		}
	}
	for k := range s.Microbatches {
		d.in[forth][k] = true
	}
	return d
}

func (d *dryRun) run() error {
	for r := range d.s.Ranks {
		d.joinedAt[r] = -1
		d.ready = append(d.ready, r)
	}
	for len(d.ready) > 0 {
		r := d.ready[len(d.ready)-1]
		d.ready = d.ready[:len(d.ready)-1]
		for d.pc[r] < len(d.s.Programs[r]) {
			d.post(r)
			if !d.perform(r, d.s.Programs[r][d.pc[r]]) {
				d.blocked[r] = true
				break
			}
			d.pc[r]++
		}
	}
	for r := range d.s.Ranks {
		if d.pc[r] < len(d.s.Programs[r]) {
			return d.explain(r)
		}
	}
	return nil
}

// post posts the receives that rank r posts before its next op.
func (d *dryRun) post(r int) {
	if !d.transfers {
		return
	}
	for ; d.next[r] < d.horizons[r][d.pc[r]]; d.next[r]++ {
		o := d.s.Programs[r][d.next[r]]
		if !o.Kind.IsRecv() {
			continue
		}
		way, send := kinds[o.Kind].way, o.Send()
		d.posted[way][d.s.cell(o)] = true
		if d.saw[d.s.cell(send)]&send.Kind.bit() != 0 {
			d.arrive(way, send)
		}
	}
}

// perform performs one op, or returns false when it has to wait.
func (d *dryRun) perform(r int, o Op) bool {
	cell, k := d.s.cell(o), &kinds[o.Kind]
	if k.class != computes && !d.transfers {
		return true
	}
	switch k.class {
	case receives:
		return d.in[k.way][cell]
	case waits:
		return d.in[k.way][d.s.cell(o.Recv())]
	case sends:
		d.saw[cell] |= o.Kind.bit()
		if !d.rendezvous || d.posted[k.way][d.s.cell(o.Recv())] {
			d.arrive(k.way, o)
		}
		return true
	case updates:
		return o.Kind == Update || d.reduce(r, o) // checkComplete saw that an update follows its gradients
	}
	if !d.inputs(o) {
		return false
	}
	for mb := o.First; mb <= o.Last; mb++ {
		d.saw[o.Stage*d.s.Microbatches+mb] |= o.Kind.bit()
	}
	if o.Kind == Forward && o.Stage == d.s.Stages-1 {
		d.in[back][cell] = true
	} else if _, send := d.s.transfers(o); k.send != 0 && (!d.transfers || send.Kind == 0) && o.Stage+wayStep[kinds[k.send].way] >= 0 {
		d.arrive(kinds[k.send].way, op(o.Stage, k.send, o.First)) // to a stage of this rank, or as if it were
	}
	return true
}

// inputs says whether a compute op's inputs are there.
func (d *dryRun) inputs(o Op) bool {
	k := &kinds[o.Kind]
	if k.recv != 0 && !d.in[kinds[k.recv].way][d.s.cell(o)] {
		return false
	}
	return k.needs == 0 || d.did(o) > o.Last
}

// did returns the first micro-batch of op for which its stage has not done yet what op needs; the one after its last where it has.
func (d *dryRun) did(o Op) int {
	for mb := o.First; mb <= o.Last; mb++ {
		if d.saw[o.Stage*d.s.Microbatches+mb]&kinds[o.Kind].needs.bit() == 0 {
			return mb
		}
	}
	return o.Last + 1
}

// arrive puts what a send carries on the rank of its other end.
func (d *dryRun) arrive(way way, send Op) {
	recv := send.Recv()
	d.in[way][d.s.cell(recv)] = true
	d.wake(d.s.RankOf(recv.Stage, recv.First))
	d.wake(d.s.RankOf(send.Stage, send.First)) // which may wait for it
}

func (d *dryRun) reduce(r int, o Op) bool {
	holders := d.s.Holders(o.Stage)
	if d.joinedAt[r] != d.pc[r] {
		d.joinedAt[r] = d.pc[r]
		if d.joined[o.Stage]++; d.joined[o.Stage] == len(holders) {
			for _, h := range holders {
				d.wake(h)
			}
		}
	}
	return d.joined[o.Stage] >= len(holders)
}

func (d *dryRun) wake(r int) {
	if d.blocked[r] {
		d.blocked[r] = false
		d.ready = append(d.ready, r)
	}
}

// explain follows what a stuck rank waits for until it comes back to a rank seen before.
func (d *dryRun) explain(r int) error {
	var marks []mark
	var waits []string
	at := map[int]int{}
	for {
		if first, ok := at[r]; ok {
			marks, waits = marks[first:], waits[first:]
			break
		}
		at[r] = len(marks)
		o := d.s.Programs[r][d.pc[r]]
		peer, for_, ok := d.waitsFor(r, o)
		marks = append(marks, mark{r, d.pc[r], "<-- HERE: waits for " + for_.String()})
		waits = append(waits, fmt.Sprintf("%s (rank %d) waits for %s (rank %d)", o, r, for_, peer))
		if !ok {
			break
		}
		r = peer
	}
	how := "its order waits for itself"
	if d.transfers {
		how = "deadlock with buffered sends"
		if d.rendezvous {
			how = "deadlock with rendezvous sends (a send is over when its receive is posted)"
		}
	}
	first := marks[0]
	e := &CheckError{Rank: first.rank, Index: first.index, Op: d.s.Programs[first.rank][first.index], Reason: how + ": "}
	for i, w := range waits {
		if i == 4 && len(waits) > 6 {
			e.Reason += fmt.Sprintf(", and %d more", len(waits)-i)
			break
		}
		if i > 0 {
			e.Reason += ", "
		}
		e.Reason += w
	}
	e.Grid = grid(d.s, marks)
	return e
}

// waitsFor returns the op that rank r's op o waits for, and the rank that has
// it; ok is false when that op is nowhere ahead of that rank.
func (d *dryRun) waitsFor(r int, o Op) (rank int, for_ Op, ok bool) {
	s, k := d.s, &kinds[o.Kind]
	switch recv := k.recv; {
	case o.Kind == ReduceGrad:
		for _, h := range s.Holders(o.Stage) {
			if h != r && d.toCome(h, o) {
				return h, o, true
			}
		}
		return r, o, false
	case o.Kind.IsWait():
		for_ = o.Recv()
	case k.needs != 0 && d.did(o) <= o.Last:
		for_ = op(o.Stage, k.needs, d.did(o))
	default:
		if recv == 0 {
			recv = o.Kind // it is one
		}
		for_ = op(o.Stage, recv, o.First).Send()
		made := op(for_.Stage, wayOps[kinds[recv].way].made, o.First)
		if for_.Stage >= s.Stages {
			made = op(o.Stage, Forward, o.First) // the loss
		} else if d.saw[s.cell(made)]&madeBits[kinds[recv].way] != 0 {
			break // it is made, and not sent
		}
		for_ = made
	}
	rank = s.RankOf(for_.Stage, for_.First)
	if for_.Kind == BackwardInput && !d.toCome(rank, for_) {
		for_.Kind = Backward
	}
	return rank, for_, d.toCome(rank, for_)
}

// toCome says whether rank r still has to perform o.
func (d *dryRun) toCome(r int, o Op) bool {
	program := d.s.Programs[r]
	for _, p := range program[min(d.pc[r], len(program)):] {
		if p == o {
			return true
		}
	}
	return false
}
