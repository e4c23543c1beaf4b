package rank

import (
	"context"
	"fmt"

	"github.com/pipetrain/pipetrain/data"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/schedule"
)

// machine performs one rank's lowered program, step after step. Without a
// device and a transport (dry) it allocates and frees exactly as it would with
// them: the memory plan is a dry step.
type machine struct {
	sched   *schedule.Schedule
	me      int // pipeline rank
	program []schedule.Op
	pacing  pacing

	arena  *kernels.Arena
	dev    kernels.Device // nil when dry
	stages map[int]*stage

	courier courier // nil when dry
	world   func(pipelineRank int) int
	data    batcher

	beside bool            // backward-p2 runs on the device's second queue
	forked []kernels.Block // of the p2 that runs there
	since  int             // compute ops since it began
	clock  *deviceClock    // nil where the device is done when it says so
	graphs *graphs         // nil where p2 is not recorded

	losses kernels.Block // F64, one a micro-batch
	sums   kernels.Block // F64, the squared gradient norm of each parameter here

	posted  map[int]parcel // receives in flight, by program index
	sending map[int]send   // sends in flight, by program index

	// pretend passes an op's modelled time, counted from its start; nil where the op is performed.
	pretend func(op schedule.Op, start int64)

	dog    *watchdog // nil when dry
	reduce func(ctx context.Context, st *stage) error
	apply  func(st *stage) // the optimizer, within an Update op; nil when dry
	record func(op schedule.Op, category string, start, end int64)
}

// batcher reads fields of a micro-batch of the current step.
type batcher interface {
	read(mb int, fields []field) (data.Sample, error)
}

// send is a message on its way (nil when dry) and the memory it leaves.
type send struct {
	parcel parcel
	block  kernels.Block
}

// tag names a message by what is sent: the same on both sides.
func tag(stages int, op schedule.Op) int {
	send := sendOf(op)
	t := (send.First*stages + send.Stage) * 2
	if send.Kind == schedule.SendB {
		t++
	}
	return t % clockTag
}

// sendOf returns the send that a receive belongs to; a send is its own.
func sendOf(op schedule.Op) schedule.Op {
	switch op.Kind {
	case schedule.RecvF:
		op.Kind, op.Stage = schedule.SendF, op.Stage-1
	case schedule.RecvB:
		op.Kind, op.Stage = schedule.SendB, op.Stage+1
	}
	return op
}

// step performs the program once.
func (m *machine) step(ctx context.Context) error {
	m.posted = map[int]parcel{}
	m.sending = map[int]send{}
	if m.clock != nil {
		if err := m.clock.begin(); err != nil {
			return fmt.Errorf("rank %d: %w", m.me, err)
		}
	}
	for _, st := range m.stages {
		if st.versions != nil {
			st.versions.begin()
		}
	}
	before := m.arena.Used()
	next := 0 // first op whose receive is not yet posted
	for i, op := range m.program {
		m.dog.advance(i)
		if err := m.complete(ctx, i); err != nil {
			return m.fail(i, op, err)
		}
		for ; next < m.pacing.horizon[i]; next++ {
			if m.program[next].Kind.IsRecv() {
				if err := m.post(ctx, next); err != nil {
					return m.fail(i, op, err)
				}
			}
		}
		if err := m.perform(ctx, i, op); err != nil {
			return m.fail(i, op, err)
		}
	}
	m.settle()
	m.dog.advance(len(m.program))
	err := m.complete(ctx, len(m.program))
	if err == nil && m.clock != nil {
		err = m.clock.end(m.record)
	}
	if err != nil {
		return fmt.Errorf("rank %d: at the end of the step: %w", m.me, err)
	}
	if left := m.arena.Used() - before; left != 0 {
		return fmt.Errorf("rank %d: the step ended with %d bytes still in use: the schedule leaves micro-batches unfinished", m.me, left)
	}
	return nil
}

func (m *machine) fail(i int, op schedule.Op, err error) error {
	return fmt.Errorf("rank %d: op %d (%s): %w", m.me, i, op, err)
}

// post makes room for a message and starts receiving it.
func (m *machine) post(ctx context.Context, i int) error {
	op := m.program[i]
	st := m.stages[op.Stage]
	var to kernels.Buffer
	var err error
	if op.Kind == schedule.RecvF {
		to, err = st.expectInput(op.First)
	} else {
		to, err = st.expectGradient(op.First)
	}
	if err != nil || m.courier == nil {
		return err
	}
	m.posted[i], err = m.courier.recv(ctx, m.sender(op), tag(m.sched.Stages, op), to)
	return err
}

// sender returns the world rank that a receive is from.
func (m *machine) sender(recv schedule.Op) int {
	return m.world(m.sched.RankOf(sendOf(recv).Stage, recv.First))
}

