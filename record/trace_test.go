package record

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/schedule"
)

// traceEvent is an event of the format, decoded strictly.
type traceEvent struct {
	Ph   string          `json:"ph"`
	PID  *int            `json:"pid"`
	TID  *int            `json:"tid"`
	TS   *float64        `json:"ts"`
	Dur  *float64        `json:"dur"`
	Name string          `json:"name"`
	Cat  string          `json:"cat"`
	ID   *int64          `json:"id"`
	BP   string          `json:"bp"`
	Args json.RawMessage `json:"args"`
}

type thread struct{ pid, tid int }

// traceFile is a trace that was checked against the format's rules.
type traceFile struct {
	slices  map[thread][]traceEvent
	process map[int]string
	thread  map[thread]string
	flows   map[int64][2]traceEvent // s and f
}

// checkTrace reads a trace.json and checks what the format asks: every event
// has phase, process and thread; metadata has its argument; complete events
// have a time and a duration ≥ 0 and do not overlap on a thread; every process
// and thread with events is named; every end of an arrow lies within a slice of
// its thread, and arrows run from a start to one finish that is not earlier.
func checkTrace(t *testing.T, path string) traceFile {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		DisplayTimeUnit string            `json:"displayTimeUnit"`
		TraceEvents     []json.RawMessage `json:"traceEvents"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	if file.DisplayTimeUnit != "ms" {
		t.Errorf("displayTimeUnit %q", file.DisplayTimeUnit)
	}
	out := traceFile{map[thread][]traceEvent{}, map[int]string{}, map[thread]string{}, map[int64][2]traceEvent{}}
	var arrows []traceEvent
	for _, raw := range file.TraceEvents {
		var e traceEvent
		d := json.NewDecoder(strings.NewReader(string(raw)))
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if e.PID == nil || e.TID == nil || e.Name == "" {
			t.Fatalf("%s: no pid, tid or name", raw)
		}
		at := thread{*e.PID, *e.TID}
		switch e.Ph {
		case "M":
			var args struct {
				Name, Labels string
				Sort         *int `json:"sort_index"`
			}
			if err := json.Unmarshal(e.Args, &args); err != nil {
				t.Fatalf("%s: %v", raw, err)
			}
			switch e.Name {
			case "process_name":
				out.process[*e.PID] = args.Name
			case "thread_name":
				out.thread[at] = args.Name
			case "process_sort_index", "thread_sort_index":
				if args.Sort == nil {
					t.Errorf("%s: no sort_index", raw)
				}
			case "process_labels":
				if args.Labels == "" {
					t.Errorf("%s: no labels", raw)
				}
			default:
				t.Errorf("%s: unknown metadata", raw)
			}
		case "X":
			if e.TS == nil || e.Dur == nil || *e.Dur < 0 || e.Cat == "" {
				t.Fatalf("%s: ts, dur or cat", raw)
			}
			out.slices[at] = append(out.slices[at], e)
		case "s", "f":
			if e.TS == nil || e.ID == nil || *e.ID >= 1<<53 || (e.BP == "e") != (e.Ph == "f") {
				t.Fatalf("%s: ts, id or bp", raw)
			}
			arrows = append(arrows, e)
			pair := out.flows[*e.ID]
			pair[strings.Index("sf", e.Ph)] = e
			out.flows[*e.ID] = pair
		default:
			t.Errorf("%s: phase", raw)
		}
	}
	for at, list := range out.slices {
		if out.process[at.pid] != fmt.Sprintf("rank %d", at.pid) || out.thread[at] == "" {
			t.Errorf("%v is named %q, %q", at, out.process[at.pid], out.thread[at])
		}
		for i, a := range list {
			for _, b := range list[:i] {
				// Printed times are exact to 1 ns; doubles of µs are nearly so.
				if *a.TS < *b.TS+*b.Dur-1e-4 && *b.TS < *a.TS+*a.Dur-1e-4 {
					t.Errorf("%v: %s at %v overlaps %s at %v", at, a.Name, *a.TS, b.Name, *b.TS)
				}
			}
		}
	}
	for _, a := range arrows {
		within := false
		for _, s := range out.slices[thread{*a.PID, *a.TID}] {
			within = within || *a.TS >= *s.TS && *a.TS <= *s.TS+*s.Dur
		}
		if !within {
			t.Errorf("arrow %s %d at %v is in no slice", a.Ph, *a.ID, *a.TS)
		}
	}
	for id, pair := range out.flows {
		if pair[0].Ph == "" || pair[1].Ph == "" || pair[0].Name != pair[1].Name || *pair[0].TS > *pair[1].TS {
			t.Errorf("arrow %d: %+v", id, pair)
		}
	}
	return out
}

func op(stage int, k schedule.Kind, first int, last ...int) schedule.Op {
	o := schedule.Op{Stage: stage, Kind: k, First: first, Last: first}
	if len(last) > 0 {
		o.Last = last[0]
	}
	return o
}

// twoRanks is a step of two stages with two micro-batches, transfers in flight at once.
func twoRanks(first int) schedule.Timeline {
	e := func(rank int, o schedule.Op, start, end float64) schedule.Event {
		return schedule.Event{Rank: first + rank, Op: o, Start: start * 1e-3, End: end * 1e-3}
	}
	return schedule.Timeline{Ranks: 2, Events: []schedule.Event{
		e(0, op(0, schedule.Forward, 0), 0, 1),
		e(0, op(0, schedule.RecvB, 0), 0.5, 5),
		e(0, op(0, schedule.RecvB, 1), 0.6, 6),
		e(0, op(0, schedule.SendF, 0), 1, 2.2),
		e(0, op(0, schedule.Forward, 1), 1, 2),
		e(0, op(0, schedule.SendF, 1), 2, 2.4),
		e(0, op(0, schedule.BackwardInput, 0), 5, 6),
		e(0, op(0, schedule.BackwardWeight, 0, 1), 7, 8),
		e(0, op(0, schedule.ReduceGrad, 0), 8, 9),
		e(1, op(1, schedule.RecvF, 0), 0, 2.2),
		e(1, op(1, schedule.RecvF, 1), 0, 2.4),
		e(1, op(1, schedule.Forward, 0), 2.2, 3),
		e(1, op(1, schedule.Backward, 0), 3, 4.5),
		e(1, op(1, schedule.SendB, 0), 4.5, 5),
		e(1, op(1, schedule.SendB, 1), 5.5, 6),
	}}
}

func TestTrace(t *testing.T) {
	f := runFolder(t)
	tr, err := f.CreateTrace()
	if err != nil {
		t.Fatal(err)
	}
	tr.Rank(0, `stage 0, node "a"`)
	for step := 1; step <= 3; step++ {
		for replica, line := range []schedule.Timeline{twoRanks(0), twoRanks(2)} {
			for _, e := range line.Events {
				tr.Add(Slice{Rank: e.Rank, Replica: replica, Step: step, Op: e.Op, Start: float64(step)*0.010 + e.Start, End: float64(step)*0.010 + e.End, Bytes: int64(4096 * replica)})
			}
		}
		tr.Add(Slice{Rank: 0, Step: step, Op: op(0, schedule.RecvB, 0), Cat: Wait, Start: float64(step)*0.010 + 0.0025, End: float64(step)*0.010 + 0.005})
		tr.Add(Slice{Rank: 0, Step: step, Name: "optimizer", Cat: Optimizer, Start: float64(step)*0.010 + 0.009, End: float64(step)*0.010 + 0.0095})
	}
	if _, err := os.Lstat(f.File(TraceName)); err == nil {
		t.Error("the trace has its name before it is whole")
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if len(tr.flows) != 0 {
		t.Errorf("%d arrows kept in memory", len(tr.flows))
	}
	got := checkTrace(t, f.File(TraceName))
	if len(got.process) != 4 || len(got.flows) != 4*3*2 {
		t.Errorf("%d processes, %d arrows", len(got.process), len(got.flows))
	}
	for id, pair := range got.flows {
		if *pair[0].PID/2 != *pair[1].PID/2 || *pair[0].PID == *pair[1].PID {
			t.Errorf("arrow %d from rank %d to %d", id, *pair[0].PID, *pair[1].PID)
		}
	}
	// Compute, transfers and reduction are apart, as many lanes as were in flight at once.
	for at, want := range map[thread]string{{0, 0}: "compute", {0, 100}: "reduce", {0, 200}: "transfers", {0, 201}: "transfers 2", {0, 202}: "transfers 3", {1, 200}: "transfers", {1, 201}: "transfers 2"} {
		if got.thread[at] != want {
			t.Errorf("%v is %q, want %q", at, got.thread[at], want)
		}
	}
	byCat := map[string]int{}
	var concat, wait *traceEvent
	for at, list := range got.slices {
		for _, e := range list {
			byCat[e.Cat]++
			if at == (thread{0, 0}) && strings.Contains(string(e.Args), `"microbatch_last":1`) {
				concat = &e
			}
			if e.Cat == "wait" {
				wait = &e
			}
			if (e.Cat == "transfer") != (at.tid >= lanesTransfer) {
				t.Errorf("%s is on thread %d", e.Name, at.tid)
			}
		}
	}
	if fmt.Sprint(byCat) != "map[compute:36 optimizer:3 reduce:6 transfer:48 wait:3]" {
		t.Error(byCat)
	}
	if concat == nil || concat.Name != op(0, schedule.BackwardWeight, 0, 1).String() || string(concat.Args) != `{"step":3,"stage":0,"microbatch":0,"microbatch_last":1}` && string(concat.Args) != `{"step":1,"stage":0,"microbatch":0,"microbatch_last":1}` {
		t.Errorf("%+v %s", concat, concat.Args)
	}
	if wait == nil || wait.Name != "0RECV_B0" {
		t.Errorf("%+v", wait)
	}
}

func TestTraceEmptyAndOdd(t *testing.T) {
	f := runFolder(t)
	tr, err := f.CreateTrace()
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	checkTrace(t, f.File(TraceName))
	if tr, err = f.CreateTrace(); err != nil {
		t.Fatal(err)
	}
	// Times that JSON does not have, that run backwards, of no length, before zero.
	for i, s := range []Slice{
		{Start: math.NaN(), End: math.Inf(1)}, {Start: 2, End: 1}, {Start: 3, End: 3}, {Start: -1.5, End: -0.25}, {Start: 1e300, End: 1e301},
	} {
		s.Rank, s.Name, s.Cat = i, "odd\n\"name\"", Compute
		tr.Add(s)
	}
	tr.Add(Slice{Rank: 9, Step: 1, Op: op(0, schedule.SendF, 0), Start: 5, End: 5})
	tr.Add(Slice{Rank: 10, Step: 1, Op: op(1, schedule.RecvF, 0), Start: 5, End: 5})
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	got := checkTrace(t, f.File(TraceName))
	if e := got.slices[thread{3, 0}]; len(e) != 1 || *e[0].TS != -1.5e6 || *e[0].Dur != 1.25e6 {
		t.Errorf("%+v", e)
	}
}

func TestMicros(t *testing.T) {
	for ns, want := range map[int64]string{0: "0", 1: "0.001", 999: "0.999", 1000: "1", 1010: "1.010", -1: "-0.001", -1500: "-1.500", 1 << 60: "1152921504606846.976"} {
		if got := string(appendMicros(nil, ns)); got != want {
			t.Errorf("%d ns is %s µs, want %s", ns, got, want)
		}
	}
}

// BenchmarkTrace: the cost of a slice and that no memory grows with their number.
func BenchmarkTrace(b *testing.B) {
	f, err := Create(b.TempDir(), false)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	tr, err := f.CreateTrace()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		x := float64(i) * 1e-4
		tr.Add(Slice{Rank: i % 8, Step: i, Op: op(1, schedule.Forward, 3), Start: x, End: x + 1e-4})
	}
	if err := tr.Close(); err != nil {
		b.Fatal(err)
	}
}
