package schedule

import (
	"fmt"
	"slices"
)

// checkOrder checks that the compute ops can run at all: a dry run in which a
// tensor is on the next stage's rank as soon as it is made.
func checkOrder(s *Schedule) error { return newDryRun(s, false, false).run() }

// checkDeadlock dry-runs a lowered schedule with its transfers. Sends do not hold
// up their rank, except that a SEND waits for the one a window before on its channel. With
// rendezvous, a send is over only when its receive is posted; a rank posts
// receives early: at any op, those of the next compute op and of the one after it.
func checkDeadlock(s *Schedule, rendezvous bool) error {
	return newDryRun(s, true, rendezvous).run()
}

// dryRun performs a schedule without times.
type dryRun struct {
	s                     *Schedule
	transfers, rendezvous bool
	saw                   []uint16 // ops done, by stage × micro-batches
	inF, inB, posF, posB  []bool   // input, gradient arrived; its receive posted
	pending               [][]Op   // the sends under way on each channel
	free                  *channels
	pc                    []int
	posted, ahead         []int // ops whose receives are posted; compute ops between pc and there
	joined                []int // ranks that wait in a stage's reduction or are through
	joinedAt              []int // pc of the reduction that a rank joined
	blocked               []bool
	ready                 []int
}

func newDryRun(s *Schedule, transfers, rendezvous bool) *dryRun {
	cells := s.Stages * s.Microbatches
	d := &dryRun{
		s: s, transfers: transfers, rendezvous: rendezvous,
		saw: make([]uint16, cells),
		inF: make([]bool, cells), inB: make([]bool, cells), posF: make([]bool, cells), posB: make([]bool, cells),
		free: newChannels(s),
		pc:   make([]int, s.Ranks), posted: make([]int, s.Ranks), ahead: make([]int, s.Ranks),
		joined: make([]int, s.Stages), joinedAt: make([]int, s.Ranks),
		blocked: make([]bool, s.Ranks),
	}
	d.pending = make([][]Op, d.free.count())
	for k := range s.Microbatches {
		d.inF[k] = true
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

// post posts rank r's receives up to the second compute op from here.
func (d *dryRun) post(r int) {
	if !d.transfers {
		return
	}
	program := d.s.Programs[r]
	for d.ahead[r] < 2 {
		i := d.posted[r]
		if i == len(program) {
			return
		}
		d.posted[r]++
		if program[i].Kind.IsCompute() {
			d.ahead[r]++
			continue
		}
		o := program[i]
		if !o.Kind.IsRecv() {
			continue
		}
		cell := d.cell(o)
		if o.Kind == RecvF {
			d.posF[cell] = true
		} else {
			d.posB[cell] = true
		}
		send := sendOf(o)
		ch := &d.pending[d.free.index(send)]
		if i := slices.Index(*ch, send); i >= 0 {
			*ch = slices.Delete(*ch, i, i+1)
			d.arrive(send)
			d.wake(d.s.RankOf(send.Stage, send.First))
		}
	}
}

func (d *dryRun) cell(o Op) int { return o.Stage*d.s.Microbatches + o.First }

// perform performs one op, or returns false when it has to wait.
func (d *dryRun) perform(r int, o Op) bool {
	cell := d.cell(o)
	switch {
	case o.Kind.IsSend():
		return !d.transfers || d.send(o)
	case o.Kind == RecvF:
		return !d.transfers || d.inF[cell]
	case o.Kind == RecvB:
		return !d.transfers || d.inB[cell]
	case o.Kind == ReduceGrad:
		return !d.transfers || d.reduce(r, o)
	case o.Kind == Update:
		return true // checkComplete saw that it follows its gradients
	}
	if !d.inputs(o) {
		return false
	}
	d.ahead[r]--
	for k := o.First; k <= o.Last; k++ {
		d.saw[o.Stage*d.s.Microbatches+k] |= sawBit(o.Kind)
	}
	made, send := Op{}, Op{}
	switch o.Kind {
	case Forward:
		if o.Stage == d.s.Stages-1 {
			d.inB[cell] = true
		} else {
			made = op(o.Stage, SendF, o.First)
		}
	case BackwardInput, Backward:
		if o.Stage > 0 {
			made = op(o.Stage, SendB, o.First)
		}
	}
	if _, send = d.s.transfers(o); made.Kind != 0 && (!d.transfers || send.Kind == 0) {
		d.arrive(made)
	}
	return true
}

// inputs says whether a compute op's inputs are there.
func (d *dryRun) inputs(o Op) bool {
	cell := d.cell(o)
	switch o.Kind {
	case Forward:
		return d.inF[cell]
	case BackwardInput, Backward:
		return d.inB[cell] && d.saw[cell]&sawF != 0
	}
	for k := o.First; k <= o.Last; k++ {
		if d.saw[o.Stage*d.s.Microbatches+k]&sawI == 0 {
			return false
		}
	}
	return true
}

func (d *dryRun) send(o Op) bool {
	ch := &d.pending[d.free.index(o)]
	if len(*ch) >= d.s.SendWindow() {
		return false
	}
	cell := d.cell(o)
	posted := o.Kind == SendF && d.posF[cell+d.s.Microbatches] || o.Kind == SendB && d.posB[cell-d.s.Microbatches]
	if d.rendezvous && !posted {
		*ch = append(*ch, o)
		return true
	}
	d.arrive(o)
	return true
}

// arrive puts what a send carries on the rank of its other end.
func (d *dryRun) arrive(send Op) {
	cell := d.cell(send)
	if send.Kind == SendF {
		d.inF[cell+d.s.Microbatches] = true
		d.wake(d.s.RankOf(send.Stage+1, send.First))
	} else {
		d.inB[cell-d.s.Microbatches] = true
		d.wake(d.s.RankOf(send.Stage-1, send.First))
	}
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
	s, cell := d.s, d.cell(o)
	k := o.First
	switch {
	case o.Kind == ReduceGrad:
		for _, h := range s.Holders(o.Stage) {
			if h != r && d.toCome(h, o) {
				return h, o, true
			}
		}
		return r, o, false
	case o.Kind.IsSend():
		prev := d.pending[d.free.index(o)][0]
		recv := op(prev.Stage+1, RecvF, prev.First)
		if o.Kind == SendB {
			recv = op(prev.Stage-1, RecvB, prev.First)
		}
		rank = s.RankOf(recv.Stage, recv.First)
		return rank, recv, d.toCome(rank, recv)
	case o.Kind == BackwardWeight:
		for ; k < o.Last && d.saw[o.Stage*s.Microbatches+k]&sawI != 0; k++ {
		}
		for_ = op(o.Stage, BackwardInput, k)
	case o.Kind != Forward && o.Kind != RecvF && d.saw[cell]&sawF == 0 && (!o.Kind.IsRecv() || o.Stage == s.Stages-1):
		for_ = op(o.Stage, Forward, k)
	case o.Kind == Forward || o.Kind == RecvF:
		for_ = op(o.Stage-1, Forward, k)
		if o.Kind == RecvF && d.saw[cell-s.Microbatches]&sawF != 0 {
			for_.Kind = SendF
		}
	default:
		for_ = op(o.Stage+1, BackwardInput, k)
		if d.saw[cell+s.Microbatches]&(sawI|sawB) != 0 {
			for_.Kind = SendB
		}
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
