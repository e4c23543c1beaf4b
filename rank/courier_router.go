package rank

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/kernels"
)

// router sends each message by the courier that reaches its rank.
type router map[int]courier

func (r router) name() string {
	var names []string
	for _, p := range slices.Sorted(maps.Keys(r)) {
		if n := r[p].name(); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return strings.Join(names, " and ")
}

func (r router) recv(ctx context.Context, from, tag int, to kernels.Buffer) (parcel, error) {
	return r[from].recv(ctx, from, tag, to)
}

func (r router) send(ctx context.Context, to, tag int, b kernels.Buffer) (parcel, error) {
	return r[to].send(ctx, to, tag, b)
}

func (r router) close() error {
	var first error
	closed := map[courier]bool{}
	for _, c := range r {
		if closed[c] {
			continue
		}
		closed[c] = true
		if err := c.close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Tags of what ranks tell each other before the first step.
const (
	swapTag  = clockTag - 1
	agreeTag = clockTag - 2
	trialTag = clockTag - 3
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
