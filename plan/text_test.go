package plan

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"

	"github.com/pipetrain/pipetrain/costs"
	"github.com/pipetrain/pipetrain/schedule"
)

// What is 0 is printed as 0, and not as the rounding of the sums that it is a difference of.
func TestNoRoundingInText(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	tenths := func() float64 { return float64(1+r.IntN(20)) / 10 }
	dust := regexp.MustCompile(`\S*\de-1\d`)
	for range 40 {
		times := costs.DefaultUnits()
		times.F, times.I, times.W, times.Transfer, times.Update = tenths(), tenths(), tenths(), tenths()/10*float64(r.IntN(2)), tenths()
		for _, kind := range []string{"zb-v", "1f1b"} {
			p, err := Make(parse(t, "schedule.kind="+kind), Options{Source: times, Ops: ops(t), Alone: true})
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := p.WriteText(&b, schedule.DrawOptions{Width: 60}); err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(&b, p.Idle, p.IdleParts, p.Bubble, p.InnerBubble)
			if found := dust.FindString(b.String()); found != "" {
				t.Fatalf("%s, %v: %s", kind, times, found)
			}
		}
	}
}
