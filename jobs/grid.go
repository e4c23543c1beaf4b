package jobs

import "fmt"

// Grid places the ranks of the world: which replica, stage rank and tensor rank
// each one is. Tensor ranks are nearest to each other, then the ranks of a
// pipeline, then replicas:
//
//	rank = (replica × Stages + stage rank) × Tensor + tensor rank
//
// Launchers fill a host before they go to the next, so near ranks share a host
// and its fast links. Tensor ranks talk in every layer, neighbouring stage
// ranks once a micro-batch, replicas once a step: the more often, the nearer.
type Grid struct {
	Stages, Replicas, Tensor int // Stages: pipeline ranks of a replica, each with one or more stages
}

// Coord is a rank's place in a Grid.
type Coord struct {
	Replica, Stage, Tensor int // Stage: the rank within its pipeline
}

// String prints the place as log lines have it: "replica 0 stage rank 2".
func (c Coord) String() string {
	s := fmt.Sprintf("replica %d stage rank %d", c.Replica, c.Stage)
	if c.Tensor > 0 {
		s += fmt.Sprintf(" tensor rank %d", c.Tensor)
	}
	return s
}

// Grid returns the grid of the job's ranks.
func (s *Spec) Grid() Grid {
	return Grid{Stages: s.Parallel.Stages, Replicas: s.Parallel.Replicas, Tensor: s.Parallel.Tensor}
}

// World returns the number of ranks.
func (g Grid) World() int { return g.Stages * g.Replicas * g.Tensor }

// Coord returns the place of a world rank. It panics when there is no such rank.
func (g Grid) Coord(rank int) Coord {
	if rank < 0 || rank >= g.World() {
		panic(fmt.Sprintf("jobs: rank %d of a world of %d", rank, g.World()))
	}
	return Coord{
		Replica: rank / g.Tensor / g.Stages,
		Stage:   rank / g.Tensor % g.Stages,
		Tensor:  rank % g.Tensor,
	}
}

// Rank returns the world rank at a place, the inverse of Coord. It panics when
// the place is outside the grid.
func (g Grid) Rank(c Coord) int {
	if c.Replica < 0 || c.Replica >= g.Replicas || c.Stage < 0 || c.Stage >= g.Stages || c.Tensor < 0 || c.Tensor >= g.Tensor {
		panic(fmt.Sprintf("jobs: %v in a grid of %d replicas × %d stages × %d tensor ranks", c, g.Replicas, g.Stages, g.Tensor))
	}
	return (c.Replica*g.Stages+c.Stage)*g.Tensor + c.Tensor
}

// Pipeline returns the world ranks of the pipeline that a place belongs to, by
// stage rank: those that exchange activations and their gradients.
func (g Grid) Pipeline(c Coord) []int {
	ranks := make([]int, g.Stages)
	for i := range ranks {
		ranks[i] = g.Rank(Coord{c.Replica, i, c.Tensor})
	}
	return ranks
}

// Peers returns the world ranks with the same part of the model as a place, replica by replica:
// those whose gradients are added. Where several ranks of a pipeline hold a part, they are named.
func (g Grid) Peers(c Coord, pipelineRanks ...int) []int {
	if len(pipelineRanks) == 0 {
		pipelineRanks = []int{c.Stage}
	}
	var ranks []int
	for i := range g.Replicas {
		for _, p := range pipelineRanks {
			ranks = append(ranks, g.Rank(Coord{i, p, c.Tensor}))
		}
	}
	return ranks
}

// TensorGroup returns the world ranks that share a place's stages, by tensor rank.
func (g Grid) TensorGroup(c Coord) []int {
	ranks := make([]int, g.Tensor)
	for i := range ranks {
		ranks[i] = g.Rank(Coord{c.Replica, c.Stage, i})
	}
	return ranks
}
