package costs

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/schedule"
)

// Units are op times in any unit, equal for all ranks: what --cost gives.
type Units struct {
	F, I, W  float64
	B        float64 // the fused backward; negative: I + W
	More     float64 // of each further micro-batch that a W joins; negative: W
	Transfer float64 // of a tensor between two ranks
	Reduce   float64 // of a stage's gradients over the replicas
	Update   float64 // the optimizer's step of a rank
}

// DefaultUnits are F = I = W = 1 and nothing else.
func DefaultUnits() Units { return Units{F: 1, I: 1, W: 1, B: -1, More: -1} }

func (u *Units) fields() map[string]*float64 {
	return map[string]*float64{"F": &u.F, "I": &u.I, "W": &u.W, "B": &u.B, "more": &u.More,
		"transfer": &u.Transfer, "reduce": &u.Reduce, "update": &u.Update}
}

// ParseUnits reads "F=1,I=1,W=1,transfer=0". What is not given is as in
// DefaultUnits. The error says which part is wrong and what is known.
func ParseUnits(text string) (Units, error) {
	u := DefaultUnits()
	fields := u.fields()
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return u, fmt.Errorf("--cost: %q is not NAME=NUMBER; e.g. F=1,I=1,W=1,transfer=0", part)
		}
		at := fields[name]
		if at == nil {
			var names []string
			for n := range fields {
				names = append(names, n)
			}
			sort.Strings(names)
			return u, fmt.Errorf("--cost: no cost is called %q; known: %s", name, strings.Join(names, ", "))
		}
		if seen[name] {
			return u, fmt.Errorf("--cost: %s is given twice", name)
		}
		seen[name] = true
		x, err := strconv.ParseFloat(value, 64)
		if err != nil || !(x >= 0) || x > 1e15 || math.IsInf(x, 0) {
			return u, fmt.Errorf("--cost: %s=%s: want a number from 0 to 1e15", name, value)
		}
		*at = x
	}
	if u.F+u.I+u.W+max(0, u.B) == 0 {
		return u, fmt.Errorf("--cost: all op times are 0; at least one of F, I, W must be above")
	}
	return u, nil
}

// PerOp returns the costs where every op of a stage takes these times.
func (u Units) PerOp() schedule.StageCosts { return u.share(1) }

// share returns the costs where the times are of a rank's whole share of the
// model, which `chunks` stages divide evenly; so schedules of different chunks compare.
func (u Units) share(chunks int) schedule.StageCosts {
	v := float64(chunks)
	c := schedule.Uniform(u.F/v, u.I/v, u.W/v)
	if u.B >= 0 {
		c.B = []float64{u.B / v}
	}
	if u.More >= 0 {
		c.WExtra = []float64{u.More / v}
	}
	c.SendF, c.SendB = []float64{u.Transfer}, []float64{u.Transfer}
	c.Reduce, c.Update = []float64{u.Reduce / v}, []float64{u.Update / v}
	return c
}

// String implements Source.
func (u Units) String() string {
	s := fmt.Sprintf("units: F %g, I %g, W %g of a rank's share of the model", u.F, u.I, u.W)
	if u.B >= 0 {
		s += fmt.Sprintf(", B %g", u.B)
	}
	if u.More >= 0 {
		s += fmt.Sprintf(", each further micro-batch of a joined W %g", u.More)
	}
	return s + fmt.Sprintf("; transfer %g, reduce %g, update %g", u.Transfer, u.Reduce, u.Update)
}

// Unit implements Source.
func (u Units) Unit() string { return "units" }

// Fits implements Source.
func (u Units) Fits(*jobs.Spec) error { return nil }

// Of implements Source.
func (u Units) Of(w Work) Costs { return unitCosts{u.share(w.Chunks)} }

// unitCosts are Units for stages of one size.
type unitCosts struct{ schedule.StageCosts }

// StageUpdate implements Costs.
func (c unitCosts) StageUpdate(int) float64 { return c.Update[0] }
