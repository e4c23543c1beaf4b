package schedule

import (
	"math/rand/v2"
	"testing"
)

// The times of orders are those of Simulate, and so are their peaks, before and after any moves that are kept or taken back.
func TestOrdersAreSimulated(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, c := range []struct {
		p, m, v int
		kind    string
		concat  int
	}{{4, 8, 1, "zb-h1", 1}, {3, 6, 2, "interleaved-zb", 1}, {4, 8, 2, "zb-v", 1}, {4, 8, 1, "1f1b", 0}, {2, 9, 1, "1f1b", 3}, {4, 6, 1, "chimera", 1}} {
		base, err := Build(c.kind, Config{c.p, c.m, c.v})
		if err != nil {
			t.Fatal(err)
		}
		costs, bytes, _ := cutModel(rng, c.p, false)(base.Stages)
		s, err := TwoBP(base, Policy{PlaceCooldown, c.concat})
		if err != nil {
			t.Fatal(err)
		}
		o := newOrders(s, costs, bytes, nil, c.concat)
		if !o.set(s.Programs) {
			t.Fatalf("%s: the builder's own order does not run", c.kind)
		}
		a := &anneal{orders: o, rng: rng}
		for round := range 4 {
			a.save()
			a.run(20000*round, 1, .1, 0)
			out := joinWeights(s, 1)
			out.Programs = o.programs()
			if err := Check(out); err != nil {
				t.Fatal(err)
			}
			if c.concat != 1 {
				out = joinWeights(out, c.concat)
			}
			if want := simulate(t, out, costs).Makespan(); !close(o.makespan, want) {
				t.Errorf("%s: makespan %v, simulated %v", c.kind, o.makespan, want)
			}
			for i := range o.nodes {
				if got := o.now[i].end + o.tail[i]; got > o.makespan*(1+1e-9) {
					t.Errorf("%s: a path through op %d takes %v of %v", c.kind, i, got, o.makespan)
				}
			}
		}
	}
}

func close(a, b float64) bool { return a-b < 1e-9*b && b-a < 1e-9*b }
