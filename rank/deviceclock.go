package rank

import (
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/schedule"
)

// deviceClock times ops on a device that performs them after they are called: by
// instants in its queues, which it is asked for at the end of the step.
type deviceClock struct {
	dev    kernels.Marker
	sync   func() error
	origin kernels.Mark // passed at the host's time at
	at     int64
	ops    []markedOp
}

type markedOp struct {
	op         schedule.Op
	category   string
	start, end kernels.Mark
}

// newDeviceClock returns nil for a device that knows no instants.
func newDeviceClock(dev kernels.Device) *deviceClock {
	if m, ok := dev.(kernels.Marker); ok {
		return &deviceClock{dev: m, sync: dev.Sync}
	}
	return nil
}

// begin compares the device's clock with the host's, at the start of a step when the
// device is idle.
func (c *deviceClock) begin() error {
	if err := c.sync(); err != nil {
		return err
	}
	c.origin = c.dev.Mark()
	err := c.dev.Await(c.origin)
	c.at = now()
	return err
}

func (c *deviceClock) add(op schedule.Op, category string, start, end kernels.Mark) {
	c.ops = append(c.ops, markedOp{op, category, start, end})
}

// end waits for the step's ops and reports their times on the host's clock.
func (c *deviceClock) end(record func(op schedule.Op, category string, start, end int64)) error {
	err := c.sync()
	for _, o := range c.ops {
		if err == nil {
			record(o.op, o.category, c.at+int64(c.dev.Between(c.origin, o.start)), c.at+int64(c.dev.Between(c.origin, o.end)))
		}
		c.dev.Drop(o.start, o.end)
	}
	c.dev.Drop(c.origin)
	c.ops = c.ops[:0]
	return err
}
