package kerneltest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/kernels"
)

// RunAbilities tests the optional abilities (kernels/optional.go) that the device
// has; those that it lacks are skipped. kernels.Sharer takes two processes and is not here.
func RunAbilities(t *testing.T, newDevice Maker) {
	t.Helper()
	for _, a := range abilities {
		t.Run(a.name, func(t *testing.T) {
			if err := a.check(newDevice); errors.Is(err, errLacks) {
				t.Skip(err)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// CheckAbilities is RunAbilities for a device that should fail: it returns what is wrong.
func CheckAbilities(newDevice Maker) error {
	var errs []error
	for _, a := range abilities {
		if err := a.check(newDevice); err != nil && !errors.Is(err, errLacks) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

var errLacks = errors.New("the device lacks it")

type ability struct {
	name string
	run  func(b *bench) error
}

var abilities = []ability{
	{"Queues", checkQueues},
	{"Marker", checkMarker},
	{"Copier", checkCopier},
	{"Copier/many in flight", checkManyCopies},
	{"Recorder", checkRecorder},
}

// abilityRounds is how often each is tried: an order that is not kept shows now and then only.
const abilityRounds = 20

func (a ability) check(newDevice Maker) (err error) {
	d, err := newDevice(1)
	if err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: panic: %v", a.name, r)
		}
		if e := d.Close(); e != nil && err == nil {
			err = fmt.Errorf("%s: Close: %w", a.name, e)
		}
	}()
	b, err := newBench(d)
	if err != nil {
		return err
	}
	for round := range abilityRounds {
		b.round = float32(round + 1)
		if err := a.run(b); err != nil {
			return fmt.Errorf("%s, round %d: %w", a.name, round, err)
		}
	}
	if err := d.Sync(); err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	return nil
}

// bench is some memory of a device, and work that takes it a while: x += step, often.
type bench struct {
	d          kernels.Device
	round      float32
	x, y, step kernels.Buffer
	host       []byte
}

const (
	benchLen  = 1 << 12
	benchAdds = 24
)

func newBench(d kernels.Device) (*bench, error) {
	b := &bench{d: d, host: make([]byte, 4*benchLen)}
	for _, p := range []*kernels.Buffer{&b.x, &b.y, &b.step} {
		m, err := d.Alloc(4 * benchLen)
		if err != nil {
			return nil, err
		}
		*p = m.As(kernels.F32)
	}
	b.fill(b.step, 1)
	return b, nil
}

func (b *bench) fill(to kernels.Buffer, v float32) {
	b.d.CopyIn(to, constant(b.host, v))
}

func constant(host []byte, v float32) []byte {
	for i := 0; i < len(host); i += 4 {
		binary.NativeEndian.PutUint32(host[i:], math.Float32bits(v))
	}
	return host
}

// work adds benchAdds to x, slowly.
func (b *bench) work(x kernels.Buffer) {
	for range benchAdds {
		b.d.Add(x, x, b.step)
	}
}

// expect reads x by the first queue.
func (b *bench) expect(what string, x kernels.Buffer, want float32) error {
	got := make([]byte, x.Bytes())
	b.d.CopyOut(got, x)
	return same(what, got, want)
}

func same(what string, got []byte, want float32) error {
	for i := 0; i < len(got); i += 4 {
		if v := math.Float32frombits(binary.NativeEndian.Uint32(got[i:])); v != want {
			return fmt.Errorf("%s: element %d is %v, want %v", what, i/4, v, want)
		}
	}
	return nil
}

func checkQueues(b *bench) error {
	q, ok := b.d.(kernels.Queues)
	if !ok {
		return errLacks
	}
	b.fill(b.x, b.round)
	b.work(b.x) // first queue
	q.Fork()
	b.d.Copy(b.y, b.x) // sees the first queue's work
	b.work(b.y)
	q.Join()
	q.Wait()
	b.d.Add(b.x, b.x, b.y) // sees the second's
	return b.expect("x after Fork, Join and Wait", b.x, 2*b.round+3*benchAdds)
}

func checkMarker(b *bench) error {
	m, ok := b.d.(kernels.Marker)
	if !ok {
		return errLacks
	}
	if err := m.Await(0); err != nil {
		return err
	}
	m.After(0)
	m.Drop(0)
	b.fill(b.x, b.round)
	first := m.Mark()
	b.work(b.x)
	second := m.Mark()
	b.work(b.x)
	third := m.Mark()
	if err := m.Await(third); err != nil {
		return err
	}
	one, two, both := m.Between(first, second), m.Between(second, third), m.Between(first, third)
	if one <= 0 || two <= 0 || both > time.Minute || (one+two-both).Abs() > both/10+10*time.Microsecond {
		return fmt.Errorf("between the instants lie %v and %v, in all %v", one, two, both)
	}
	m.Drop(first, second, third)
	return b.expect("x", b.x, b.round+2*benchAdds)
}

func checkCopier(b *bench) error {
	c, ok := b.d.(kernels.Copier)
	if !ok {
		return errLacks
	}
	in, err := c.HostAlloc(b.x.Bytes())
	if err != nil {
		return err
	}
	defer c.FreeHost(in)
	out, err := c.HostAlloc(b.x.Bytes())
	if err != nil {
		return err
	}
	defer c.FreeHost(out)
	constant(out, -1)

	// A download sees the work before its instant, and not what comes later.
	b.fill(b.x, b.round)
	b.work(b.x)
	worked := c.Mark()
	down := c.Download(out, b.x, worked)
	c.After(down)
	b.work(b.x)
	if err := c.Await(down); err != nil {
		return err
	}
	if err := same("a download", out, b.round+benchAdds); err != nil {
		return err
	}
	// An upload waits for the reader of what it replaces; what waits for it sees it.
	b.d.Copy(b.y, b.x)
	b.work(b.y)
	read := c.Mark()
	up := c.Upload(b.x, constant(in, 1000*b.round), read)
	b.work(b.y)
	c.After(up)
	b.work(b.x)
	if err := b.expect("x after an upload", b.x, 1000*b.round+benchAdds); err != nil {
		return err
	}
	if err := b.expect("y, read before the upload", b.y, b.round+4*benchAdds); err != nil {
		return err
	}
	// A move within the device.
	moved := c.Mark()
	at := c.Move(b.y, b.x, moved)
	c.After(at)
	b.work(b.y)
	c.Drop(worked, down, read, up, moved, at)
	return b.expect("y after a move", b.y, 1000*b.round+2*benchAdds)
}

// checkManyCopies has many copies of each direction in flight, called by several goroutines.
func checkManyCopies(b *bench) error {
	c, ok := b.d.(kernels.Copier)
	if !ok {
		return errLacks
	}
	const n = 16
	host, err := c.HostAlloc(b.x.Bytes())
	if err != nil {
		return err
	}
	defer c.FreeHost(host)
	part := int64(len(host) / n)
	x := b.x.As(kernels.U8)
	errs := make(chan error, n)
	for i := range int64(n) {
		go func() {
			mine := host[i*part:][:part]
			up := c.Upload(x.Slice(i*part, part), constant(mine, b.round+float32(i)), 0)
			err := c.Await(up)
			constant(mine, -1)
			down := c.Download(mine, x.Slice(i*part, part), up)
			err = errors.Join(err, c.Await(down))
			c.Drop(up, down)
			if err == nil {
				err = same(fmt.Sprintf("part %d", i), mine, b.round+float32(i))
			}
			errs <- err
		}()
	}
	var all []error
	for range n {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

func checkRecorder(b *bench) error {
	r, ok := b.d.(kernels.Recorder)
	if !ok {
		return errLacks
	}
	b.fill(b.x, b.round)
	b.d.Zero(b.y)
	rec, err := r.Record(func() {
		b.work(b.x)
		b.d.Add(b.y, b.y, b.x)
	})
	if err != nil {
		return err
	}
	defer rec.Free()
	if err := b.expect("x, after recording alone", b.x, b.round); err != nil {
		return err
	}
	rec.Replay()
	b.work(b.x) // the queue's order holds
	rec.Replay()
	if err := b.expect("x after two replays", b.x, b.round+3*benchAdds); err != nil {
		return err
	}
	if err := b.expect("y after two replays", b.y, 2*b.round+4*benchAdds); err != nil {
		return err
	}
	q, ok := b.d.(kernels.Queues)
	if !ok {
		return nil
	}
	q.Fork()
	rec.Replay()
	q.Join()
	q.Wait()
	return b.expect("x after a replay in the second queue", b.x, b.round+4*benchAdds)
}
