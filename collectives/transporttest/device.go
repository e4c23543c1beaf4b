package transporttest

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/collectives"
)

// deviceMemory passes memory by address round a ring, on transports that can: many
// messages of many lengths in flight beside ordinary ones of the same tags. Memory of
// the processor stands for that of a device; the way through the transport is the same.
func deviceMemory(ctx context.Context, e *Env) error {
	t, ok := e.Transport.(collectives.DeviceMemory)
	if !ok {
		return nil
	}
	if _, why := t.DeviceAware(); why == "" {
		return errors.New("DeviceAware gives no reason")
	}
	me, n := e.Rank(), e.Size()
	next, prev := (me+1)%n, (me-1+n)%n
	lens := []int{0, 1, 100, 2047, 2048, 2049, 64 << 10, 1<<20 + 3}
	mem, err := unix.Mmap(-1, 0, 4<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	defer unix.Munmap(mem)
	addr := func(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
	var out, in [][]byte
	rest := mem
	for i, length := range lens {
		var a, b []byte
		a, b, rest = rest[:length], rest[length:2*length], rest[2*length:]
		fill(a, uint64(me*1000+i))
		out, in = append(out, a), append(in, b)
	}
	var reqs []collectives.Request
	host, got := make([]byte, 3000), make([]byte, 3000)
	fill(host, uint64(me))
	for i := range lens {
		reqs = append(reqs, t.RecvDevice(prev, i, addr(in[i]), int64(len(in[i]))))
	}
	reqs = append(reqs, t.Irecv(prev, 3, got), t.Isend(next, 3, host))
	for i := len(lens) - 1; i >= 0; i-- {
		reqs = append(reqs, t.SendDevice(next, i, addr(out[i]), int64(len(out[i]))))
	}
	for _, r := range reqs {
		if err := r.Wait(ctx); err != nil {
			return err
		}
	}
	for i := range lens {
		if err := verify(in[i], uint64(prev*1000+i)); err != nil {
			return fmt.Errorf("device message of %d bytes: %w", lens[i], err)
		}
	}
	if err := verify(got, uint64(prev)); err != nil {
		return fmt.Errorf("an ordinary message between: %w", err)
	}
	// A message of another length is told.
	long, short := out[6], in[6]
	r := t.RecvDevice(prev, 1, addr(short), int64(len(short)))
	if err := t.SendDevice(next, 1, addr(long), int64(len(long)-5)).Wait(ctx); err != nil {
		return err
	}
	var wrong *collectives.LengthError
	if err := r.Wait(ctx); !errors.As(err, &wrong) || wrong.Got != len(long)-5 {
		return fmt.Errorf("a message 5 bytes too short gave %v", err)
	}
	return nil
}
