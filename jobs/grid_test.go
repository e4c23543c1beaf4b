package jobs

import (
	"slices"
	"testing"
)

func TestGrid(t *testing.T) {
	for _, g := range []Grid{{1, 1, 1}, {4, 1, 1}, {1, 4, 1}, {4, 2, 1}, {3, 5, 2}, {2, 2, 4}} {
		seen := map[Coord]bool{}
		for rank := range g.World() {
			c := g.Coord(rank)
			if seen[c] || g.Rank(c) != rank {
				t.Fatalf("%+v: rank %d is at %v, whose rank is %d", g, rank, c, g.Rank(c))
			}
			seen[c] = true
			// A rank is in its own groups, at its own place.
			if g.Pipeline(c)[c.Stage] != rank || g.Peers(c)[c.Replica] != rank || g.TensorGroup(c)[c.Tensor] != rank {
				t.Fatalf("%+v: rank %d is not where it belongs: %v %v %v", g, rank, g.Pipeline(c), g.Peers(c), g.TensorGroup(c))
			}
			// All members of a group agree on it.
			for _, r := range g.Pipeline(c) {
				if !slices.Equal(g.Pipeline(g.Coord(r)), g.Pipeline(c)) {
					t.Fatalf("%+v: ranks %d and %d disagree on their pipeline", g, rank, r)
				}
			}
			for _, r := range g.Peers(c) {
				if !slices.Equal(g.Peers(g.Coord(r)), g.Peers(c)) {
					t.Fatalf("%+v: ranks %d and %d disagree on their peers", g, rank, r)
				}
			}
		}
		if len(seen) != g.Stages*g.Replicas*g.Tensor {
			t.Fatalf("%+v: %d places", g, len(seen))
		}
	}
}

// The order is a promise: hosts are filled in it.
func TestGridOrder(t *testing.T) {
	g := Grid{Stages: 3, Replicas: 2, Tensor: 1}
	if got := g.Pipeline(Coord{Replica: 1}); !slices.Equal(got, []int{3, 4, 5}) {
		t.Errorf("pipeline of replica 1: %v; neighbours must be next to each other", got)
	}
	if got := g.Peers(Coord{Stage: 2}); !slices.Equal(got, []int{2, 5}) {
		t.Errorf("peers of stage rank 2: %v", got)
	}
	if got := g.Peers(Coord{}, 2, 0); !slices.Equal(got, []int{2, 0, 5, 3}) {
		t.Errorf("peers of pipeline ranks 2 and 0: %v", got)
	}
	g.Tensor = 2
	if got := g.TensorGroup(Coord{Replica: 1, Stage: 1}); !slices.Equal(got, []int{8, 9}) {
		t.Errorf("tensor group: %v", got)
	}
	if s := g.Coord(9).String(); s != "replica 1 stage rank 1 tensor rank 1" {
		t.Error(s)
	}
}

func TestGridPanicsOutside(t *testing.T) {
	g := Grid{2, 2, 1}
	for name, f := range map[string]func(){
		"rank -1":        func() { g.Coord(-1) },
		"rank 4":         func() { g.Coord(4) },
		"stage rank 2":   func() { g.Rank(Coord{0, 2, 0}) },
		"replica -1":     func() { g.Rank(Coord{-1, 0, 0}) },
		"tensor rank 1":  func() { g.Rank(Coord{0, 0, 1}) },
		"pipeline of 2":  func() { g.Pipeline(Coord{Replica: 2}) },
		"peers of stage": func() { g.Peers(Coord{Stage: 2}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s passes", name)
				}
			}()
			f()
		}()
	}
}
