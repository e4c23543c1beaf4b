package slurm

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pipetrain/pipetrain/jobs"
)

// Family is whose MPI library a job uses.
type Family string

// The families. Each has a wire-up of its own; the wrong one starts one world a rank.
const (
	UnknownMPI Family = ""
	OpenMPI    Family = "Open MPI"
	MPICH      Family = "MPICH" // and those with its ABI: Intel, Cray, MVAPICH
)

// Choice is how a script starts the ranks.
type Choice struct {
	Launcher string   // "srun" or "mpirun"
	MPI      string   // srun --mpi=
	Mpirun   []string // the words of mpirun's command line before the program
	Program  string   // the mpirun that was found; empty where the job loads another
	Family   Family
	Why      string // for the user: what it was chosen by
}

// Site is what was found where a job is submitted.
type Site struct {
	MPITypes []string          // of srun --mpi=list; nil: there is no srun to ask
	Library  Family            // of transport.libmpi
	Mpirun   Family            // of the first mpirun in PATH
	Programs map[Family]string // a family's mpirun
}

// moduleFamilies are names in environment modules that tell the library the job will have.
var moduleFamilies = []struct {
	name   *regexp.Regexp
	family Family
}{
	{regexp.MustCompile(`(?i)open-?mpi|hpcx|\bompi`), OpenMPI},
	{regexp.MustCompile(`(?i)mpich|mvapich|intel-?(oneapi-)?mpi|\bimpi`), MPICH},
}

// Choose decides how the ranks are started: as the job says, else by its MPI library and what srun can do.
// Mpirun is left for the caller, who knows the launchers' options.
func Choose(s *jobs.Spec, site Site) (Choice, error) {
	c := Choice{Launcher: s.Slurm.Launcher}
	c.Family, c.Why = familyOf(s, site)
	if len(s.Slurm.Modules) == 0 {
		c.Program = site.Programs[c.Family]
	}
	if mpi := s.Slurm.MPI; mpi != "auto" {
		if c.Launcher == "mpirun" {
			return c, fmt.Errorf("slurm.mpi = %q is srun's, and slurm.launcher is \"mpirun\": leave one out", mpi)
		}
		if site.MPITypes != nil && !slices.Contains(site.MPITypes, mpi) {
			return c, fmt.Errorf("slurm.mpi = %q: srun has %s here (srun --mpi=list)", mpi, strings.Join(site.MPITypes, ", "))
		}
		c.Launcher, c.MPI, c.Why = "srun", mpi, "slurm.mpi"
		return c, nil
	}
	if c.Launcher == "mpirun" {
		return c, nil
	}
	names := []string{"pmix", "pmix_v5", "pmix_v4", "pmix_v3", "pmix_v2"}
	if c.Family == MPICH {
		names = []string{"pmi2", "cray_shasta"}
		if strings.Contains(c.Why, "cray") {
			slices.Reverse(names)
		}
	}
	for _, n := range names {
		if site.MPITypes == nil || slices.Contains(site.MPITypes, n) {
			c.Launcher, c.MPI = "srun", n
			return c, nil
		}
	}
	if c.Launcher == "srun" {
		return c, fmt.Errorf("srun has no --mpi=%s, which %s needs: it has %s; use slurm.launcher = \"mpirun\", or name one with slurm.mpi", names[0], c.Family, strings.Join(site.MPITypes, ", "))
	}
	c.Launcher = "mpirun"
	c.Why += fmt.Sprintf("; srun has no --mpi=%s", names[0])
	return c, nil
}

// familyOf finds out which library the ranks will load: what the job says comes before what is here.
func familyOf(s *jobs.Spec, site Site) (Family, string) {
	if site.Library != UnknownMPI {
		return site.Library, fmt.Sprintf("transport.libmpi is %s", site.Library)
	}
	for _, m := range slices.Backward(s.Slurm.Modules) { // a later module stands in front
		for _, f := range moduleFamilies {
			if f.name.MatchString(m) {
				return f.family, fmt.Sprintf("module %s is %s", m, f.family)
			}
		}
	}
	if site.Mpirun != UnknownMPI {
		return site.Mpirun, fmt.Sprintf("%s is %s's", site.Programs[site.Mpirun], site.Mpirun)
	}
	return OpenMPI, "no MPI was found here, taken to be Open MPI"
}

// FamilyOfLauncher tells whose an mpirun is from what it answers to --version.
func FamilyOfLauncher(version string) Family {
	switch {
	case strings.Contains(version, "HYDRA"), strings.Contains(version, "Intel(R) MPI"):
		return MPICH
	case strings.Contains(version, "Open MPI"), strings.Contains(version, "OpenRTE"), strings.Contains(version, "PRRTE"):
		return OpenMPI
	}
	return UnknownMPI
}
