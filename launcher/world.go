// Package launcher starts a world of ranks and owns it: it
// finds out whether this process already is a rank of somebody's world
// (Detect), starts the ranks itself where it is not (Run), relays their output
// and signals, ends the whole world when one rank fails, and decides the exit
// code. It also holds a rank's side of that contract (Child).
//
// Launcher and ranks share arguments, environment, two inherited descriptors
// and exit codes, nothing else: the same binary is started again as a rank.
package launcher

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind names who started this process.
type Kind string

// The launchers that Detect knows.
const (
	Alone    Kind = "alone"    // nobody: this process may start a world itself
	Local    Kind = "local"    // Run, the embedded launcher
	OpenMPI  Kind = "openmpi"  // Open MPI's mpirun
	Hydra    Kind = "hydra"    // mpiexec of MPICH or Intel MPI
	PALS     Kind = "pals"     // Cray's aprun/mpiexec
	Flux     Kind = "flux"     // flux run
	Torchrun Kind = "torchrun" // torchrun, or whoever sets the same variables
	Srun     Kind = "srun"     // Slurm's srun, whatever --mpi it was given
)

// Unknown is World.LocalRank, LocalSize where the launcher did not say.
const Unknown = -1

// World is this process's place as the environment tells it: enough to choose
// a GPU and a log file before the MPI library is initialised; after that MPI's
// own answer is the one to believe.
type World struct {
	Launcher  Kind
	Rank      int
	Size      int
	LocalRank int    // rank among those of this host, or Unknown
	LocalSize int    // ranks on this host, or Unknown
	Node      string // the launcher's name or number of this host, may be empty
	PMI       string // the wire-up an MPI library must speak here: "pmix", "pmi1", "pmi2", or empty

	// Notes say what was seen and not believed, for `doctor` and the log.
	Notes []string
	// Problem is not empty where a launcher's variables contradict each other;
	// going on alone would then start one world a rank.
	Problem string
}

// IsRank says whether this process is a rank of a world that somebody started.
func (w World) IsRank() bool { return w.Launcher != Alone }

// Doubt names the variables that make this process a rank where they are names that anybody may have
// set, " (RANK=0 and …)"; empty where only a launcher sets them.
func (w World) Doubt() string {
	if w.Launcher != Torchrun {
		return ""
	}
	return fmt.Sprintf(" (RANK=%d and WORLD_SIZE=%d in the environment say so: unset them and LOCAL_RANK to run alone)", w.Rank, w.Size)
}

func (w World) String() string {
	if !w.IsRank() {
		return "alone"
	}
	s := fmt.Sprintf("rank %d of %d under %s", w.Rank, w.Size, w.Launcher)
	if w.LocalRank != Unknown {
		s += fmt.Sprintf(", local rank %d", w.LocalRank)
	}
	return s
}

// A convention is how one launcher tells a rank its place.
type convention struct {
	kind                             Kind
	rank, size, localRank, localSize string // names of variables; the first two are required
	node                             string
	also                             string // a variable that must be there too, where rank and size are common names
	pmi                              string
}

