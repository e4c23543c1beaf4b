package courier

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/kernels"
)

// router sends each message by the courier that reaches its rank.
type router map[int]Courier

func (r router) Name() string {
	var names []string
	for _, p := range slices.Sorted(maps.Keys(r)) {
		if n := r[p].Name(); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return strings.Join(names, " and ")
}

func (r router) Recv(ctx context.Context, from, tag int, to kernels.Buffer) (Parcel, error) {
	return r[from].Recv(ctx, from, tag, to)
}

func (r router) Send(ctx context.Context, to, tag int, b kernels.Buffer) (Parcel, error) {
	return r[to].Send(ctx, to, tag, b)
}

func (r router) Close() error {
	var first error
	closed := map[Courier]bool{}
	for _, c := range r {
		if closed[c] {
			continue
		}
		closed[c] = true
		if err := c.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// add gives a courier the peers for which why has no objection, and returns the others; must
// makes an objection an error.
func (r router) add(c Courier, peers []int, why map[int]string, must bool) (left []int, err error) {
	for _, p := range peers {
		if why[p] == "" {
			r[p] = c
			continue
		}
		left = append(left, p)
		if must && err == nil {
			err = exitcode.With(exitcode.Environment, fmt.Errorf("device.transfer = %q does not reach rank %d: %s; \"auto\" takes another way there", c.Name(), p, why[p]))
		}
	}
	return left, err
}

// LastTag is the largest tag of a message. The three before it are of what ranks tell each other in Open.
const (
	LastTag  = 1<<23 - 1
	swapTag  = LastTag - 1
	agreeTag = LastTag - 2
	trialTag = LastTag - 3
)

// swap sends mine to each peer and returns theirs, of the same length. All of
// them call it with each other.
func swap(ctx context.Context, t collectives.Transport, peers []int, mine []byte) (map[int][]byte, error) {
	return exchange(ctx, t, peers, swapTag, func(int) []byte { return mine }, len(mine))
}

func exchange(ctx context.Context, t collectives.Transport, peers []int, tag int, mine func(peer int) []byte, length int) (map[int][]byte, error) {
	theirs := map[int][]byte{}
	var all []collectives.Request
	for _, p := range peers {
		theirs[p] = make([]byte, length)
		all = append(all, t.Irecv(p, tag, theirs[p]), t.Isend(p, tag, mine(p)))
	}
	for _, r := range all {
		if err := r.Wait(ctx); err != nil {
			return nil, err
		}
	}
	return theirs, nil
}

// agree tells each peer whether this rank can use a way with it, and adds to why those
// that cannot.
func agree(ctx context.Context, t collectives.Transport, peers []int, why map[int]string) error {
	theirs, err := exchange(ctx, t, peers, agreeTag, func(p int) []byte {
		if why[p] != "" {
			return []byte{0}
		}
		return []byte{1}
	}, 1)
	if err != nil {
		return err
	}
	for _, p := range peers {
		if theirs[p][0] == 0 && why[p] == "" {
			why[p] = "it cannot from its side"
		}
	}
	return nil
}
