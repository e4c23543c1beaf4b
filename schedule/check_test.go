package schedule

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// valid is a definition of validity apart from Check's: sets, and a graph
// that must have no cycle. It is written for small schedules.
func valid(s *Schedule, rendezvous bool) bool {
	type place struct{ rank, index int }
	where := map[string]place{} // every micro-batch of every op
	for r, program := range s.Programs {
		for i, o := range program {
			for k := o.First; k <= o.Last; k++ {
				key := fmt.Sprint(o.Stage, o.Kind, k)
				if o.Kind == ReduceGrad {
					key += fmt.Sprint(" of ", r)
				} else if s.RankOf(o.Stage, k) != r {
					return false
				}
				if _, twice := where[key]; twice {
					return false
				}
				where[key] = place{r, i}
			}
		}
	}
	// edges[a] lists what comes after a.
	edges := map[place][]place{}
	used := 0
	after := func(first, then string) bool {
		a, ok := where[first]
		b, ok2 := where[then]
		edges[a] = append(edges[a], b)
		return ok && ok2
	}
	for r, program := range s.Programs {
		for i := 1; i < len(program); i++ {
			edges[place{r, i - 1}] = append(edges[place{r, i - 1}], place{r, i})
		}
	}
	for stage := range s.Stages {
		for k := range s.Microbatches {
			f, b, in, w := fmt.Sprint(stage, Forward, k), fmt.Sprint(stage, Backward, k), fmt.Sprint(stage, BackwardInput, k), fmt.Sprint(stage, BackwardWeight, k)
			_, fused := where[b]
			_, hasI := where[in]
			_, hasW := where[w]
			if fused && (hasI || hasW) {
				return false
			}
			used += 2
			if !fused {
				used++
				if !after(in, w) {
					return false
				}
				b = in
			}
			if !after(f, b) {
				return false
			}
			if stage == 0 {
				continue
			}
			before, backBefore := fmt.Sprint(stage-1, Forward, k), fmt.Sprint(stage-1, BackwardInput, k)
			if _, ok := where[backBefore]; !ok {
				backBefore = fmt.Sprint(stage-1, Backward, k)
			}
			links := [][2]string{{before, f}, {b, backBefore}}
			if s.Lowered && s.RankOf(stage, k) != s.RankOf(stage-1, k) {
				used += 6
				sf, rf, wf := fmt.Sprint(stage-1, SendF, k), fmt.Sprint(stage, RecvF, k), fmt.Sprint(stage-1, WaitF, k)
				sb, rb, wb := fmt.Sprint(stage, SendB, k), fmt.Sprint(stage-1, RecvB, k), fmt.Sprint(stage, WaitB, k)
				links = [][2]string{{before, sf}, {sf, wf}, {sf, rf}, {rf, f}, {b, sb}, {sb, wb}, {sb, rb}, {rb, backBefore}}
				for _, same := range [][2]string{{before, sf}, {sf, wf}, {rf, f}, {b, sb}, {sb, wb}, {rb, backBefore}} {
					if where[same[0]].rank != where[same[1]].rank || where[same[0]].index >= where[same[1]].index {
						return false
					}
				}
			}
			for _, link := range links {
				if !after(link[0], link[1]) {
					return false
				}
			}
		}
	}
	if s.Lowered {
		for r, program := range s.Programs {
			for _, stage := range s.StagesOf(r) {
				used++
				at, ok := where[fmt.Sprint(stage, ReduceGrad, 0, " of ", r)]
				if !ok {
					return false
				}
				for i, o := range program {
					if o.Stage == stage && (o.Kind == BackwardWeight || o.Kind == Backward) && i > at.index {
						return false
					}
				}
				for _, h := range s.Holders(stage) {
					if other, ok := where[fmt.Sprint(stage, ReduceGrad, 0, " of ", h)]; ok && h != r {
						// A collective: neither ends before the other starts.
						edges[place{h, other.index - 1}] = append(edges[place{h, other.index - 1}], place{r, at.index})
					}
				}
			}
		}
		// Channels: in the order sent.
		type channel struct {
			from, to, stage int
			kind            Kind
		}
		sends, recvs := map[channel][]place{}, map[channel][]place{}
		for r, program := range s.Programs {
			for i, o := range program {
				switch o.Kind {
				case SendF:
					c := channel{r, s.RankOf(o.Stage+1, o.First), o.Stage, SendF}
					sends[c] = append(sends[c], place{r, i})
				case SendB:
					c := channel{r, s.RankOf(o.Stage-1, o.First), o.Stage, SendB}
					sends[c] = append(sends[c], place{r, i})
				case RecvF:
					c := channel{s.RankOf(o.Stage-1, o.First), r, o.Stage - 1, SendF}
					recvs[c] = append(recvs[c], place{r, i})
				case RecvB:
					c := channel{s.RankOf(o.Stage+1, o.First), r, o.Stage + 1, SendB}
					recvs[c] = append(recvs[c], place{r, i})
				}
			}
		}
		for c, list := range sends {
			if len(list) != len(recvs[c]) {
				return false
			}
			for i := range list {
				recv := recvs[c][i]
				if s.Programs[c.from][list[i].index].First != s.Programs[c.to][recv.index].First {
					return false
				}
				if !rendezvous {
					continue
				}
				// A receive is posted once all but one of the compute ops before it are done, and what is
				// waited for right after. Until then nobody gets past the wait for its send.
				program := s.Programs[c.to]
				at := recv.index
				for left := 2; at >= 0 && left > 0; {
					if at--; at >= 0 && program[at].Kind.IsCompute() {
						left--
					}
				}
				if at < 0 {
					continue
				}
				for program[at+1].Kind == WaitF || program[at+1].Kind == WaitB {
					at++
				}
				wait := where[fmt.Sprint(c.stage, WaitF, program[recv.index].First)]
				if c.kind == SendB {
					wait = where[fmt.Sprint(c.stage, WaitB, program[recv.index].First)]
				}
				edges[place{c.to, at}] = append(edges[place{c.to, at}], wait)
			}
		}
	}
	if used != len(where) {
		return false
	}
	// Kahn.
	degree := map[place]int{}
	for _, list := range edges {
		for _, b := range list {
			degree[b]++
		}
	}
	var free []place
	nodes := map[place]bool{}
	for r, program := range s.Programs {
		for i := range program {
			nodes[place{r, i}] = true
			if degree[place{r, i}] == 0 {
				free = append(free, place{r, i})
			}
		}
	}
	// Edges from before a program's first op hold nothing up.
	for a, list := range edges {
		if !nodes[a] {
			for _, b := range list {
				if degree[b]--; degree[b] == 0 && nodes[b] {
					free = append(free, b)
				}
			}
		}
	}
	done := 0
	for len(free) > 0 {
		a := free[len(free)-1]
		free = free[:len(free)-1]
		done++
		for _, b := range edges[a] {
			if degree[b]--; degree[b] == 0 {
				free = append(free, b)
			}
		}
	}
	return done == len(nodes)
}

