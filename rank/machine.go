package rank

import (
	"context"
	"fmt"

	"github.com/pipetrain/pipetrain/data"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/rank/courier"
	"github.com/pipetrain/pipetrain/schedule"
)

// machine performs one rank's lowered program, step after step. With the null device and
// the null courier it allocates and frees exactly as with others: the memory plan is such a step.
type machine struct {
	sched    *schedule.Schedule
	me       int // pipeline rank
	program  []schedule.Op
	horizons []int // receives before horizons[i] are posted before op i

	arena  *kernels.Arena
	dev    kernels.Device
	stages map[int]*stage

	courier courier.Courier
	world   func(pipelineRank int) int
	data    batcher

	beside bool            // backward-p2 runs on the device's second queue
	forked []kernels.Block // of the p2 that runs there
	since  int             // compute ops since it began
	clock  *deviceClock    // nil where the device is done when it says so
	graphs *graphs         // nil where p2 is not recorded

	losses kernels.Block // F64, one a micro-batch
	sums   kernels.Block // F64, the squared gradient norm of each parameter here

	posted  map[schedule.Op]courier.Parcel // receives in flight
	sending map[schedule.Op]send           // sends in flight

	dog *watchdog
	hooks
}

// hooks are what a run does beside the program's own work; noHooks do nothing.
type hooks struct {
	// pretend passes an op's modelled time, counted from its start.
	pretend func(op schedule.Op, start int64)
	reduce  func(ctx context.Context, st *stage) error
	apply   func(st *stage) // the optimizer, within an Update op
	record  func(op schedule.Op, category string, start, end int64)
}

func noHooks() hooks {
	return hooks{
		pretend: func(schedule.Op, int64) {},
		reduce:  func(context.Context, *stage) error { return nil },
		apply:   func(*stage) {},
		record:  func(schedule.Op, string, int64, int64) {},
	}
}

// batcher reads fields of a micro-batch of the current step.
type batcher interface {
	// begin prepares a step and returns the terms of its loss, of all replicas.
	begin(step int) int
	read(mb int, fields []field) (data.Sample, error)
}

// noData is nothing to read.
type noData struct{}

func (noData) begin(int) int                          { return 0 }
func (noData) read(int, []field) (data.Sample, error) { return nil, nil }

// send is a message on its way and the memory it leaves.
type send struct {
	parcel courier.Parcel
	block  kernels.Block
}

// tag names a message by what is sent: the same on both sides.
func tag(stages int, op schedule.Op) int {
	send := op.Send()
	t := (send.First*stages + send.Stage) * 2
	if send.Kind == schedule.SendB {
		t++
	}
	return t % clockTag
}

// step performs the program once.
func (m *machine) step(ctx context.Context) error {
	m.posted = map[schedule.Op]courier.Parcel{}
	m.sending = map[schedule.Op]send{}
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
		for ; next < m.horizons[i]; next++ {
			if recv := m.program[next]; recv.Kind.IsRecv() {
				if err := m.post(ctx, recv); err != nil {
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
	if m.clock != nil {
		if err := m.clock.end(m.record); err != nil {
			return fmt.Errorf("rank %d: at the end of the step: %w", m.me, err)
		}
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
func (m *machine) post(ctx context.Context, op schedule.Op) error {
	st := m.stages[op.Stage]
	var to kernels.Buffer
	var err error
	if op.Kind == schedule.RecvF {
		to, err = st.expectInput(op.First)
	} else {
		to, err = st.expectGradient(op.First)
	}
	if err != nil {
		return err
	}
	m.posted[op], err = m.courier.Recv(ctx, m.peer(op), tag(m.sched.Stages, op), to)
	return err
}

// peer returns the world rank at the other end of a transfer.
func (m *machine) peer(op schedule.Op) int {
	other := op.Recv()
	if op.Kind.IsRecv() {
		other = op.Send()
	}
	return m.world(m.sched.RankOf(other.Stage, op.First))
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
		err = m.posted[op].Wait(ctx)
		delete(m.posted, op)
	case schedule.SendF, schedule.SendB:
		category = "transfer"
		err = m.send(ctx, st, op)
	case schedule.WaitF, schedule.WaitB:
		category = "wait"
		err = m.complete(ctx, op)
	case schedule.ReduceGrad:
		category = "reduce"
		err = m.reduce(ctx, st)
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
	if computes {
		if err := m.dev.Sync(); err != nil {
			return err
		}
	}
	if computes || category == "reduce" {
		m.pretend(op, start)
	}
	m.record(op, category, start, now())
	return nil
}

func (m *machine) forward(st *stage, mb int) error {
	var out kernels.Buffer
	var rows kernels.Block
	var err error
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
		if out, err = st.kept.leave(schedule.SendF, mb, st.out()); err != nil {
			return err
		}
	}
	var sample data.Sample
	if len(st.fields) > 0 {
		if sample, err = m.data.read(mb, st.fields); err != nil {
			return err
		}
	}
	if err := st.forward(mb, out, sample); err != nil {
		return err
	}
	if st.last {
		m.dev.Sum(m.losses.As(kernels.F64).Slice(int64(mb), 1), out)
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
			dx, err = st.kept.leave(schedule.SendB, mb, st.in())
		}
		if err != nil {
			return err
		}
	}
	if op.Kind == schedule.BackwardInput {
		return st.backwardInput(mb, dx)
	}
	return st.backward(mb, dx)
}

// send starts sending what the op before it computed.
func (m *machine) send(ctx context.Context, st *stage, op schedule.Op) error {
	block := st.kept.takeLeaving(op.Kind, op.First)
	if block.Empty() {
		return fmt.Errorf("nothing was computed to send")
	}
	parcel, err := m.courier.Send(ctx, m.peer(op), tag(m.sched.Stages, op), block.Buffer)
	if err != nil {
		return err
	}
	m.sending[op] = send{parcel, block}
	return nil
}

// complete waits for the send that a WAIT is of and frees its buffer.
func (m *machine) complete(ctx context.Context, wait schedule.Op) error {
	s, ok := m.sending[wait.Send()]
	if !ok {
		return fmt.Errorf("%s is not on its way", wait.Send())
	}
	if err := s.parcel.Wait(ctx); err != nil {
		return err
	}
	m.arena.Free(s.block)
	delete(m.sending, wait.Send())
	return nil
}
