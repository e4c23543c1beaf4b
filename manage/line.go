package manage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/slurm"
)

// Line is a job that mpirun is to start, for sites without Slurm.
type Line struct {
	Job    string   // file
	Sets   []string // KEY=VALUE
	Out    string   // run folder; with one the line can be run again and goes on
	MPI    string   // whose mpirun: "openmpi" or "mpich"; empty: that of transport.libmpi, else the one found here
	Hosts  string   // a list of hosts, node[1-3,7],login, over which the ranks are shared out
	Binary string   // what mpirun starts
}

// Words returns the line's words, unquoted.
func (l Line) Words(ctx context.Context, tools slurm.Tools) ([]string, error) {
	spec, err := jobs.Load(l.Job, l.Sets)
	if err != nil {
		return nil, err
	}
	if spec.Transport.Kind == "local" {
		return nil, fmt.Errorf("transport.kind = \"local\" joins ranks that pipetrain starts itself, without mpirun: use \"auto\" or \"mpi\"")
	}
	// The same rules as in a batch script, but for what is srun's.
	spec.Slurm.Launcher, spec.Slurm.MPI = "mpirun", "auto"
	switch l.MPI {
	case "":
	case "openmpi":
		spec.Transport.LibMPI = "libmpi.so.40"
	case "mpich":
		spec.Transport.LibMPI = "libmpi.so.12"
	default:
		return nil, fmt.Errorf("--mpi %s: want openmpi or mpich (and its kin: Intel, Cray, MVAPICH)", l.MPI)
	}
	names, err := slurm.ExpandHosts(l.Hosts)
	if err != nil {
		return nil, fmt.Errorf("--hosts: %w", err)
	}
	perHost := 0
	if len(names) > 0 {
		if len(names) > spec.World() {
			return nil, fmt.Errorf("--hosts: %d hosts for %d ranks leave some without work", len(names), spec.World())
		}
		perHost = (spec.World() + len(names) - 1) / len(names)
		spec.Slurm.Nodes = len(names)
	}
	choice, err := chooseLauncher(ctx, spec, tools)
	if err != nil {
		return nil, err
	}
	words := choice.Mpirun
	switch {
	case len(names) == 0:
	case choice.Family == slurm.MPICH:
		words = slices.Insert(words, 1, "-hosts", strings.Join(names, ","))
	default:
		for i := range names {
			names[i] += fmt.Sprintf(":%d", perHost)
		}
		words = slices.Insert(words, 1, "--host", strings.Join(names, ","))
	}
	job, err := filepath.Abs(l.Job)
	if err != nil {
		return nil, err
	}
	words = append(words, l.Binary)
	if l.Out != "" {
		out, err := filepath.Abs(l.Out)
		if err != nil {
			return nil, err
		}
		words = append(words, "--auto-resume", "--out", out)
	}
	for _, s := range l.Sets {
		words = append(words, "--set", s)
	}
	return append(words, job), nil
}

// chooseLauncher looks what there is here, and gives mpirun its options.
func chooseLauncher(ctx context.Context, spec *jobs.Spec, tools slurm.Tools) (slurm.Choice, error) {
	c, err := slurm.Choose(spec, tools.Site(ctx, spec.Transport.LibMPI))
	if err != nil || c.Launcher != "mpirun" {
		return c, err
	}
	kind, lib := launcher.OpenMPI, launcher.LibraryOpenMPI
	if c.Family == slurm.MPICH {
		kind, lib = launcher.Hydra, launcher.LibraryMPICH
	}
	perNode := 0
	if n := spec.Slurm.Nodes; n > 0 {
		perNode = (spec.World() + n - 1) / n
	}
	words := launcher.Command(kind, lib, launcher.Job{Binary: "pipetrain", Ranks: spec.World(), RanksPerNode: perNode, Root: os.Geteuid() == 0})
	c.Mpirun = words[:len(words)-1]
	if c.Program != "" {
		c.Mpirun[0] = c.Program
	}
	return c, nil
}
