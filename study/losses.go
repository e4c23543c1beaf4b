package study

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/schedule"
)

// looseLoss is how far the last loss of a case may lie from its group's where sums are taken in another
// order, as a share.
const looseLoss = 1e-5

// lossChecks hold runs against each other that have to compute the same: repeats of a case, bit for bit,
// and on the CPU the synchronous cases of one model, data and size of micro-batch.
type lossChecks struct {
	of map[string]Point // first finished point of each case and binary
	// group has the first point of each group whose sums have the plain order.
	group map[string]Point
}

func newLossChecks() *lossChecks {
	return &lossChecks{of: map[string]Point{}, group: map[string]Point{}}
}

// know remembers a point of an earlier call; its group is learnt with the first check.
func (l *lossChecks) know(p Point) {
	if _, ok := l.of[p.Case+p.Binary]; !ok && p.LossHash != "" {
		l.of[p.Case+p.Binary] = p
	}
}

// check returns what is wrong with a point's loss, empty where nothing is or can be told.
func (l *lossChecks) check(t task, p *Point) string {
	if p.LossHash == "" || !strings.HasPrefix(p.Device, "cpu") {
		return ""
	}
	if first, ok := l.of[t.c.ID+t.binary]; ok && first.LossHash != p.LossHash {
		return fmt.Sprintf("other bits than in round %d: %s, then %s", first.Round, first.LossLast.Text(), p.LossLast.Text())
	}
	l.know(*p)
	group, exact := lossGroup(t.c.Spec)
	if group == "" {
		return ""
	}
	group += t.binary
	first, ok := l.group[group]
	switch {
	case !ok && exact:
		l.group[group] = *p
	case !ok:
	case exact && first.LossHash != p.LossHash:
		return fmt.Sprintf("other bits than of case %q: %s, here %s", first.Label, first.LossLast.Text(), p.LossLast.Text())
	case math.Abs(float64(p.LossLast-first.LossLast)) > looseLoss*math.Abs(float64(first.LossLast)):
		return fmt.Sprintf("farther than %g from that of case %q: %s, here %s", looseLoss, first.Label, first.LossLast.Text(), p.LossLast.Text())
	}
	return ""
}

// lossGroup names the cases that compute the same loss as this one; empty of asynchronous ones. exact:
// gradients are summed in the plain order, so that bits agree.
func lossGroup(s *jobs.Spec) (group string, exact bool) {
	info, known := schedule.Lookup(s.Schedule.Kind)
	if !known || info.Async {
		return "", false
	}
	p2 := schedule.Placement(s.Schedule.BackwardP2)
	joined := s.Schedule.Concat != 1 && p2 != schedule.PlaceFused && p2 != schedule.PlaceNative
	exact = !joined && !slices.Contains([]string{"looped-bfs", "chimera"}, s.Schedule.Kind)
	h := sha256.New()
	for _, line := range jobLines(string(s.Resolved())) {
		table, _, _ := strings.Cut(line, ".")
		if slices.Contains([]string{"schedule", "device", "transport", "checkpoint", "run", "slurm"}, table) ||
			strings.HasPrefix(line, "name = ") || strings.HasPrefix(line, "parallel.stages = ") {
			continue
		}
		fmt.Fprintln(h, line)
	}
	fmt.Fprintln(h, s.MicrobatchSize())
	return hex.EncodeToString(h.Sum(nil)[:8]), exact
}
