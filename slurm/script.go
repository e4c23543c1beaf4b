// Package slurm turns a job into a batch script for Slurm, asks Slurm's programs
// about it, and reads and writes host lists. A script is text before it is
// anything else: `pipetrain submit --dry-run` shows it.
package slurm

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/pipetrain/pipetrain/jobs"
)

// Launch is what a script runs and how.
type Launch struct {
	Binary string // absolute
	Job    string // the job file, absolute, on a file system that all nodes see
	// Sets are --set arguments for the start; "%a" in one is the number of the array's task.
	Sets []string
	Out  string // run folder, absolute, seen by all nodes; an array's task N has Out/task-N
	Choice
}

// LogsName is the folder in the run folder that holds the logs of batch script and ranks.
const LogsName = "logs"

// RestartsName is the file in the run folder where a script counts the starts that
// brought nothing: "<newest checkpoint's step>:<starts in a row>".
const RestartsName = "slurm.restarts"

// Script returns the batch script of a job, or which value cannot be put into one.
// It can be started any number of times: a start goes on from the newest
// checkpoint, and the script puts itself back into the queue where that makes sense.
func Script(spec *jobs.Spec, l Launch) (string, error) {
	if err := check(spec, l); err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("#!/bin/bash\n")
	if err := directives(&b, spec, l); err != nil {
		return "", err
	}
	prologue(&b, spec, l)
	setUp(&b, spec.Slurm)
	step(&b, spec, l)
	epilogue(&b, spec, l)
	return b.String(), nil
}

