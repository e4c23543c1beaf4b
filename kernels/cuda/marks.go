package cuda

import (
	"fmt"
	"sync"
	"time"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cuda/driver"
)

// marks are instants: events, used again once dropped.
type marks struct {
	ctx  *driver.Context
	mu   sync.Mutex
	live map[kernels.Mark]*driver.Event
	free []*driver.Event
	last kernels.Mark
}

// take records an event in a stream.
func (m *marks) take(s *driver.Stream) (kernels.Mark, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var e *driver.Event
	if n := len(m.free); n > 0 {
		e, m.free = m.free[n-1], m.free[:n-1]
	} else {
		var err error
		if e, err = m.ctx.NewEvent(true); err != nil {
			return 0, err
		}
	}
	if err := e.Record(s); err != nil {
		m.free = append(m.free, e)
		return 0, err
	}
	if m.live == nil {
		m.live = map[kernels.Mark]*driver.Event{}
	}
	for m.last++; m.last <= 0 || m.live[m.last] != nil; m.last++ {
		m.last = max(m.last, 0)
	}
	m.live[m.last] = e
	return m.last, nil
}

// find returns the event of a mark, nil for 0; a dropped one is a mistake of the caller.
func (m *marks) find(at kernels.Mark) *driver.Event {
	if at == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.live[at]
	if e == nil {
		panic(fmt.Sprintf("cuda: instant %d was dropped, or never was", at))
	}
	return e
}

func (m *marks) close(note func(error)) {
	for _, e := range m.live {
		note(e.Destroy())
	}
	for _, e := range m.free {
		note(e.Destroy())
	}
}

// Mark is kernels.Marker's. After a failure it returns 0.
func (d *Device) Mark() (at kernels.Mark) {
	d.perform("Mark", func() (err error) {
		at, err = d.marks.take(d.now.stream)
		return err
	})
	return at
}

// After is kernels.Marker's.
func (d *Device) After(at kernels.Mark) {
	if e := d.marks.find(at); e != nil {
		d.perform("After", func() error { return d.now.stream.Wait(e) })
	}
}

// Between is kernels.Marker's; 0 after a failure.
func (d *Device) Between(from, to kernels.Mark) (t time.Duration) {
	a, b := d.marks.find(from), d.marks.find(to)
	if a == nil || b == nil {
		return 0
	}
	d.perform("Between", func() error {
		for _, e := range []*driver.Event{a, b} {
			if err := e.Synchronize(); err != nil {
				return err
			}
		}
		ms, err := b.Since(a)
		t = time.Duration(float64(ms) * float64(time.Millisecond))
		return err
	})
	return t
}

// Await is kernels.Marker's. The thread sleeps; it does not spin.
func (d *Device) Await(at kernels.Mark) error {
	if e := d.marks.find(at); e != nil {
		d.perform("Await", e.Synchronize)
	}
	return d.failure()
}

// Drop is kernels.Marker's.
func (d *Device) Drop(all ...kernels.Mark) {
	m := &d.marks
	for _, at := range all {
		if e := m.find(at); e != nil {
			m.mu.Lock()
			delete(m.live, at)
			m.free = append(m.free, e)
			m.mu.Unlock()
		}
	}
}
