package schedule

import (
	"os"
	"testing"
)

func TestX(t *testing.T) {
	for _, w := range []int{80, 120} {
		s := build(t, "1f1b", 4, 8, 0, Policy{Placement: PlaceCooldown})
		Draw(os.Stdout, simulate(t, s, Units()), DrawOptions{Width: w})
	}
	DrawGrid(os.Stdout, build(t, "1f1b", 4, 8, 0, Policy{}))
	DrawGrid(os.Stdout, build(t, "1f1b", 4, 8, 0, Policy{Placement: PlaceCooldown}))
	s := build(t, "1f1b", 4, 8, 0, Policy{})
	s.Programs[1][5], s.Programs[1][4] = s.Programs[1][4], s.Programs[1][5]
	s.Programs[2][0], s.Programs[2][9] = s.Programs[2][9], s.Programs[2][0]
	t.Log(Check(s))
}