// check refuses what no quoting can fix, and launches that cannot work.
func check(spec *jobs.Spec, l Launch) error {
	s := spec.Slurm
	if spec.Transport.Kind == "local" {
		return fmt.Errorf("transport.kind = \"local\" joins ranks that pipetrain starts itself, and a batch script starts them with %s: use \"auto\" or \"mpi\"", l.Launcher)
	}
	if nodes, per := place(spec); nodes > 0 && s.GPUsPerNode > 0 && per > s.GPUsPerNode && !spec.Device.Share {
		return fmt.Errorf("slurm.gpus_per_node: %d ranks a node share %d GPUs: use %d nodes or more, or device.share = true", per, s.GPUsPerNode, ceil(spec.World(), s.GPUsPerNode))
	}
	switch {
	case l.Launcher == "srun" && (l.MPI == "" || l.MPI == "none" || l.MPI == "auto"):
		return fmt.Errorf("srun --mpi=%s joins no ranks: \"pmix\" for Open MPI, \"pmi2\" for MPICH and its kin", l.MPI)
	case l.Launcher == "mpirun" && len(l.Mpirun) == 0:
		return fmt.Errorf("there is no command line for mpirun")
	case l.Launcher != "srun" && l.Launcher != "mpirun":
		return fmt.Errorf("launcher %q is unknown: \"srun\" or \"mpirun\"", l.Launcher)
	}
	for _, p := range []string{l.Binary, l.Job, l.Out} {
		if !filepath.IsAbs(p) {
			return fmt.Errorf("slurm: %q is no absolute path", p)
		}
	}
	for _, words := range [][]string{{l.Binary, l.Job, l.Out, l.MPI, s.Container}, l.Sets, l.Mpirun, s.Modules, s.Environment, s.ContainerOptions} {
		for _, w := range words {
			if err := oneLine(w); err != nil {
				return err
			}
		}
	}
	for _, set := range l.Sets {
		if s.Array == "" && strings.Contains(set, arrayMark) {
			return fmt.Errorf("--set %s: %s is the number of an array's task, and there is no slurm.array", set, arrayMark)
		}
	}
	if strings.Contains(l.Out, `\`) {
		return fmt.Errorf("run folder %q: Slurm takes no backslash in the name of a log: choose another with --out", l.Out)
	}
	return nil
}

// place returns the nodes of a job and the ranks on each, 0 and 0 where Slurm decides.
// GPUs are asked for by node, so that a job with some has to say how many nodes.
func place(spec *jobs.Spec) (nodes, perNode int) {
	world := spec.World()
	nodes = spec.Slurm.Nodes
	if g := spec.Slurm.GPUsPerNode; nodes == 0 && g > 0 {
		nodes = ceil(world, g)
	}
	if nodes == 0 {
		return 0, 0
	}
	return nodes, ceil(world, nodes)
}

func ceil(a, b int) int { return (a + b - 1) / b }

// notInName is what a job's name has not in Slurm: sacct -c loses its place at a blank.
var notInName = regexp.MustCompile(`[^A-Za-z0-9._+-]+`)

// directives writes the #SBATCH lines.
func directives(b *strings.Builder, spec *jobs.Spec, l Launch) error {
	s := spec.Slurm
	var bad error
	option := func(name, value string) {
		if err := oneLine(value); err != nil && bad == nil {
			bad = err
		}
		if value != "" {
			fmt.Fprintf(b, "#SBATCH --%s=%s\n", name, directive(value))
		}
	}
	number := func(name string, n int) {
		if n > 0 {
			option(name, fmt.Sprint(n))
		}
	}
	nodes, perNode := place(spec)
	option("job-name", notInName.ReplaceAllString(spec.Name, "-"))
	number("nodes", nodes)
	number("ntasks", spec.World())
	number("ntasks-per-node", perNode)
	number("cpus-per-task", spec.Device.Threads)
	number("gpus-per-node", s.GPUsPerNode)
	option("partition", s.Partition)
	option("account", s.Account)
	option("qos", s.QOS)
	option("constraint", s.Constraint)
	option("reservation", s.Reservation)
	option("time", s.Time)
	option("array", s.Array)
	option("dependency", s.Dependency)
	log := "slurm-%j.log"
	if s.Array != "" {
		log = "slurm-%A_%a.log"
	}
	option("output", filepath.Join(strings.ReplaceAll(l.Out, "%", "%%"), LogsName)+"/"+log)
	option("open-mode", "append") // a requeued job must not lose what it said before
	if before := signalSeconds(s); before > 0 {
		option("signal", fmt.Sprintf("B:USR1@%d", before))
	}
	if s.Requeue {
		b.WriteString("#SBATCH --requeue\n")
	} else {
		b.WriteString("#SBATCH --no-requeue\n")
	}
	for _, o := range s.Options {
		name, value, given := strings.Cut(strings.TrimPrefix(o, "--"), "=")
		if err := oneLine(o); err != nil && bad == nil {
			bad = err
		}
		if given {
			option(name, value)
		} else {
			fmt.Fprintf(b, "#SBATCH --%s\n", name)
		}
	}
	return bad
}

// signalSeconds is when Slurm asks the ranks to stop, before the time limit; for short limits
// earlier than the key says, since a job that is asked at its start does one step a start.
func signalSeconds(s jobs.Slurm) int {
	before := int(s.SignalBefore.Seconds())
	if limit, ok := limitSeconds(s.Time); ok {
		before = min(before, limit/4)
	}
	return before
}

// launchWords starts the ranks, as words of the shell.
func launchWords(spec *jobs.Spec, l Launch) []string {
	if l.Launcher == "mpirun" {
		var words []string
		for _, w := range l.Mpirun {
			words = append(words, Quote(w))
		}
		return append(words, "bash", "-c", `'host=$(uname -n); exec "$@" >>"$0/rank-${OMPI_COMM_WORLD_RANK:-${PALS_RANKID:-${PMI_RANK:-x}}}.${host%%.*}.out" 2>&1'`, `"$run/`+LogsName+`"`)
	}
	// Without -K srun leaves the others waiting for a rank that died.
	words := []string{"srun", "-K1", "--mpi=" + Quote(l.MPI), fmt.Sprintf("--ntasks=%d", spec.World()), "--distribution=block"}
	if t := spec.Device.Threads; t > 0 {
		// srun no longer takes this from the job (Slurm 22.05 and later).
		words = append(words, fmt.Sprintf("--cpus-per-task=%d", t), "--cpu-bind=cores")
	} else {
		words = append(words, "--cpu-bind=none")
	}
	return append(words, `--output="${run//\%/%%}/`+LogsName+`/rank-%t.%N.out"`, "--open-mode=append")
}

// programWords is what the launcher starts, as words of the shell.
func programWords(spec *jobs.Spec, l Launch) []string {
	var words []string
	if image := spec.Slurm.Container; image != "" {
		tool := spec.Slurm.ContainerTool
		if tool == "charliecloud" {
			words = append(words, "ch-run")
		} else {
			words = append(words, tool, "exec")
		}
		// Options first: folders may lie below what they bind.
		for _, o := range spec.Slurm.ContainerOptions {
			words = append(words, Quote(o))
		}
		for _, dir := range bound(spec, l) {
			words = append(words, Quote("--bind="+dir))
		}
		if words = append(words, Quote(image)); tool == "charliecloud" {
			words = append(words, "--")
		}
	}
	words = append(words, Quote(l.Binary), "--auto-resume", "--out", `"$run"`)
	for _, set := range l.Sets {
		words = append(words, "--set", strings.ReplaceAll(Quote(set), arrayMark, `'"$SLURM_ARRAY_TASK_ID"'`))
	}
	return append(words, Quote(l.Job), notLock)
}

// bound lists the folders that a container must see under their own names.
func bound(spec *jobs.Spec, l Launch) []string {
	var dirs []string
	for _, dir := range []string{l.Out, filepath.Dir(l.Binary), filepath.Dir(l.Job), file(spec.Data.Path), file(spec.Schedule.File), file(spec.Schedule.Profile)} {
		covered := dir == ""
		for _, d := range dirs {
			covered = covered || dir == d || strings.HasPrefix(dir, strings.TrimSuffix(d, "/")+"/")
		}
		if !covered {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// file returns the folder of a file, "" for none.
func file(path string) string {
	if path == "" {
		return ""
	}
	return filepath.Dir(path)
}