// mutate changes one thing of a schedule.
func mutate(rng *rand.Rand, s *Schedule) {
	r := rng.IntN(s.Ranks)
	for len(s.Programs[r]) == 0 {
		r = rng.IntN(s.Ranks)
	}
	i := rng.IntN(len(s.Programs[r]))
	o := s.Programs[r][i]
	drop := func() { s.Programs[r] = slices.Delete(s.Programs[r], i, i+1) }
	switch rng.IntN(5) {
	case 0:
		drop()
	case 1:
		s.Programs[r] = slices.Insert(s.Programs[r], rng.IntN(len(s.Programs[r])+1), o)
	case 2, 3:
		j := rng.IntN(len(s.Programs[r]))
		if rng.IntN(2) == 0 {
			j = min(i+1, len(s.Programs[r])-1)
		}
		s.Programs[r][i], s.Programs[r][j] = s.Programs[r][j], s.Programs[r][i]
	case 4:
		drop()
		to := rng.IntN(s.Ranks)
		s.Programs[to] = slices.Insert(s.Programs[to], rng.IntN(len(s.Programs[to])+1), o)
	}
}

// Every mutation of a valid schedule is refused, or valid by the other definition.
func TestCheckMutations(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	accepted, refused := 0, 0
	everySchedule(t, func(name string, s *Schedule) {
		if s.Ranks > 4 || s.Microbatches > 6 || s.Async != nil || s.Ops() > 60 && rng.IntN(4) > 0 {
			return
		}
		forms := []*Schedule{s}
		if l, err := Lower(s); err != nil {
			t.Fatalf("%s: %v", name, err)
		} else {
			forms = append(forms, l)
		}
		for _, form := range forms {
			if !valid(form, true) {
				t.Fatalf("%s (lowered: %v) is not valid by the other definition", name, form.Lowered)
			}
			for range 6 {
				m := form.Clone()
				for range 1 + rng.IntN(2) {
					mutate(rng, m)
				}
				err := Check(m)
				want := valid(m, false)
				if want && !m.Lowered {
					m, _ = Passes(AddTransfers, AddReduceGrad, Pace)(m)
					want = valid(m, false)
				}
				if want = want && valid(m, true); want != (err == nil) {
					t.Fatalf("%s: valid by the other definition: %v; Check: %v\n%s", name, want, err, Format(m))
				}
				if err == nil {
					accepted++
				} else {
					refused++
				}
				var e *CheckError
				if err != nil && (!errors.As(err, &e) || e.Index >= 0 && !strings.Contains(e.Grid, "<-- HERE")) {
					t.Fatalf("%s: no op marked: %v", name, err)
				}
			}
		}
	})
	t.Logf("%d mutations accepted, %d refused", accepted, refused)
	if accepted < 100 || refused < 1000 {
		t.Errorf("%d accepted, %d refused: the mutations test too little", accepted, refused)
	}
}

