package rank

import (
	"context"
	"encoding/binary"
	"math"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/rank/courier"
)

// now is CLOCK_MONOTONIC in nanoseconds: the same clock for all processes of a
// host, which Go's time.Time hides.
func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail for this clock
	return ts.Nano()
}

const (
	clockTag    = courier.LastTag
	clockRounds = 16
)

// clockOffset estimates what to add to this rank's clock to get rank 0's, by
// the exchange with the shortest round trip (Cristian's algorithm). Ranks are
// served one after another by rank 0.
func clockOffset(ctx context.Context, t collectives.Transport) (int64, error) {
	if t.Rank() == 0 {
		buf := make([]byte, 8)
		for r := 1; r < t.Size(); r++ {
			for range clockRounds {
				if err := t.Irecv(r, clockTag, buf).Wait(ctx); err != nil {
					return 0, err
				}
				binary.LittleEndian.PutUint64(buf, uint64(now()))
				if err := t.Isend(r, clockTag, buf).Wait(ctx); err != nil {
					return 0, err
				}
			}
		}
		return 0, nil
	}
	best, offset := int64(math.MaxInt64), int64(0)
	buf := make([]byte, 8)
	for range clockRounds {
		start := now()
		if err := t.Isend(0, clockTag, buf).Wait(ctx); err != nil {
			return 0, err
		}
		if err := t.Irecv(0, clockTag, buf).Wait(ctx); err != nil {
			return 0, err
		}
		end := now()
		if end-start < best {
			best = end - start
			offset = int64(binary.LittleEndian.Uint64(buf)) - (start+end)/2
		}
	}
	// Ranks of one host read the same clock: what is left is the error of the estimate.
	if best/2 >= abs(offset) {
		offset = 0
	}
	return offset, nil
}

func abs(n int64) int64 { return max(n, -n) }
