package study

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/slurm"
)

// Launcher is how runs are started.
type Launcher struct {
	Kind  string // local | mpirun | srun | sbatch
	Why   string // what decided
	Tools slurm.Tools
	Site  slurm.Site // what starts ranks here; for mpirun and srun
	Root  bool       // the user is root
	// Job is the allocation in which srun makes steps.
	Job string
}

// ChooseLauncher decides what "auto" is: srun in an allocation, else sbatch where there is one, else local.
// allocation is SLURM_JOB_ID; sbatch says whether that program is there.
func ChooseLauncher(ctx context.Context, kind, allocation string, sbatch bool, tools slurm.Tools, root bool, libMPI string) Launcher {
	l := Launcher{Kind: kind, Why: "launch.kind", Tools: tools, Root: root, Job: allocation}
	if kind == "auto" {
		switch {
		case allocation != "":
			l.Kind, l.Why = "srun", "in the allocation of job "+allocation
		case sbatch:
			l.Kind, l.Why = "sbatch", "sbatch is in PATH"
		default:
			l.Kind, l.Why = "local", "no Slurm here"
		}
	}
	if l.Kind == "mpirun" || l.Kind == "srun" {
		l.Site = tools.Site(ctx, libMPI)
	}
	return l
}

// line is a command with what ends it when the study dies.
type line struct {
	argv  []string
	death syscall.Signal
}

// commandOf returns the command of one run: the binary with the case's keys, and what starts its ranks.
func (l Launcher) commandOf(binary, dir, job string, c *Case) (line, error) {
	args := []string{"--quiet", "--out", dir}
	for _, s := range c.Sets {
		args = append(args, "--set", s)
	}
	args = append(args, job)
	j := launcher.Job{Binary: binary, Args: args, Ranks: c.Ranks(), Nodes: c.Spec.Slurm.Nodes, Root: l.Root}
	switch l.Kind {
	case "local":
		return line{launcher.Command(launcher.Local, "", j), syscall.SIGKILL}, nil
	case "mpirun":
		return l.mpirun(j)
	case "srun":
		choice, err := slurm.Choose(c.Spec, l.Site)
		if err != nil {
			return line{}, exitcode.With(exitcode.Environment, err)
		}
		lib := launcher.LibraryOpenMPI
		if choice.Family == slurm.MPICH {
			lib = launcher.LibraryMPICH
		}
		words := launcher.Command(launcher.Srun, lib, j)
		if choice.MPI != "" {
			words[2] = "--mpi=" + choice.MPI
		}
		// --exact: a step takes the cores of its tasks, not whole nodes.
		return line{append([]string{words[0], "--exact"}, words[1:]...), syscall.SIGTERM}, nil
	}
	return line{}, fmt.Errorf("no launcher %q", l.Kind)
}

func (l Launcher) mpirun(j launcher.Job) (line, error) {
	for _, f := range []struct {
		family slurm.Family
		kind   launcher.Kind
		lib    launcher.Library
	}{{slurm.OpenMPI, launcher.OpenMPI, launcher.LibraryOpenMPI}, {slurm.MPICH, launcher.Hydra, launcher.LibraryMPICH}} {
		if l.Site.Mpirun != f.family && l.Site.Mpirun != slurm.UnknownMPI {
			continue
		}
		if program := l.Site.Programs[f.family]; program != "" {
			words := launcher.Command(f.kind, f.lib, j)
			words[0] = program
			return line{words, syscall.SIGTERM}, nil
		}
	}
	return line{}, exitcode.Errorf(exitcode.Environment, "launch.kind = \"mpirun\": there is no mpirun in PATH: install an MPI or load its module, or use local")
}

// Nodes of a case under each kind of launch, for --dry-run.
func nodesOf(s *jobs.Spec) int { return max(1, s.Slurm.Nodes) }

// shellLine prints a command with the folder of the study in front of its paths left out.
func shellLine(argv []string, folder string) string {
	return strings.ReplaceAll(launcher.Shell(argv), folder+string(filepath.Separator), "")
}
