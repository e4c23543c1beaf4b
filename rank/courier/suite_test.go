package courier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pipetrain/pipetrain/kernels"
)

// node is a rank of a world that couriers are tried in.
type node struct {
	courier Courier
	dev     kernels.Device
	arena   kernels.Buffer
}

// arenaBytes is what a node's arena holds: slots of a message each.
const (
	slotBytes  = 3*stageBytes + 512
	slots      = 6
	arenaBytes = slots * slotBytes
)

// slot returns memory for a message of so many bytes.
func (n node) slot(i int, bytes int64) kernels.Buffer {
	return n.arena.Slice(int64(i)*slotBytes, bytes).As(kernels.U8)
}

// pattern is a message that no other is like.
func pattern(bytes int64, seed int) []byte {
	b := make([]byte, bytes)
	for i := range b {
		b[i] = byte(i*(2*seed+3) + i>>8 + seed)
	}
	return b
}

func (n node) holds(b kernels.Buffer, want []byte, what string) error {
	got := make([]byte, b.Len)
	n.dev.CopyOut(got, b)
	if err := n.dev.Sync(); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s: other bytes", what)
	}
	return nil
}

// sizes of messages: of one part and of several, whole and not.
var sizes = []int64{4, 1000, stageBytes, stageBytes + 4, 3 * stageBytes}

// conforms holds couriers of two ranks to what Courier promises, and returns what is broken.
func conforms(nodes [2]node) error {
	for _, c := range []struct {
		name string
		run  func(ctx context.Context, n node, me int) error
	}{
		{"messages arrive whole", arrive},
		{"ops before a receive still read its memory", readBefore},
		{"ops after a send may overwrite its memory", overwrite},
		{"messages are told apart by their tags", apart},
		{"memory is received into again", again},
		{"a wait ends with its context", cancelled},
	} {
		ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Second, errors.New("it hangs"))
		var errs [2]error
		var both sync.WaitGroup
		for me := range nodes {
			both.Go(func() {
				if errs[me] = c.run(ctx, nodes[me], me); errs[me] != nil {
					cancel() // the other need not wait for it
				}
			})
		}
		both.Wait()
		cancel()
		if err := errors.Join(errs[0], errs[1]); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// exchange sends a slot to the other rank and receives into another, which must then hold its message.
func (n node) exchange(ctx context.Context, me, tag int, out, in kernels.Buffer, want []byte) error {
	recv, err := n.courier.Recv(ctx, 1-me, 2*tag+1-me, in)
	if err != nil {
		return err
	}
	send, err := n.courier.Send(ctx, 1-me, 2*tag+me, out)
	if err != nil {
		return err
	}
	if err := recv.Wait(ctx); err != nil {
		return err
	}
	if err := n.holds(in, want, fmt.Sprintf("a message of %d bytes", in.Len)); err != nil {
		return err
	}
	return send.Wait(ctx)
}

func arrive(ctx context.Context, n node, me int) error {
	for tag, size := range sizes {
		n.dev.CopyIn(n.slot(0, size), pattern(size, me))
		if err := n.exchange(ctx, me, tag, n.slot(0, size), n.slot(1, size), pattern(size, 1-me)); err != nil {
			return err
		}
	}
	return nil
}

// apart sends three messages and waits for them in the other order.
func apart(ctx context.Context, n node, me int) error {
	const size = stageBytes + 100
	if me == 0 {
		var all []Parcel
		for i := range 3 {
			n.dev.CopyIn(n.slot(i, size), pattern(size, 10+i))
			p, err := n.courier.Send(ctx, 1, 100+i, n.slot(i, size))
			if err != nil {
				return err
			}
			all = append(all, p)
		}
		for _, p := range all {
			if err := p.Wait(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	var all [3]Parcel
	for i := 2; i >= 0; i-- {
		var err error
		if all[i], err = n.courier.Recv(ctx, 0, 100+i, n.slot(i, size)); err != nil {
			return err
		}
	}
	for i := 2; i >= 0; i-- {
		if err := all[i].Wait(ctx); err != nil {
			return err
		}
		if err := n.holds(n.slot(i, size), pattern(size, 10+i), fmt.Sprintf("message %d", i)); err != nil {
			return err
		}
	}
	return nil
}

// readBefore has the device copy out of memory that a message is then received into.
func readBefore(ctx context.Context, n node, me int) error {
	const size = stageBytes
	for tag := range 8 {
		in, out, kept := n.slot(0, size), n.slot(1, size), n.slot(2, size)
		n.dev.CopyIn(in, pattern(size, 20+me))
		n.dev.CopyIn(out, pattern(size, 30+me))
		for range 4 { // late, where the device is
			n.dev.Copy(n.slot(3, size), out)
		}
		n.dev.Copy(kept, in)
		if err := n.exchange(ctx, me, 200+tag, out, in, pattern(size, 30+1-me)); err != nil {
			return err
		}
		if err := n.holds(kept, pattern(size, 20+me), "what was read before"); err != nil {
			return err
		}
	}
	return nil
}

// overwrite sends what ops make, and has ops change it right after the wait.
func overwrite(ctx context.Context, n node, me int) error {
	const size = 2*stageBytes + 40
	for tag := range 8 {
		made, out, in := n.slot(0, size), n.slot(1, size), n.slot(2, size)
		n.dev.CopyIn(made, pattern(size, 40+me+tag))
		n.dev.Copy(out, made)
		recv, err := n.courier.Recv(ctx, 1-me, 600+2*tag+1-me, in)
		if err != nil {
			return err
		}
		send, err := n.courier.Send(ctx, 1-me, 600+2*tag+me, out)
		if err != nil {
			return err
		}
		if err := send.Wait(ctx); err != nil {
			return err
		}
		n.dev.Zero(out)
		if err := recv.Wait(ctx); err != nil {
			return err
		}
		n.dev.Copy(made, in) // an op called after the wait sees the message
		if err := n.holds(made, pattern(size, 40+1-me+tag), "what was sent"); err != nil {
			return err
		}
	}
	return nil
}

// again receives one message after another into the same memory.
func again(ctx context.Context, n node, me int) error {
	const size = stageBytes + 8
	for tag := range 6 {
		n.dev.CopyIn(n.slot(0, size), pattern(size, 60+2*tag+me))
		if err := n.exchange(ctx, me, 400+tag, n.slot(0, size), n.slot(1, size), pattern(size, 60+2*tag+1-me)); err != nil {
			return err
		}
	}
	return nil
}

// cancelled waits for a message that is sent only after the wait was given up, and then for another.
func cancelled(ctx context.Context, n node, me int) error {
	const size = 64
	const given, other, asked = 900, 901, 902 // tags
	one := func(start func(context.Context, int, int, kernels.Buffer) (Parcel, error), tag, slot int) error {
		p, err := start(ctx, 1-me, tag, n.slot(slot, size))
		if err != nil {
			return err
		}
		return p.Wait(ctx)
	}
	if me == 0 {
		if err := one(n.courier.Recv, asked, 1); err != nil {
			return err
		}
		if err := one(n.courier.Send, given, 0); err != nil {
			return err
		}
		return one(n.courier.Send, other, 0)
	}
	p, err := n.courier.Recv(ctx, 0, given, n.slot(0, size))
	if err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	if err := p.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("after its context's end the wait says %v", err)
	}
	if err := one(n.courier.Send, asked, 2); err != nil {
		return err
	}
	return one(n.courier.Recv, other, 1)
}
