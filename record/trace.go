package record

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/pipetrain/pipetrain/durable"
	"github.com/pipetrain/pipetrain/schedule"
)

// Category says what a slice of the trace is.
type Category string

// The categories.
const (
	Compute   Category = "compute"
	Transfer  Category = "transfer"
	Wait      Category = "wait"
	Reduce    Category = "reduce"
	Optimizer Category = "optimizer"
)

// Slice is one op with its times, as the trace shows it.
type Slice struct {
	Rank    int // world rank: the process in the trace
	Replica int // keeps apart the arrows of replicas
	Step    int
	Op      schedule.Op
	Name    string   // shown instead of the op's text; needed when Op is the zero Op
	Cat     Category // "": by the op's kind
	// Start and End are seconds since the trace's zero, which is the same on all ranks.
	Start, End float64
	Bytes      int64 // moved, for transfers and reductions
}

// category returns the category of an op's kind.
func category(k schedule.Kind) Category {
	switch k {
	case schedule.SendF, schedule.RecvF, schedule.SendB, schedule.RecvB:
		return Transfer
	case schedule.ReduceGrad:
		return Reduce
	}
	return Compute
}

// Threads of a process in the trace. Slices that overlap in time cannot share a
// thread, so each kind has as many lanes as it needs at once.
const (
	lanesCompute  = 0   // compute, wait, optimizer: what the rank itself does
	lanesReduce   = 100 // reductions
	lanesTransfer = 200 // messages in flight
)

func lanesOf(c Category) (base int, name string) {
	switch c {
	case Transfer:
		return lanesTransfer, "transfers"
	case Reduce:
		return lanesReduce, "reduce"
	}
	return lanesCompute, "compute"
}

type laneKey struct{ rank, base int }

// flowKey names one message: what is sent over a stage boundary for a micro-batch.
type flowKey struct {
	replica, step, boundary, microbatch int
	backward                            bool
}

// Trace writes trace.json event by event: memory does not grow with the number
// of slices. Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
type Trace struct {
	r     *durable.File
	w     *bufio.Writer
	buf   []byte
	first bool
	err   error

	ranks map[int]bool
	lanes map[laneKey][]int64 // end of the last slice of each lane, ns
	// flows holds ids of messages of which one end was seen.
	flows  map[flowKey]int64
	flowID int64
}

// CreateTrace starts trace.json; it appears under that name with Close.
func (f *Folder) CreateTrace() (*Trace, error) {
	if err := f.Held(); err != nil {
		return nil, err
	}
	r, err := durable.Create(f.File(TraceName))
	if err != nil {
		return nil, writeError(f.File(TraceName), err)
	}
	t := &Trace{r: r, w: bufio.NewWriterSize(r, 1<<16), first: true,
		ranks: map[int]bool{}, lanes: map[laneKey][]int64{}, flows: map[flowKey]int64{}}
	t.write([]byte(`{"displayTimeUnit":"ms","traceEvents":[`))
	return t, nil
}

// write appends to the file; the first error sticks.
func (t *Trace) write(b []byte) {
	if t.err == nil {
		_, t.err = t.w.Write(b)
	}
}

// event starts an event: everything but its last fields.
func (t *Trace) event(ph string, pid, tid int) []byte {
	b := t.buf[:0]
	if !t.first {
		b = append(b, ',')
	}
	t.first = false
	b = append(b, "\n{\"ph\":\""...)
	b = append(b, ph...)
	b = append(b, `","pid":`...)
	b = strconv.AppendInt(b, int64(pid), 10)
	b = append(b, `,"tid":`...)
	return strconv.AppendInt(b, int64(tid), 10)
}

func (t *Trace) end(b []byte) {
	b = append(b, '}')
	t.write(b)
	t.buf = b
}

// meta writes a metadata event; args is a JSON object.
func (t *Trace) meta(name string, pid, tid int, args string) {
	t.end(append(t.event("M", pid, tid), `,"name":"`+name+`","args":`+args...))
}

// Rank names a rank's process: "rank 2", with a label such as "stage 2, node07".
// Ranks that are not named are when their first slice comes.
func (t *Trace) Rank(rank int, label string) {
	if t.ranks[rank] {
		return
	}
	t.ranks[rank] = true
	t.meta("process_name", rank, 0, fmt.Sprintf(`{"name":"rank %d"}`, rank))
	t.meta("process_sort_index", rank, 0, fmt.Sprintf(`{"sort_index":%d}`, rank))
	if label != "" {
		t.meta("process_labels", rank, 0, `{"labels":`+quoted(label)+`}`)
	}
}

