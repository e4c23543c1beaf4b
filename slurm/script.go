// Package slurm turns a job into a batch script for Slurm. A script is text
// before it is anything else: `pipetrain submit --dry-run` shows it.
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
	Job    string // the job file, absolute
	Sets   []string
	Out    string // run folder, absolute, on a file system that all nodes see
	MPI    string // srun --mpi=: "pmix" for Open MPI, "pmi2" for MPICH and its kin
}

// signalBefore is how many seconds before the time limit Slurm asks the ranks to save and stop.
const signalBefore = 120

// plain are values that need no quotes in a #SBATCH line, which no shell reads.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:%@,=+-]+$`)

// Script returns the batch script of a job, or which value cannot be put into one.
func Script(spec *jobs.Spec, l Launch) (string, error) {
	s := spec.Slurm
	world := spec.World()
	nodes := max(1, s.Nodes)
	perNode := (world + nodes - 1) / nodes
	if s.GPUsPerNode > 0 && perNode > s.GPUsPerNode {
		return "", fmt.Errorf("slurm.gpus_per_node: %d ranks a node share %d GPUs: use %d nodes or more", perNode, s.GPUsPerNode, (world+s.GPUsPerNode-1)/s.GPUsPerNode)
	}
	if l.MPI != "pmix" && l.MPI != "pmi2" {
		return "", fmt.Errorf("srun --mpi=%s is unknown: \"pmix\" for Open MPI, \"pmi2\" for MPICH and its kin", l.MPI)
	}
	var b strings.Builder
	b.WriteString("#!/bin/bash\n")
	var bad error
	option := func(name, value string) {
		if value == "" {
			return
		}
		if !plain.MatchString(value) && bad == nil {
			bad = fmt.Errorf("slurm: %q cannot be the value of --%s in a batch script: use letters, digits and . _ - / : only", value, name)
		}
		fmt.Fprintf(&b, "#SBATCH --%s=%s\n", name, value)
	}
	number := func(name string, n int) {
		if n > 0 {
			option(name, fmt.Sprint(n))
		}
	}
	option("job-name", spec.Name)
	number("nodes", nodes)
	number("ntasks", world)
	number("ntasks-per-node", perNode)
	number("cpus-per-task", spec.Device.Threads)
	number("gpus-per-node", s.GPUsPerNode)
	option("partition", s.Partition)
	option("account", s.Account)
	option("time", s.Time)
	option("output", filepath.Join(l.Out, "slurm-%j.log"))
	option("open-mode", "append")
	option("signal", fmt.Sprintf("B:USR1@%d", signalBefore))
	if bad != nil {
		return "", bad
	}
	command := []string{"srun", "--mpi=" + l.MPI, "-K1", l.Binary, "--quiet", "--out", filepath.Join(l.Out, "run")}
	for _, set := range l.Sets {
		command = append(command, "--set", set)
	}
	command = append(command, l.Job)
	for i, word := range command {
		if strings.ContainsAny(word, "\n\x00") {
			return "", fmt.Errorf("slurm: %q has a line break", word)
		}
		command[i] = quote(word)
	}
	fmt.Fprintf(&b, `
# Before the time limit, and on scancel --signal=USR1 --batch: the ranks save and stop (exit code 7).
# bash runs a trap between commands only, so the step runs behind it and is waited for again.
trap 'kill -USR1 "$step" 2>/dev/null' USR1
%s &
step=$!
wait "$step"; code=$?
while kill -0 "$step" 2>/dev/null; do wait "$step"; code=$?; done
exit "$code"
`, strings.Join(command, " "))
	return b.String(), nil
}

// quote makes a word of a shell's command line.
func quote(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