// What a user's wrong schedule is told.
func TestCheckMessages(t *testing.T) {
	parse := func(text string) *Schedule {
		s, err := Parse("pipetrain-schedule 2\nranks 2\nstages 2\nmicrobatches 2\nplace 0 1\n" + text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, c := range []struct{ name, text, want string }{
		{"cyclic", "rank 0: 0F0 0B0 0F1 0B1\nrank 1: 1F0 1F1 1B0 1B1\n",
			"rank 0: op 1 (0B0): its order waits for itself: 0B0 (rank 0) waits for 1B0 (rank 1), 1F1 (rank 1) waits for 0F1 (rank 0)\n" +
				"  rank 0   | 0F0 [0B0] 0F1 0B1  <-- HERE: waits for 1B0\n" +
				"  rank 1   | 1F0 [1F1] 1B0 1B1  <-- HERE: waits for 0F1"},
		{"incomplete", "rank 0: 0F0 0F1 0B0 0B1\nrank 1: 1F0 1F1 1B0 1I1\n", "rank 1: 1W1 is missing"},
		{"stage on two ranks", "rank 0: 0F0 0F1 0B0 0B1 1F1\nrank 1: 1F0 1B0 1B1\n",
			"rank 0: op 4 (1F1): stage 1 of micro-batch 1 is on rank 1\n" +
				"  rank 0   | … 0F1 0B0 0B1 [1F1]  <-- HERE"},
		{"duplicate", "rank 0: 0F0 0F1 0B0 0B1\nrank 1: 1F0 1F1 1B0 1B0 1B1\n",
			"rank 1: op 3 (1B0): 1B0 is there twice\n" +
				"  rank 1   | 1F0 1F1 1B0 [1B0] 1B1  <-- HERE"},
		{"B beside W", "rank 0: 0F0 0F1 0B0 0B1 0W1\nrank 1: 1F0 1F1 1B0 1B1\n", "B is I and W in one"},
		{"backward first", "rank 0: 0B0 0F0 0F1 0B1\nrank 1: 1F0 1F1 1B0 1B1\n",
			"rank 0: op 0 (0B0): its order waits for itself: 0B0 (rank 0) waits for 0F0 (rank 0)"},
		{"no transfers", "lowered\nrank 0: 0F0 0F1 0B0 0B1\nrank 1: 1F0 1F1 1B0 1B1\n", "0RECV_B0 must stand before it"},
		{"send that nobody waits for", "lowered\nrank 0: 0F0 0SEND_F0 0F1 0SEND_F1 0WAIT_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD\n" +
			"rank 1: 1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1WAIT_B0 1B1 1SEND_B1 1WAIT_B1 1REDUCE_GRAD\n", "rank 0: 0WAIT_F0 is missing"},
		{"wait before its send", "lowered\nrank 0: 0F0 0WAIT_F0 0SEND_F0 0F1 0SEND_F1 0WAIT_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD\n" +
			"rank 1: 1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1WAIT_B0 1B1 1SEND_B1 1WAIT_B1 1REDUCE_GRAD\n", "rank 0: op 1 (0WAIT_F0): 0SEND_F0 must stand before it"},
		{"order of receives",
			"lowered\nrank 0: 0F0 0SEND_F0 0WAIT_F0 0F1 0SEND_F1 0WAIT_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD\n" +
				"rank 1: 1RECV_F1 1F1 1RECV_F0 1F0 1B0 1SEND_B0 1WAIT_B0 1B1 1SEND_B1 1WAIT_B1 1REDUCE_GRAD\n",
			"rank 0 sends 0SEND_F0 before; a channel is received in the order sent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Check(parse(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got:\n%v\nwant:\n%s", err, c.want)
			}
		})
	}
}

// A schedule that runs while the network buffers, and stands still when a send
// ends only with its receive.
func TestCheckRendezvous(t *testing.T) {
	lowered := lowerText(t, late)
	if !valid(lowered, true) {
		t.Error("it is not valid as Lower paces it")
	}
	// Each send waited for at once, as a program would that calls a blocking send.
	for r, program := range lowered.Programs {
		program = slices.DeleteFunc(program, func(o Op) bool { return o.Kind.IsWait() })
		lowered.Programs[r] = placeWaits(program, func(send int) int { return send + 1 })
	}
	if !valid(lowered, false) || valid(lowered, true) {
		t.Fatal("the example must be valid with buffered sends only")
	}
	err := Check(lowered)
	if err == nil || !strings.Contains(err.Error(), "deadlock with rendezvous sends") || !strings.Contains(err.Error(), "<-- HERE: waits for ") {
		t.Errorf("got: %v", err)
	}
	t.Log(err)
}