// conventions in the order in which they are believed. Those that are set on a
// process by the innermost launcher come first: mpirun inside a Slurm
// allocation leaves stale SLURM_* in place, so Slurm is last and has a
// function of its own.
var conventions = []convention{
	{kind: Local, rank: EnvRank, size: EnvSize, localRank: EnvLocalRank, localSize: EnvLocalSize, also: EnvStateFD},
	{kind: OpenMPI, rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE", localRank: "OMPI_COMM_WORLD_LOCAL_RANK",
		localSize: "OMPI_COMM_WORLD_LOCAL_SIZE", node: "PMIX_HOSTNAME", pmi: "pmix"},
	// PALS sets PMI_RANK too, so it is asked before Hydra.
	{kind: PALS, rank: "PALS_RANKID", size: "PMI_SIZE", localRank: "PALS_LOCAL_RANKID", localSize: "PALS_LOCAL_SIZE",
		node: "PALS_NODEID", pmi: "pmi2"},
	// srun --mpi=pmi2 sets PMI_RANK and PMI_SIZE as well; Hydra alone sets MPI_LOCALRANKID.
	{kind: Hydra, rank: "PMI_RANK", size: "PMI_SIZE", localRank: "MPI_LOCALRANKID", localSize: "MPI_LOCALNRANKS",
		also: "MPI_LOCALRANKID", pmi: "pmi1"},
	{kind: Flux, rank: "FLUX_TASK_RANK", size: "FLUX_JOB_SIZE", localRank: "FLUX_TASK_LOCAL_ID", pmi: "pmi1"},
	{kind: Torchrun, rank: "RANK", size: "WORLD_SIZE", localRank: "LOCAL_RANK", localSize: "LOCAL_WORLD_SIZE",
		node: "GROUP_RANK", also: "LOCAL_RANK"},
}

// Detect reads from the environment ("KEY=value" strings, as os.Environ gives
// them) which rank of which world this process is. Without a launcher's
// variables the process is Alone, rank 0 of 1.
func Detect(env []string) World {
	vars := environment(env)
	var notes []string
	for _, c := range conventions {
		w, seen := c.read(vars)
		if !seen {
			continue
		}
		w.Notes = append(notes, w.Notes...)
		if w.Launcher != Local {
			if id := vars["SLURM_JOB_ID"]; id != "" {
				w.Notes = append(w.Notes, fmt.Sprintf("inside Slurm job %s; its SLURM_PROCID=%q is not this rank", id, vars["SLURM_PROCID"]))
			}
		}
		return w
	}
	w, notes := detectSrun(vars)
	w.Notes = notes
	return w
}

func alone() World {
	return World{Launcher: Alone, Rank: 0, Size: 1, LocalRank: 0, LocalSize: 1}
}

// read returns the world by this convention; seen is false where its variables
// are not there.
func (c convention) read(vars map[string]string) (w World, seen bool) {
	rank, okRank := vars[c.rank]
	if _, ok := vars[c.also]; !okRank || c.also != "" && !ok {
		return World{}, false
	}
	size, okSize := vars[c.size]
	if !okSize && c.kind == Torchrun {
		return World{}, false // RANK alone is anybody's variable
	}
	w = World{Launcher: c.kind, LocalRank: Unknown, LocalSize: Unknown, Node: vars[c.node], PMI: c.pmi}
	var err error
	if w.Rank, w.Size, err = rankOf(c.rank, rank, c.size, size); err != nil {
		w.Problem = err.Error()
		return w, true
	}
	w.LocalRank = number(vars, c.localRank)
	w.LocalSize = number(vars, c.localSize)
	return w, true
}

// rankOf parses a rank and a size and holds them against each other.
func rankOf(rankName, rank, sizeName, size string) (int, int, error) {
	r, rerr := strconv.Atoi(rank)
	n, nerr := strconv.Atoi(size)
	switch {
	case rerr != nil || nerr != nil:
		return 0, 0, fmt.Errorf("%s=%q and %s=%q are not a rank and a size: start the job with the launcher again, or unset them to run alone", rankName, rank, sizeName, size)
	case n < 1 || r < 0 || r >= n:
		return 0, 0, fmt.Errorf("%s=%d is not a rank of a world of %s=%d: start the job with the launcher again, or unset them to run alone", rankName, r, sizeName, n)
	}
	return r, n, nil
}

// number is the variable's value, Unknown where it is absent or no count.
func number(vars map[string]string, name string) int {
	n, err := strconv.Atoi(vars[name])
	if err != nil || n < 0 {
		return Unknown
	}
	return n
}

// environment makes a map of "KEY=value" strings; as in execve, the last wins.
func environment(env []string) map[string]string {
	m := make(map[string]string, len(env))
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" {
			m[k] = v
		}
	}
	return m
}
