package costs

import (
	"fmt"

	"github.com/pipetrain/pipetrain/schedule"
)

// Linked is a profile whose messages take other links than it was measured over: what the job
// would do on slower or faster ones, or on more nodes. Computing is as measured.
type Linked struct {
	*Profile
	Links Device // its links; the rest of it is not read
	// Within: messages between ranks of a node take Links too; else only those between nodes do,
	// and the others the time that was measured.
	Within bool
}

// String tells the figures, as Device does.
func (l Linked) String() string {
	d := l.Links
	inter, latency := d.inter()
	assumed := fmt.Sprintf("links of %.4g GB/s and %v", d.LinkBytes/1e9, d.LinkLatency)
	switch {
	case !l.Within:
		assumed = fmt.Sprintf("links of %.4g GB/s and %v between nodes of %d ranks", inter/1e9, latency, d.NodeRanks)
	case d.NodeRanks > 0:
		assumed += fmt.Sprintf(" (between nodes of %d ranks: %.4g GB/s and %v)", d.NodeRanks, inter/1e9, latency)
	}
	return l.Profile.String() + "; assumed " + assumed
}

// Of implements Source.
func (l Linked) Of(w Work) Costs {
	return linkedCosts{l.Profile.Of(w), l.Links.of(w), l.Within}
}

type linkedCosts struct {
	Costs
	links  *deviceCosts
	within bool
}

// Compute implements schedule.Costs.
func (c linkedCosts) Compute(op schedule.Op) float64 {
	switch op.Kind {
	case schedule.ReduceGrad: // replicas are taken to be on other nodes
		return c.links.reduce(op.Stage)
	case schedule.Update:
		return c.Costs.Compute(op) + c.links.reduce(op.Stage)
	}
	return c.Costs.Compute(op)
}

// Transfer implements schedule.Costs.
func (c linkedCosts) Transfer(send schedule.Op, from, to int) float64 {
	if n := c.links.d.NodeRanks; !c.within && (n == 0 || from/n == to/n) {
		return c.Costs.Transfer(send, from, to)
	}
	return c.links.Transfer(send, from, to)
}
