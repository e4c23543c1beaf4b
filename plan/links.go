package plan

import (
	"fmt"

	"github.com/pipetrain/pipetrain/model"
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

func (l Linked) costs(j *job, cut []model.Range, chunks int) costs {
	return linkedCosts{l.Profile.costs(j, cut, chunks), newDeviceCosts(l.Links, j, cut), l.Within}
}

type linkedCosts struct {
	costs
	links  *deviceCosts
	within bool
}

// Compute implements schedule.Costs.
func (c linkedCosts) Compute(op schedule.Op) float64 {
	switch op.Kind {
	case schedule.ReduceGrad: // replicas are taken to be on other nodes
		return c.links.reduce(op.Stage, c.links.replicas)
	case schedule.Update:
		return c.costs.Compute(op) + c.links.reduce(op.Stage, c.links.replicas)
	}
	return c.costs.Compute(op)
}

// Transfer implements schedule.Costs.
func (c linkedCosts) Transfer(send schedule.Op, from, to int) float64 {
	if n := c.links.d.NodeRanks; !c.within && (n == 0 || from/n == to/n) {
		return c.costs.Transfer(send, from, to)
	}
	return c.links.Transfer(send, from, to)
}

// withHolders implements holderCosts.
func (c linkedCosts) withHolders(n int) costs {
	c.links = c.links.withHolders(n).(*deviceCosts)
	return c
}

var _ holderCosts = linkedCosts{}
