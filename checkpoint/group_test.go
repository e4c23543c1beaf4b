package checkpoint

import (
	"context"
	"errors"
)

// hub connects the members of an in-process group.
type hub struct {
	size   int
	up     []chan []byte // to rank 0
	down   []chan []byte // from rank 0
	lost   chan struct{} // closed when a member is gone
	reason error
}

func newHub(size int) *hub {
	h := &hub{size: size, lost: make(chan struct{}), reason: errors.New("rank 1 was lost: killed")}
	for range size {
		h.up = append(h.up, make(chan []byte))
		h.down = append(h.down, make(chan []byte))
	}
	return h
}

type member struct {
	*hub
	rank int
}

func (m member) Rank() int { return m.rank }
func (m member) Size() int { return m.size }

func (m member) move(ctx context.Context, send, receive chan []byte, b []byte) ([]byte, error) {
	select {
	case send <- b: // nil channels never proceed
		return nil, nil
	case b := <-receive:
		return b, nil
	case <-m.lost:
		return nil, m.reason
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m member) Gather(ctx context.Context, b []byte) ([][]byte, error) {
	if m.rank != 0 {
		_, err := m.move(ctx, m.up[m.rank], nil, b)
		return nil, err
	}
	all := [][]byte{b}
	for i := 1; i < m.size; i++ {
		b, err := m.move(ctx, nil, m.up[i], nil)
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

func (m member) Broadcast(ctx context.Context, b []byte) ([]byte, error) {
	if m.rank != 0 {
		return m.move(ctx, nil, m.down[m.rank], nil)
	}
	for i := 1; i < m.size; i++ {
		if _, err := m.move(ctx, m.down[i], nil, b); err != nil {
			return nil, err
		}
	}
	return b, nil
}
