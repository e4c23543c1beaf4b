package costs

import (
	"strings"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/schedule"
)

// A profile over other links: computing as measured, messages as the links say.
func TestLinked(t *testing.T) {
	truth := schedule.StageCosts{F: []float64{.1, .2, .3, .4}, B: []float64{.45, .3, .25, .15}, SendF: []float64{.01, .02, .03, 0}, SendB: []float64{0, .04, .05, .06}}
	p, err := NewProfile(parse(t), 4, "cpu", [][]Sample{samplesOf(t, truth, "schedule.backward_p2=fused")}, []float64{.5})
	if err != nil {
		t.Fatal(err)
	}
	links := Device{FLOPS: 1, Bandwidth: 1, LinkBytes: 1e6, LinkLatency: time.Second, NodeRanks: 2, InterBytes: 1e3, InterLatency: 2 * time.Second}
	at := func(source Source) Costs { return source.Of(workOf(t, parse(t), 4)) }
	own, between, all := at(p), at(Linked{p, links, false}), at(Linked{p, links, true})
	assumed := at(links)
	for _, k := range []schedule.Kind{schedule.Forward, schedule.Backward} {
		for stage := range 4 {
			op := schedule.Op{Stage: stage, Kind: k}
			if want := own.Compute(op); between.Compute(op) != want || all.Compute(op) != want || want <= 0 {
				t.Errorf("%v: %v and %v instead of the measured %v", op, between.Compute(op), all.Compute(op), want)
			}
		}
	}
	send := func(c Costs, stage, to int) float64 {
		return c.Transfer(schedule.Op{Stage: stage, Kind: schedule.SendF}, stage, to)
	}
	// Ranks 0 and 1 share a node, 1 and 2 do not.
	if got := send(between, 0, 1); got != send(own, 0, 1) || got <= 0 {
		t.Errorf("within a node: %v, measured %v", got, send(own, 0, 1))
	}
	if got := send(all, 0, 1); got != send(assumed, 0, 1) || got <= 1 {
		t.Errorf("within a node, links assumed: %v instead of %v", got, send(assumed, 0, 1))
	}
	for _, c := range []Costs{between, all} {
		if got := send(c, 1, 2); got != send(assumed, 1, 2) || got <= 2 {
			t.Errorf("between nodes: %v instead of %v", got, send(assumed, 1, 2))
		}
	}
	// Two replicas exchange all gradients once each way, between nodes.
	two := workOf(t, parse(t), 4)
	two.Copies = 2
	c := Linked{p, links, false}.Of(two)
	bytes := c.(linkedCosts).links.params[1]
	if got := c.Compute(schedule.Op{Stage: 1, Kind: schedule.ReduceGrad}); !near(got, bytes/1e3+4) || bytes < 1000 {
		t.Errorf("reducing %v bytes takes %v", bytes, got)
	}
	if err := (Linked{p, links, false}).Fits(parse(t, "model.dim=128")); err == nil || !strings.Contains(err.Error(), "measure again") {
		t.Errorf("the profile of another model: %v", err)
	}
	if s := (Linked{p, links, false}).String(); !strings.Contains(s, "1e-06 GB/s and 2s between nodes of 2 ranks") || !strings.Contains(s, "a profile of") {
		t.Error(s)
	}
}
