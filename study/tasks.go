package study

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
)

// task is one run that the study wants.
type task struct {
	c      *Case
	round  int // from 1; 0: a warm-up
	binary string
	warm   int // number of the warm-up, from 1
}

// key names a task among all.
func (t task) key() string { return taskKey(t.c.ID, t.round, t.binary, t.warm) }

func taskKey(id string, round int, binary string, warm int) string {
	return fmt.Sprintf("%s/%d/%s/%d", id, round, binary, warm)
}

// folder of the task's attempt within the study's.
func (t task) folder(attempt int) string {
	name := fmt.Sprintf("r%d", t.round)
	if t.warm > 0 {
		name = fmt.Sprintf("warmup%d", t.warm)
	}
	if t.binary == Control {
		name += "-control"
	}
	if attempt > 1 {
		name += fmt.Sprintf("-again%d", attempt-1)
	}
	return filepath.Join(RunsName, t.c.ID, name)
}

// tasks returns the runs of rounds from..to in the order in which they run. With a control each case
// runs with both binaries, whose order alternates from round to round and case to case.
func (f *File) tasks(cases []*Case, from, to int, control bool) []task {
	var out []task
	add := func(c *Case, n, round int) {
		binaries := []string{Candidate}
		if control {
			binaries = []string{Candidate, Control}
			if (n+round)%2 == 1 {
				binaries = []string{Control, Candidate}
			}
		}
		for _, b := range binaries {
			out = append(out, task{c: c, round: round, binary: b})
		}
	}
	if f.Order == "blocked" {
		for n, c := range cases {
			for r := from; r <= to; r++ {
				add(c, n, r)
			}
		}
		return out
	}
	for r := from; r <= to; r++ {
		order := make([]int, len(cases))
		for i := range order {
			order[i] = i
		}
		if f.Order == "shuffled" {
			order = rand.New(rand.NewPCG(uint64(f.Seed), uint64(r))).Perm(len(cases))
		}
		for _, n := range order {
			add(cases[n], n, r)
		}
	}
	return out
}

// warmups are runs of the first case that are recorded but do not count, before all others.
func (f *File) warmups(cases []*Case, control bool) []task {
	var out []task
	for n := 1; n <= f.WarmupRuns; n++ {
		out = append(out, task{c: cases[0], binary: Candidate, warm: n})
		if control {
			out = append(out, task{c: cases[0], binary: Control, warm: n})
		}
	}
	return out
}