// lane returns a thread of the rank's that is free at start, and takes it until end.
func (t *Trace) lane(rank int, c Category, start, end int64) int {
	base, name := lanesOf(c)
	key := laneKey{rank, base}
	lanes := t.lanes[key]
	for i, busy := range lanes {
		if busy <= start {
			lanes[i] = end
			return base + i
		}
	}
	n := len(lanes)
	t.lanes[key] = append(lanes, end)
	if n > 0 {
		name = fmt.Sprintf("%s %d", name, n+1)
	}
	t.meta("thread_name", rank, base+n, `{"name":`+quoted(name)+`}`)
	t.meta("thread_sort_index", rank, base+n, fmt.Sprintf(`{"sort_index":%d}`, base+n))
	return base + n
}

// Add writes one slice. The slices of a rank come in the order of their starts;
// ranks may come in any order.
func (t *Trace) Add(s Slice) {
	if s.Cat == "" {
		s.Cat = category(s.Op.Kind)
	}
	if s.Name == "" {
		s.Name = s.Op.String()
	}
	start, end := nanoseconds(s.Start), nanoseconds(s.End)
	end = max(end, start)
	t.Rank(s.Rank, "")
	tid := t.lane(s.Rank, s.Cat, start, end)
	b := t.event("X", s.Rank, tid)
	b = append(b, `,"ts":`...)
	b = appendMicros(b, start)
	b = append(b, `,"dur":`...)
	b = appendMicros(b, end-start)
	b = append(b, `,"name":`...)
	b = append(b, quoted(s.Name)...)
	b = append(b, `,"cat":"`...)
	b = append(b, s.Cat...)
	b = append(b, `","args":{"step":`...)
	b = strconv.AppendInt(b, int64(s.Step), 10)
	if s.Op.Kind != 0 {
		b = append(b, `,"stage":`...)
		b = strconv.AppendInt(b, int64(s.Op.Stage), 10)
		if s.Op.Kind != schedule.ReduceGrad {
			b = append(b, `,"microbatch":`...)
			b = strconv.AppendInt(b, int64(s.Op.First), 10)
			if s.Op.Last > s.Op.First {
				b = append(b, `,"microbatch_last":`...)
				b = strconv.AppendInt(b, int64(s.Op.Last), 10)
			}
		}
	}
	if s.Bytes > 0 {
		b = append(b, `,"bytes":`...)
		b = strconv.AppendInt(b, s.Bytes, 10)
	}
	t.end(append(b, '}'))
	if s.Cat == Transfer {
		t.flow(s, tid, start, end)
	}
}

// flow writes one end of the arrow from a send to its receive. The arrow leaves
// where the send starts and arrives just before the receive ends, so that both
// ends lie within their slices, which is how the viewer finds them.
func (t *Trace) flow(s Slice, tid int, start, end int64) {
	key := flowKey{replica: s.Replica, step: s.Step, boundary: s.Op.Stage, microbatch: s.Op.First}
	var ph, name string
	switch s.Op.Kind {
	case schedule.SendF:
		ph, name = "s", "F"
	case schedule.RecvF:
		ph, name = "f", "F"
		key.boundary--
	case schedule.SendB:
		ph, name = "s", "B"
		key.boundary--
		key.backward = true
	case schedule.RecvB:
		ph, name = "f", "B"
		key.backward = true
	default:
		return
	}
	id, other := t.flows[key]
	if other {
		delete(t.flows, key)
	} else {
		t.flowID++
		id = t.flowID
		t.flows[key] = id
	}
	at := start
	if ph == "f" {
		at = max(start, end-1)
	}
	b := t.event(ph, s.Rank, tid)
	b = append(b, `,"ts":`...)
	b = appendMicros(b, at)
	b = append(b, `,"name":"`+name+`","cat":"transfer","id":`...)
	b = strconv.AppendInt(b, id, 10)
	if ph == "f" {
		b = append(b, `,"bp":"e"`...)
	}
	t.end(b)
}

// Close ends the file and gives it its name. After a failed write it removes
// what was written and returns the error.
func (t *Trace) Close() error {
	t.write([]byte("\n]}\n"))
	if t.err == nil {
		t.err = t.w.Flush()
	}
	if t.err != nil {
		t.r.Discard()
	} else {
		t.err = t.r.Commit()
	}
	if t.err != nil {
		return writeError(t.r.Path(), t.err)
	}
	return nil
}

// nanoseconds rounds; what is not finite becomes 0, as JSON has no such number.
func nanoseconds(seconds float64) int64 {
	ns := math.Round(seconds * 1e9)
	if math.IsNaN(ns) || math.Abs(ns) > 1<<62 {
		return 0
	}
	return int64(ns)
}

// appendMicros appends nanoseconds as microseconds, the format's unit, exactly.
func appendMicros(b []byte, ns int64) []byte {
	if ns < 0 {
		b = append(b, '-')
		ns = -ns
	}
	b = strconv.AppendInt(b, ns/1000, 10)
	if frac := ns % 1000; frac > 0 {
		b = append(b, '.', byte('0'+frac/100), byte('0'+frac/10%10), byte('0'+frac%10))
	}
	return b
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""` // a string always encodes
	}
	return string(b)
}
