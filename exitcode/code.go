// Package exitcode is the one table of exit codes of pipetrain, the same under
// every launcher, and the exit record that says the same in words in the run
// folder: launchers change codes (MPICH's mpiexec ORs those of all ranks,
// Open MPI's adds 128 to a signal), the record stays as it was written.
//
// The package imports next to nothing of the project, so that every other may use it.
package exitcode

import "fmt"

// Code is a process's exit code.
type Code int

// The table. docs/exit-codes.md holds the same in prose; a test compares the two.
const (
	Finished    Code = 0   // all steps done, results written
	Unexpected  Code = 1   // an error without a better name: a bug, a panic
	Usage       Code = 2   // bad command line or job file; nothing was started
	Environment Code = 3   // this machine lacks something: library, file system, data
	RankLost    Code = 4   // a rank died or never started
	Stalled     Code = 5   // no rank advanced for longer than the watchdog allows
	Numerics    Code = 6   // NaN or Inf in the loss or the gradient norm
	Stopped     Code = 7   // asked to stop (signal, preemption, time limit): saved, can be resumed
	OutOfMemory Code = 8   // host or device memory exhausted, or the kernel's OOM killer came
	Regressed   Code = 9   // of study and compare: a gate found what is slower, larger or other than before
	Incomplete  Code = 10  // of study and compare: a case failed, is missing or cannot be compared
	Interrupted Code = 130 // ended on request before anything could be saved
)

// Entry is a line of the table.
type Entry struct {
	Code    Code
	Name    string // as in records and summaries: lower case, words joined by '-'
	Meaning string
	Resume  bool // starting the same job again, unchanged, is the sensible answer
}

var table = []Entry{
	{Finished, "finished", "every step was done and the results are written", false},
	{Unexpected, "unexpected", "an error that has no better name: a bug, a panic", false},
	{Usage, "bad-job", "the command line or the job file is wrong; nothing was started", false},
	{Environment, "environment", "the machine lacks something: a library, a working file system, the data", false},
	{RankLost, "rank-lost", "a rank died, was killed, or never started", true},
	{Stalled, "stalled", "no rank advanced for longer than the watchdog allows", true},
	{Numerics, "numerics", "NaN or Inf in the loss or in the gradient norm", false},
	{Stopped, "stopped", "asked to stop (signal, preemption, time limit); the state is saved and the job can be resumed", true},
	{OutOfMemory, "out-of-memory", "host or device memory ran out, or the kernel's OOM killer ended a rank", false},
	{Regressed, "regressed", "a gate of `study` or `compare` found a case that is slower, needs more memory or computes something else; 9 wins over 10", false},
	{Incomplete, "incomplete", "a case of `study` or `compare` failed, is missing or cannot be compared", true},
	{Interrupted, "interrupted", "ended on request before the state could be saved (second Ctrl-C, or before the first step)", true},
}

// Table returns a copy of the table, by code.
func Table() []Entry { return append([]Entry(nil), table...) }

func (c Code) entry() (Entry, bool) {
	for _, e := range table {
		if e.Code == c {
			return e, true
		}
	}
	return Entry{}, false
}

// Known says whether c is in the table.
func (c Code) Known() bool { _, ok := c.entry(); return ok }

// Name is the code's name, "exit-42" for one outside the table.
func (c Code) Name() string {
	if e, ok := c.entry(); ok {
		return e.Name
	}
	return fmt.Sprintf("exit-%d", int(c))
}

// Meaning is the code's sentence, empty outside the table.
func (c Code) Meaning() string { e, _ := c.entry(); return e.Meaning }

// String is as in messages: "4 (rank-lost)".
func (c Code) String() string { return fmt.Sprintf("%d (%s)", int(c), c.Name()) }
