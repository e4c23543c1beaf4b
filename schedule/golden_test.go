package schedule

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files under testdata")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; rewrite it with: go test ./schedule -run Golden -update\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

// Programs and drawings of every kind, as files to look at.
func TestGoldenSchedules(t *testing.T) {
	for _, info := range Kinds() {
		t.Run(info.Name, func(t *testing.T) {
			var b bytes.Buffer
			policies := []Policy{{}, {Placement: PlaceLagged}, {Placement: PlaceCooldown}, {Placement: PlaceEnd, Concat: 4}}
			if info.Async {
				policies = policies[:1]
			}
			for i, policy := range policies {
				s := build(t, info.Name, 4, 8, 0, policy)
				fmt.Fprintf(&b, "# %s: 4 ranks, 8 micro-batches, backward-p2 %s; live micro-batches by rank %d\n\n",
					info.Name, policy, live(s))
				if i == 0 {
					b.WriteString(Format(s) + "\n")
				}
				if err := DrawGrid(&b, s); err != nil {
					t.Fatal(err)
				}
				b.WriteByte('\n')
				if err := Draw(&b, simulate(t, s, Units()), DrawOptions{Width: 120}); err != nil {
					t.Fatal(err)
				}
				b.WriteByte('\n')
			}
			golden(t, info.Name+".golden", b.Bytes())
		})
	}
}

func live(s *Schedule) []int {
	var list []int
	for _, p := range PeakMicrobatches(s) {
		list = append(list, p.Live)
	}
	return list
}

func TestGoldenLowered(t *testing.T) {
	s, err := Lower(build(t, "1f1b", 3, 4, 0, Policy{Placement: PlaceCooldown}))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "lowered.golden", []byte(Format(s)))
}

func TestGoldenColors(t *testing.T) {
	var b bytes.Buffer
	timeline := simulate(t, build(t, "1f1b", 2, 3, 0, Policy{Placement: PlaceEnd}), Uniform(1, 1.5, 0.5))
	if err := Draw(&b, timeline, DrawOptions{Width: 60, Color: true}); err != nil {
		t.Fatal(err)
	}
	golden(t, "colors.golden", b.Bytes())
}
