package schedule

import (
	"fmt"
	"strings"
)

// Config is what a builder needs to know.
type Config struct {
	Ranks        int
	Microbatches int
	Chunks       int // stages a rank; 0: the kind's default
}

// Limits of Config: above them a schedule would not fit in memory.
const (
	MaxRanks        = 1 << 16
	MaxMicrobatches = 1 << 20
	MaxChunks       = 1 << 8
)

// Info describes a kind of schedule.
type Info struct {
	Name    string
	Summary string
	Source  string // the paper or program that defines it
	// Chunks says whether the kind takes a number of chunks a rank;
	// DefaultChunks is what 0 means, and the only number allowed where Chunks is false.
	Chunks        bool
	DefaultChunks int
	// Split says that the kind places I and W itself: Build returns it with them,
	// and TwoBP with PlaceNative leaves them there.
	Split bool
	// Async says that weights change within a step (see Schedule.Async).
	Async bool
	// Bidirectional says that stages have two ranks each, one for each direction.
	Bidirectional bool
	// Descending says that a stage's weight gradients are added from the last
	// micro-batch to the first; else from the first to the last.
	Descending bool
	// Rule says in words what ranks, micro-batches and chunks must fulfil.
	Rule string
	// MinMicrobatches returns the smallest number of micro-batches for these
	// ranks and chunks.
	MinMicrobatches func(ranks, chunks int) int
}

// builder is a kind of schedule: its description, what it demands beyond
// positive numbers, and the function that emits the compute ops.
type builder struct {
	Info
	valid func(Config) string // a reason, or ""
	build func(Config) *Schedule
}

// builders lists every kind, in the order shown to users.
var builders = []builder{
	naive,
	gpipe,
	oneFOneB,
	interleaved,
	loopedBFS,
	zbH1,
	zbH2,
	interleavedZB,
	zbV,
	vHalf,
	vMin,
	dualPipeV,
	hanayo,
	chimera,
	pipeDream,
	pipeDream2BW,
}

// Kinds describes every kind that Build knows.
func Kinds() []Info {
	infos := make([]Info, len(builders))
	for i, b := range builders {
		infos[i] = b.Info
		if b.MinMicrobatches == nil {
			infos[i].MinMicrobatches = func(int, int) int { return 1 }
		}
	}
	return infos
}

// Lookup returns the description of a kind.
func Lookup(kind string) (Info, bool) {
	for _, info := range Kinds() {
		if info.Name == kind {
			return info, true
		}
	}
	return Info{}, false
}

// Names returns the kinds' names, in Kinds' order.
func Names() []string {
	names := make([]string, len(builders))
	for i, b := range builders {
		names[i] = b.Name
	}
	return names
}

// Build makes the schedule of a kind: compute ops only, with fused B (the Split
// kinds with their own I and W). The error says which number is wrong and what is allowed.
func Build(kind string, c Config) (*Schedule, error) {
	for _, b := range builders {
		if b.Name != kind {
			continue
		}
		if why := b.check(&c); why != "" {
			return nil, fmt.Errorf("schedule %s: %s", kind, why)
		}
		s := b.build(c)
		s.Name = kind
		return s, nil
	}
	return nil, fmt.Errorf("no schedule is called %q; known: %s", kind, strings.Join(Names(), ", "))
}

// check fills in c.Chunks and returns why c is impossible, or "".
func (b *builder) check(c *Config) string {
	if c.Chunks == 0 {
		c.Chunks = b.DefaultChunks
	}
	switch {
	case c.Ranks < 1 || c.Ranks > MaxRanks:
		return fmt.Sprintf("ranks must be 1 to %d, not %d", MaxRanks, c.Ranks)
	case c.Microbatches < 1 || c.Microbatches > MaxMicrobatches:
		return fmt.Sprintf("micro-batches must be 1 to %d, not %d", MaxMicrobatches, c.Microbatches)
	case !b.Chunks && c.Chunks != b.DefaultChunks:
		return fmt.Sprintf("chunks must be %d, not %d", b.DefaultChunks, c.Chunks)
	case c.Chunks < 1 || c.Chunks > MaxChunks:
		return fmt.Sprintf("chunks must be 1 to %d, not %d", MaxChunks, c.Chunks)
	}
	if b.MinMicrobatches != nil {
		if least := b.MinMicrobatches(c.Ranks, c.Chunks); c.Microbatches < least {
			return fmt.Sprintf("%d ranks need at least %d micro-batches, not %d", c.Ranks, least, c.Microbatches)
		}
	}
	if b.valid != nil {
		return b.valid(*c)
	}
	return ""
}

// newSchedule returns a schedule without ops: c.Ranks × c.Chunks stages, dealt
// round the ranks (stage s on rank s mod Ranks).
func newSchedule(c Config) *Schedule {
	s := &Schedule{Ranks: c.Ranks, Stages: c.Ranks * c.Chunks, Microbatches: c.Microbatches}
	place := make([]int, s.Stages)
	for i := range place {
		place[i] = i % c.Ranks
	}
	s.Place = [][]int{place}
	s.Programs = make([][]Op, c.Ranks)
	return s
}

// placeV lays the stages of s in a V, or a wave of several: rank 0 to the last and back.
func (s *Schedule) placeV() {
	for i := range s.Place[0] {
		r := i % (2 * s.Ranks)
		s.Place[0][i] = min(r, 2*s.Ranks-1-r)
	}
}

// placeBothWays adds a second direction, from the last rank to the first, for the
// second half of the micro-batches.
func (s *Schedule) placeBothWays() {
	up := make([]int, s.Stages)
	for stage := range up {
		up[stage] = s.Place[0][s.Stages-1-stage]
	}
	s.Place = append(s.Place, up)
	s.Direction = make([]uint8, s.Microbatches)
	for k := (s.Microbatches + 1) / 2; k < s.Microbatches; k++ {
		s.Direction[k] = 1
	}
}

// op returns the op of one micro-batch.
func op(stage int, k Kind, microbatch int) Op {
	return Op{Stage: stage, Kind: k, First: microbatch, Last: microbatch}
}
