package mpi

import (
	"strconv"
	"strings"
)

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

// Detect reads the variables of MPI launchers through get (os.Getenv), the
// launcher's own first: Slurm's can be stale under mpirun inside an allocation,
// and in a batch script they are there without the process being a rank.
func Detect(get func(string) string) Launch {
	num := func(names ...string) int {
		for _, n := range names {
			if v, err := strconv.Atoi(strings.TrimSpace(get(n))); err == nil && v >= 0 {
				return v
			}
		}
		return -1
	}
	l := Launch{Rank: -1, Size: -1, LocalRank: -1, LocalSize: -1}
	switch {
	case get("OMPI_COMM_WORLD_SIZE") != "":
		l.Launcher, l.Family = "Open MPI's mpirun", OpenMPI
		l.Rank, l.Size = num("OMPI_COMM_WORLD_RANK"), num("OMPI_COMM_WORLD_SIZE")
		l.LocalRank, l.LocalSize = num("OMPI_COMM_WORLD_LOCAL_RANK"), num("OMPI_COMM_WORLD_LOCAL_SIZE")
		l.Prefix = get("OPAL_PREFIX")
	case get("PALS_RANKID") != "":
		l.Launcher, l.Family = "Cray PALS", MPICH
		l.Rank, l.Size = num("PALS_RANKID"), num("PMI_SIZE", "PALS_SIZE")
		l.LocalRank, l.LocalSize = num("PALS_LOCAL_RANKID"), num("PALS_LOCAL_SIZE")
	case get("PMI_RANK") != "" && get("SLURM_STEP_ID") == "":
		l.Launcher, l.Family = "Hydra's mpiexec (MPICH, Intel MPI)", MPICH
		l.Rank, l.Size = num("PMI_RANK"), num("PMI_SIZE")
		l.LocalRank, l.LocalSize = num("MPI_LOCALRANKID"), num("MPI_LOCALNRANKS")
	case get("SLURM_STEP_ID") != "" && get("SLURM_PROCID") != "":
		l.Launcher = "srun"
		l.Rank, l.Size = num("SLURM_PROCID"), num("SLURM_STEP_NUM_TASKS")
		l.LocalRank = num("SLURM_LOCALID")
		switch {
		case get("PMIX_RANK") != "" || get("PMIX_SERVER_URI2") != "" || strings.HasPrefix(get("SLURM_MPI_TYPE"), "pmix"):
			l.Launcher, l.Family = "srun --mpi=pmix", OpenMPI
		case get("PMI_FD") != "" || get("PMI_RANK") != "" || get("SLURM_MPI_TYPE") == "pmi2" || get("SLURM_MPI_TYPE") == "cray_shasta":
			l.Launcher, l.Family = "srun --mpi="+nonEmpty(get("SLURM_MPI_TYPE"), "pmi2"), MPICH
		}
	case get("FLUX_TASK_RANK") != "":
		l.Launcher = "flux run"
		l.Rank, l.Size, l.LocalRank = num("FLUX_TASK_RANK"), num("FLUX_JOB_SIZE"), num("FLUX_TASK_LOCAL_ID")
	}
	return l
}

func nonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