func (m *machine) perform(ctx context.Context, i int, op schedule.Op) error {
	st := m.stages[op.Stage]
	if st == nil {
		return fmt.Errorf("stage %d is not on this rank", op.Stage)
	}
	if m.beside {
		m.pace(op)
	}
	if r, ok := m.dev.(kernels.Ranger); ok && r.Profiled() {
		defer r.Range(op.String())()
	}
	var begun kernels.Mark
	start := now()
	if m.clock != nil {
		begun = m.clock.dev.Mark()
	}
	category := "compute"
	var err error
	switch op.Kind {
	case schedule.Forward:
		err = m.forward(st, op.First)
	case schedule.BackwardInput, schedule.Backward:
		err = m.backward(st, op)
	case schedule.BackwardWeight:
		return m.weight(i, st, op, start, begun)
	case schedule.RecvF, schedule.RecvB:
		category = "wait"
		if m.courier != nil {
			err = m.posted[i].wait(ctx)
			delete(m.posted, i)
		}
	case schedule.SendF, schedule.SendB:
		category = "transfer"
		err = m.send(ctx, st, i, op)
	case schedule.ReduceGrad:
		category = "reduce"
		if m.reduce != nil {
			err = m.reduce(ctx, st)
		}
	case schedule.Update:
		category = "optimizer"
		err = m.update(ctx, st)
	default:
		err = fmt.Errorf("kind %d is unknown to the engine", op.Kind)
	}
	if err != nil {
		return err
	}
	return m.note(op, category, start, begun)
}

// note tells when an op was performed. A device that is done when it says so is asked
// whether it is; another notes the instant, and is asked at the end of the step.
func (m *machine) note(op schedule.Op, category string, start int64, begun kernels.Mark) error {
	if m.clock != nil {
		m.clock.add(op, category, begun, m.clock.dev.Mark())
		return nil
	}
	computes := category == "compute" || category == "optimizer"
	if m.dev != nil && computes {
		if err := m.dev.Sync(); err != nil {
			return err
		}
	}
	if m.pretend != nil && (computes || category == "reduce") {
		m.pretend(op, start)
	}
	if m.record != nil {
		m.record(op, category, start, now())
	}
	return nil
}

func (m *machine) forward(st *stage, mb int) error {
	var out kernels.Buffer
	var rows kernels.Block
	var err error
	f := st.frame(mb)
	next := m.stages[st.index+1]
	switch {
	case st.last:
		if rows, err = m.arena.Alloc(st.out().Bytes(st.shape), catScratch); err != nil {
			return err
		}
		out = rows.As(st.out().Type)
	case next != nil && m.sched.RankOf(st.index+1, mb) == m.me:
		if out, err = next.expectInput(mb); err != nil {
			return err
		}
	default:
		if f.out, err = m.arena.Alloc(st.out().Bytes(st.shape), catTransfers); err != nil {
			return err
		}
		out = f.out.As(st.out().Type)
	}
	var sample data.Sample
	if m.dev != nil && len(st.fields) > 0 {
		if sample, err = m.data.read(mb, st.fields); err != nil {
			return err
		}
	}
	if err := st.forward(mb, out, sample); err != nil {
		return err
	}
	if st.last {
		if m.dev != nil {
			m.dev.Sum(m.losses.As(kernels.F64).Slice(int64(mb), 1), out)
		}
		m.arena.Free(rows)
	}
	return nil
}

func (m *machine) backward(st *stage, op schedule.Op) error {
	mb := op.First
	var dx kernels.Buffer
	if !st.first {
		var err error
		if prev := m.stages[st.index-1]; prev != nil && m.sched.RankOf(st.index-1, mb) == m.me {
			dx, err = prev.expectGradient(mb)
		} else {
			f := st.frame(mb)
			f.dx, err = m.arena.Alloc(st.in().Bytes(st.shape), catTransfers)
			dx = f.dx.As(st.in().Type)
		}
		if err != nil {
			return err
		}
	}
	if op.Kind == schedule.BackwardInput {
		return st.backwardInput(mb, dx)
	}
	f := st.frame(mb)
	if err := st.backward(mb, dx); err != nil {
		return err
	}
	if !f.dx.Empty() { // the frame ended with its W; the send still needs the buffer
		st.frame(mb).dx = f.dx
	}
	return nil
}

// send starts sending what the op before it computed.
func (m *machine) send(ctx context.Context, st *stage, i int, op schedule.Op) error {
	f := st.frame(op.First)
	var peer int
	var block kernels.Block
	if op.Kind == schedule.SendF {
		peer = op.Stage + 1
		block, f.out = f.out, kernels.Block{}
	} else {
		peer = op.Stage - 1
		block, f.dx = f.dx, kernels.Block{}
		if st.fused[op.First] {
			delete(st.frames, op.First)
		}
	}
	if block.Empty() {
		return fmt.Errorf("nothing was computed to send")
	}
	s := send{block: block}
	if m.courier != nil {
		var err error
		to := m.world(m.sched.RankOf(peer, op.First))
		if s.parcel, err = m.courier.send(ctx, to, tag(m.sched.Stages, op), block.Buffer); err != nil {
			return err
		}
	}
	m.sending[i] = s
	return nil
}

// complete waits for the sends that the pacing wants complete before op i and
// frees their buffers.
func (m *machine) complete(ctx context.Context, i int) error {
	for _, k := range m.pacing.release[i] {
		s := m.sending[k]
		if s.parcel != nil {
			if err := s.parcel.wait(ctx); err != nil {
				return fmt.Errorf("waiting for op %d (%s): %w", k, m.program[k], err)
			}
		}
		m.arena.Free(s.block)
		delete(m.sending, k)
	}
	return nil
}
