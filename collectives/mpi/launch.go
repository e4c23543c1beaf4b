package mpi

// Family says whose library fits a launcher.
type Family int

// Families.
const (
	AnyFamily Family = iota
	OpenMPI
	MPICH
)

func (f Family) String() string { return [...]string{"any MPI", "Open MPI", "MPICH"}[f] }

// Launch is what a launcher's variables say about this process. Rank and Size
// are -1 where unknown.
type Launch struct {
	Launcher   string // "" when there is none
	Family     Family
	Rank, Size int
	LocalRank  int // among the ranks of this node; -1: unknown
	LocalSize  int
	Prefix     string // of an MPI installation the launcher named; may be ""
}

func nonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
