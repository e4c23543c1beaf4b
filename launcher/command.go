package launcher

import (
	"fmt"
	"strings"

	"github.com/pipetrain/pipetrain/slurm"
)

// Job is what a launch command is made of.
type Job struct {
	Binary       string   // "pipetrain", or its path
	Args         []string // its arguments: options, the job file
	Ranks        int
	Nodes        int // 0: not said; the launcher takes what its allocation has
	RanksPerNode int // 0: not said
	// Root says that the user is root, whom Open MPI refuses without a word.
	Root bool
}

// Library is an MPI library's family, which has to fit the launcher.
type Library string

const (
	LibraryOpenMPI Library = "Open MPI"
	LibraryMPICH   Library = "MPICH" // and those with its ABI: Intel, Cray, MVAPICH
)

// Command is the argument list that starts the job under the given launcher
// with a library of the given family; nil for a launcher that has no command.
func Command(kind Kind, lib Library, j Job) []string {
	var c []string
	flag := func(name string, n int) {
		if n > 0 {
			c = append(c, name, fmt.Sprint(n))
		}
	}
	switch kind {
	case Alone, Local:
		// The embedded launcher counts the ranks itself.
	case OpenMPI:
		c = []string{"mpirun"}
		if j.Root {
			c = append(c, "--allow-run-as-root")
		}
		flag("-n", j.Ranks)
		if j.RanksPerNode > 0 {
			c = append(c, "--map-by", fmt.Sprintf("ppr:%d:node", j.RanksPerNode))
		}
		// It binds one or two ranks to one core each, where a rank has threads.
		c = append(c, "--bind-to", "none")
	case Hydra:
		c = []string{"mpiexec"}
		flag("-n", j.Ranks)
		flag("-ppn", j.RanksPerNode)
	case PALS:
		c = []string{"mpiexec"}
		flag("-n", j.Ranks)
		flag("--ppn", j.RanksPerNode)
	case Flux:
		c = []string{"flux", "run"}
		flag("-N", j.Nodes)
		flag("-n", j.Ranks)
	case Srun:
		// Without -K srun lets the others wait for a rank that was killed, for ever.
		c = []string{"srun", "-K1", "--mpi=" + srunMPI(lib)}
		flag("-N", j.Nodes)
		flag("-n", j.Ranks)
		if j.RanksPerNode > 0 {
			c = append(c, fmt.Sprintf("--ntasks-per-node=%d", j.RanksPerNode))
		}
	default:
		return nil
	}
	return append(append(c, j.Binary), j.Args...)
}

// srunMPI is the wire-up that a library understands: any other pair starts one
// world a rank.
func srunMPI(lib Library) string {
	if lib == LibraryMPICH {
		return "pmi2"
	}
	return "pmix"
}

// MpirunLine is the line to type for the job, for a library of the family.
func MpirunLine(lib Library, j Job) string {
	kind := OpenMPI
	if lib == LibraryMPICH {
		kind = Hydra
	}
	return Shell(Command(kind, lib, j))
}

// Mismatch explains a world that came up smaller than its launcher meant, and
// what to run instead. path and version describe the library that was loaded,
// size is the world that it formed.
func Mismatch(w World, lib Library, path, version string, size int, j Job) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s started %d ranks, but the MPI library here formed a world of %d: the two do not belong together.\n", launcherName(w), w.Size, size)
	fmt.Fprintf(&b, "  library   %s (%s, %s)\n", path, lib, version)
	j.Ranks = w.Size
	switch w.Launcher {
	case Srun:
		seen := "no wire-up of MPI's at all"
		if w.PMI != "" {
			seen = w.PMI
		}
		fmt.Fprintf(&b, "  launcher  srun with %s\n", seen)
		fmt.Fprintf(&b, "Run instead:\n  %s\n", Shell(Command(Srun, lib, j)))
	case OpenMPI, Hydra:
		other := LibraryMPICH
		if w.Launcher == OpenMPI {
			other = LibraryOpenMPI
		}
		fmt.Fprintf(&b, "  launcher  %s, which is %s's\n", Command(w.Launcher, lib, Job{})[0], other)
		fmt.Fprintf(&b, "Run instead, with the %s that belongs to this library:\n  %s\n", Command(kindOf(lib), lib, Job{})[0], MpirunLine(lib, j))
		fmt.Fprintf(&b, "or name the library of %s with --set transport.libmpi=PATH\n", other)
	default:
		if doubt := w.Doubt(); doubt != "" {
			fmt.Fprintf(&b, "  launcher  torchrun%s\n", doubt)
		}
		fmt.Fprintf(&b, "Run instead:\n  %s\n", MpirunLine(lib, j))
	}
	return b.String()
}

func kindOf(lib Library) Kind {
	if lib == LibraryMPICH {
		return Hydra
	}
	return OpenMPI
}

func launcherName(w World) string {
	switch w.Launcher {
	case OpenMPI:
		return "Open MPI's mpirun"
	case Hydra:
		return "MPICH's mpiexec"
	case Srun:
		return "srun"
	case PALS:
		return "PALS' mpiexec"
	}
	return string(w.Launcher)
}

// Shell joins arguments into a line that a POSIX shell splits into the same ones.
func Shell(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = slurm.Quote(a)
	}
	return strings.Join(quoted, " ")
}
