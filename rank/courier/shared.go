package courier

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/kernels"
)

// sharedCourier is for ranks of one node whose devices reach each other's memory
// (CUDA IPC): the sender tells where the message lies in its arena, the receiver copies
// it from there and says so. The bytes never pass through host memory.
type sharedCourier struct {
	transport collectives.Transport
	dev       kernels.Sharer
	own       kernels.Buffer         // this rank's arena
	peers     map[int]kernels.Buffer // arenas of those on this node, by world rank
}

func (c *sharedCourier) Name() string { return "ipc" }

func (c *sharedCourier) Close() error {
	for _, b := range c.peers {
		c.dev.Release(b)
	}
	c.peers = nil
	return nil
}

// The receiver's answer has the message's tag in the other direction, where no
// message has it: tags name what is sent, which goes one way.
func (c *sharedCourier) Recv(ctx context.Context, from, tag int, to kernels.Buffer) (Parcel, error) {
	unused := c.dev.Mark()
	where := make([]byte, 8)
	req := c.transport.Irecv(from, tag, where)
	return track(ctx, c.dev, func(ctx context.Context) (kernels.Mark, func(), error) {
		defer c.dev.Drop(unused)
		if err := req.Wait(ctx); err != nil {
			return 0, nil, err
		}
		offset := int64(binary.LittleEndian.Uint64(where))
		arena, dst := c.peers[from], to.As(kernels.U8)
		if offset < 0 || offset+dst.Len > arena.Len {
			return 0, nil, fmt.Errorf("rank %d sent from byte %d of an arena of %d", from, offset, arena.Len)
		}
		at := c.dev.Move(dst, arena.Slice(offset, dst.Len), unused)
		err := c.dev.Await(at)
		if err == nil {
			err = c.transport.Isend(from, tag, nil).Wait(ctx)
		}
		return at, nil, err
	}), nil
}

func (c *sharedCourier) Send(ctx context.Context, to, tag int, b kernels.Buffer) (Parcel, error) {
	computed := c.dev.Mark()
	taken := c.transport.Irecv(to, tag, nil)
	return track(ctx, c.dev, func(ctx context.Context) (kernels.Mark, func(), error) {
		defer c.dev.Drop(computed)
		if err := c.dev.Await(computed); err != nil {
			return 0, nil, err
		}
		where := binary.LittleEndian.AppendUint64(nil, uint64(b.Addr-c.own.Addr))
		err := c.transport.Isend(to, tag, where).Wait(ctx)
		if err == nil {
			err = taken.Wait(ctx)
		}
		return 0, nil, err
	}), nil
}

// share exchanges the arenas' handles with the ranks of this node among peers, and
// copies a word from each to prove that it works: an import that is not refused may still
// not be readable. Every rank of the world calls it with the ranks that it exchanges
// messages with; a pair goes this way where both ends can. why has the others, by rank.
func share(ctx context.Context, t collectives.Transport, dev kernels.Sharer, arena kernels.Buffer, peers []int, host string) (c *sharedCourier, why map[int]string, err error) {
	c = &sharedCourier{transport: t, dev: dev, own: arena, peers: map[int]kernels.Buffer{}}
	theirs, err := swap(ctx, t, peers, offerOf(dev, arena, host, t.Rank()))
	if err != nil {
		return nil, nil, err
	}
	why = map[int]string{}
	for _, p := range peers {
		if err := c.admit(p, theirs[p], host); err != nil {
			why[p] = err.Error()
		}
	}
	if err := agree(ctx, t, peers, why); err != nil {
		return nil, nil, err
	}
	for p := range why {
		if b, ok := c.peers[p]; ok {
			dev.Release(b)
			delete(c.peers, p)
		}
	}
	return c, why, nil
}

// An offer is the host's name, the arena's size, a word that its first bytes hold during
// the exchange, and the handle; all of fixed length.
const (
	offerHost   = 256
	offerHandle = 128
	offerBytes  = offerHost + 8 + 8 + 1 + offerHandle
)

func offerOf(dev kernels.Sharer, arena kernels.Buffer, host string, rank int) []byte {
	b := make([]byte, offerBytes)
	copy(b[:offerHost], host)
	binary.LittleEndian.PutUint64(b[offerHost:], uint64(arena.Len))
	word := b[offerHost+8:][:8]
	binary.LittleEndian.PutUint64(word, proofWord(rank))
	if d, ok := dev.(kernels.Device); ok {
		d.CopyIn(arena.Slice(0, 8), word)
		if d.Sync() != nil {
			return b
		}
	}
	handle, err := dev.Export(arena)
	if err == nil && len(handle) <= offerHandle {
		b[offerHost+16] = byte(len(handle))
		copy(b[offerHost+17:], handle)
	}
	return b
}

func proofWord(rank int) uint64 { return 0x70697065_00000000 | uint64(uint32(rank)) }

// admit imports the arena of a rank of this node and reads the word in it.
func (c *sharedCourier) admit(rank int, offer []byte, host string) error {
	theirs := string(offer[:offerHost])
	for i, r := range theirs {
		if r == 0 {
			theirs = theirs[:i]
			break
		}
	}
	if theirs != host {
		return fmt.Errorf("is on host %s", theirs)
	}
	n := int(offer[offerHost+16])
	if n == 0 {
		return fmt.Errorf("its device shares no memory")
	}
	b, err := c.dev.Import(offer[offerHost+17:][:n], int64(binary.LittleEndian.Uint64(offer[offerHost:])))
	if err != nil {
		return err
	}
	c.peers[rank] = b
	word, err := c.dev.HostAlloc(8)
	if err != nil {
		return err
	}
	defer c.dev.FreeHost(word)
	at := c.dev.Download(word, b.Slice(0, 8), 0)
	err = c.dev.Await(at)
	c.dev.Drop(at)
	if err == nil && binary.LittleEndian.Uint64(word) != binary.LittleEndian.Uint64(offer[offerHost+8:]) {
		err = fmt.Errorf("its memory reads back wrong")
	}
	return err
}
