package schedule

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// late is a schedule on whose ranks receives are posted long after the sends.
const late = `pipetrain-schedule 2
ranks 2
stages 4
microbatches 4
place 0 1 0 1
rank 0: 0F0 0F1 0F2 0F3 2F0 2F1 2F2 2F3 2B0 2B1 2B2 2B3 0B0 0B1 0B2 0B3
rank 1: 1F0 3F0 3B0 1F1 3F1 3B1 1F2 3F2 3B2 1F3 3F3 3B3 1B0 1B1 1B2 1B3
`

func lowerText(t *testing.T, text string) *Schedule {
	t.Helper()
	s, err := Parse(text)
	if err == nil {
		s, err = Lower(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Where the receive is posted by then, a send is waited for at once; else as late as the receiver is.
func TestPace(t *testing.T) {
	want := "0F0 0SEND_F0 0WAIT_F0 0F1 0SEND_F1 0F2 0SEND_F2 0F3 0SEND_F3 " + // 1 posts RECV_F1 with its 3F0, after 2 units; F1 was sent then
		"2RECV_F0 2F0 2SEND_F0 2WAIT_F0 2RECV_F1 0WAIT_F1 2F1 2SEND_F1 2WAIT_F1 2RECV_F2 0WAIT_F2 2F2 2SEND_F2 2WAIT_F2 " +
		"2RECV_F3 0WAIT_F3 2F3 2SEND_F3 2WAIT_F3 " +
		"2RECV_B0 2B0 2SEND_B0 2WAIT_B0 2RECV_B1 2B1 2SEND_B1 2WAIT_B1 2RECV_B2 2B2 2SEND_B2 2WAIT_B2 2RECV_B3 2B3 2SEND_B3 2WAIT_B3 " +
		"2REDUCE_GRAD 0RECV_B0 0B0 0RECV_B1 0B1 0RECV_B2 0B2 0RECV_B3 0B3 0REDUCE_GRAD"
	s := lowerText(t, late)
	if got := opsText(s.Programs[0]); got != want {
		t.Errorf("rank 0:\n%s\nwant:\n%s", got, want)
	}
	again, err := Pace(s)
	if err != nil || !reflect.DeepEqual(again, s) {
		t.Errorf("paced again it is another: %v\n%s", err, Format(again))
	}
}

func opsText(program []Op) string {
	list := make([]string, len(program))
	for i, o := range program {
		list[i] = o.String()
	}
	return strings.Join(list, " ")
}

// Before an op come, in brackets, the receives that are posted there.
func TestHorizons(t *testing.T) {
	for program, want := range map[string]string{
		"1RECV_F0 1F0 1RECV_F1 1F1 1RECV_F2 1F2":                         "[0 2] 1RECV_F0 1F0 [4] 1RECV_F1 1F1 1RECV_F2 1F2",
		"1RECV_F0 1F0 1SEND_F0 1WAIT_F0 1RECV_F1 1RECV_B0 1I0 1W0":       "[0 4 5] 1RECV_F0 1F0 1SEND_F0 1WAIT_F0 1RECV_F1 1RECV_B0 1I0 1W0",
		"0F0 0SEND_F0 0WAIT_F0 0F1 0RECV_B0 0I0":                         "0F0 [4] 0SEND_F0 0WAIT_F0 0F1 0RECV_B0 0I0",
		"0F0 0WAIT_F0 0F1 0RECV_B0 0I0":                                  "0F0 0WAIT_F0 [3] 0F1 0RECV_B0 0I0",
		"0F0 0F1 0RECV_B0 0RECV_B1 0REDUCE_GRAD":                         "0F0 [2 3] 0F1 0RECV_B0 0RECV_B1 0REDUCE_GRAD",
		"0F0 0SEND_F0 0WAIT_F0 0RECV_B0 0W0-1 0REDUCE_GRAD 0RECV_B1 0I1": "[3] 0F0 [6] 0SEND_F0 0WAIT_F0 0RECV_B0 0W0-1 0REDUCE_GRAD 0RECV_B1 0I1",
	} {
		var ops []Op
		for _, text := range strings.Fields(program) {
			o, err := ParseOp(text)
			if err != nil {
				t.Fatal(err)
			}
			ops = append(ops, o)
		}
		var got []string
		next := 0
		for i, horizon := range Horizons(ops) {
			var posted []int
			for ; next < horizon; next++ {
				if ops[next].Kind.IsRecv() {
					posted = append(posted, next)
				}
			}
			if posted != nil {
				got = append(got, fmt.Sprint(posted))
			}
			got = append(got, ops[i].String())
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s\nposts  %s\nwant   %s", program, got, want)
		}
	}
}

// times is another definition of what a lowered schedule takes: the least times that keep to every
// rule, found by raising them until none is broken.
func times(t *testing.T, s *Schedule, costs Costs) [][][2]float64 {
	t.Helper()
	type place struct{ rank, index int }
	where, posts := map[Op]place{}, map[Op]place{}
	spans := make([][][2]float64, s.Ranks)
	last := map[string]Op{} // of a channel, by sends in order
	before := map[Op]Op{}
	for r, program := range s.Programs {
		spans[r] = make([][2]float64, len(program))
		for i, o := range program {
			if o.Kind != ReduceGrad {
				where[o] = place{r, i}
			}
			if o.Kind.IsSend() {
				channel := fmt.Sprint(r, s.RankOf(o.Recv().Stage, o.First), o.Kind, o.Stage)
				before[o], last[channel] = last[channel], o
			}
			if !o.Kind.IsRecv() {
				continue
			}
			at := i // posted with the compute op before the one that it is for
			for left := 2; at > 0 && left > 0; {
				if at--; program[at].Kind.IsCompute() {
					left--
				}
				if left == 0 {
					at++
				}
			}
			for program[at].Kind.IsWait() {
				at++
			}
			posts[o] = place{r, at}
		}
	}
	reached := func(p place) float64 { // when a rank comes to an op
		for p.index--; p.index >= 0; p.index-- {
			if !s.Programs[p.rank][p.index].Kind.IsSend() {
				return spans[p.rank][p.index][1]
			}
		}
		return 0
	}
	for round := 0; ; round++ {
		if round > 10*s.Ops() {
			t.Fatalf("the times of %s never settle", s.Name)
		}
		changed := false
		for r, program := range s.Programs {
			for i, o := range program {
				start := reached(place{r, i})
				end := start
				transfer := func() float64 { p := where[o.Send()]; return spans[p.rank][p.index][1] }
				switch {
				case o.Kind.IsSend():
					end = max(start, reached(posts[o.Recv()]))
					if prev, ok := before[o]; ok && prev.Kind != 0 {
						p := where[prev]
						end = max(end, spans[p.rank][p.index][1])
					}
					end += costs.Transfer(o, r, s.RankOf(o.Recv().Stage, o.First))
				case o.Kind.IsTransfer():
					end = max(start, transfer())
				case o.Kind == ReduceGrad:
					for _, h := range s.Holders(o.Stage) {
						end = max(end, reached(place{h, slices.Index(s.Programs[h], o)}))
					}
					end += costs.Compute(o)
				default:
					end += costs.Compute(o)
				}
				if now := [2]float64{start, end}; now != spans[r][i] {
					spans[r][i], changed = now, true
				}
			}
		}
		if !changed {
			return spans
		}
	}
}

// What Simulate says of a lowered schedule is what another definition says, op by op; waits cost no time where
// every op takes one unit.
func TestSimulateLowered(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	everySchedule(t, func(name string, s *Schedule) {
		if s.Microbatches > 8 {
			return
		}
		lowered, err := Lower(s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if a, b := simulate(t, lowered, Units()).Makespan(), simulate(t, s, Units()).Makespan(); a != b {
			t.Errorf("%s: waits cost time: makespan %v, %v without", name, a, b)
		}
		if s.Ops() > 110 || rng.IntN(3) > 0 {
			return
		}
		costs := uneven(rng, s.Stages)
		timeline, next := simulate(t, lowered, costs), 0
		for r, spans := range times(t, lowered, costs) {
			for i, span := range spans {
				if e := timeline.Events[next]; math.Abs(e.Start-span[0]) > 1e-9 || math.Abs(e.End-span[1]) > 1e-9 {
					t.Fatalf("%s: rank %d: op %d (%s) from %v to %v, by the other definition from %v to %v", name, r, i, e.Op, e.Start, e.End, span[0], span[1])
				}
				next++
			}
		}
	})
}
