package cuda

import (
	"errors"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cuda/driver"
)

// queue is a stream with scratch memory that only its operations use.
type queue struct {
	stream *driver.Stream
	kept   []keptScratch
	work   driver.Addr // of cublasLt
	event  *driver.Event
}

func (d *Device) newQueue(priority int) (*queue, error) {
	q := &queue{}
	var err error
	if q.stream, err = d.ctx.NewStream(priority); err != nil {
		return nil, err
	}
	k, err := d.keep(keptBytes)
	if err != nil {
		return q, err
	}
	q.kept = append(q.kept, k)
	if n := d.gemm.workspace(); n > 0 {
		if q.work, err = d.memory.own(d.ctx, n); err != nil {
			return q, err
		}
	}
	q.event, err = d.ctx.NewEvent(false)
	return q, err
}

// after lets what follows on q begin after all that was put into other.
func (q *queue) after(other *queue) error {
	if err := other.event.Record(other.stream); err != nil {
		return err
	}
	return q.stream.Wait(other.event)
}

// Fork is kernels.Queues'.
func (d *Device) Fork() {
	d.perform("Fork", func() error { return d.second.after(d.first) })
	d.now = d.second
}

// Join is kernels.Queues'.
func (d *Device) Join() { d.now = d.first }

// Wait is kernels.Queues'.
func (d *Device) Wait() {
	d.perform("Wait", func() error { return d.first.after(d.second) })
}

// recording is a CUDA graph. Recordings share the scratch memory of a queue of their own,
// so each replay begins after the last one.
type recording struct {
	d     *Device
	graph *driver.Graph
}

// Record is kernels.Recorder's. What ops calls is captured from a stream of its own.
func (d *Device) Record(ops func()) (kernels.Recording, error) {
	if d.now == d.recorded {
		return nil, errors.New("cuda: Record within Record")
	}
	d.perform("Record", d.recorded.stream.BeginCapture)
	if err := d.failure(); err != nil {
		return nil, err
	}
	r := &recording{d: d}
	func() {
		was := d.now
		d.now = d.recorded
		// Deferred, so that a panic in ops leaves no stream captured.
		defer func() {
			d.now = was
			d.perform("Record", func() (err error) {
				r.graph, err = d.recorded.stream.EndCapture()
				return err
			})
		}()
		ops()
	}()
	return r, d.failure()
}

// Replay is kernels.Recording's.
func (r *recording) Replay() {
	d := r.d
	d.perform("Replay", func() error {
		// The event of the recordings' queue is recorded by replays alone.
		if err := d.now.stream.Wait(d.recorded.event); err != nil {
			return err
		}
		if err := d.now.stream.LaunchGraph(r.graph); err != nil {
			return err
		}
		return d.recorded.event.Record(d.now.stream)
	})
}

// Free is kernels.Recording's.
func (r *recording) Free() {
	r.d.perform("Free of a recording", r.graph.Destroy)
}
