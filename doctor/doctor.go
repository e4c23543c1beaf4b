// Package doctor answers, before hours of a cluster are spent, what is found on
// this machine, what would fail, and how to fix it: each check is one small
// function that looks at the real thing (opens the library, sends the message,
// renames the file) and returns findings.
//
// The package knows no backend. Whoever calls it (cmd/pipetrain) hands in what
// only a backend can do, as function values in Backends.
package doctor

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
)

// Level says how bad a finding is.
type Level int

// The levels, mildest first.
const (
	OK      Level = iota // as it should be, or absent and not needed
	Warning              // works, but slower, or fails under conditions that are named
	Fails                // a job would fail
)

var levels = [...]string{"ok", "warning", "fails"}

func (l Level) String() string { return levels[l] }

// MarshalText writes the level as its name.
func (l Level) MarshalText() ([]byte, error) { return []byte(levels[l]), nil }

// UnmarshalText reads what MarshalText wrote.
func (l *Level) UnmarshalText(text []byte) error {
	for i, name := range levels {
		if name == string(text) {
			*l = Level(i)
			return nil
		}
	}
	return fmt.Errorf("doctor: level %q is none of ok, warning, fails", text)
}

// Finding is one line of the table.
type Finding struct {
	Check string `json:"check"` // the name of the check: "mpi libraries"
	Level Level  `json:"level"`
	Found string `json:"found"`         // what was seen
	Fix   string `json:"fix,omitempty"` // what to do about it; empty when nothing
	// Values are the figures behind Found, units in the names.
	Values map[string]any `json:"values,omitempty"`
}

func ok(format string, args ...any) Finding {
	return Finding{Found: fmt.Sprintf(format, args...)}
}

func warn(fix, format string, args ...any) Finding {
	return Finding{Level: Warning, Found: fmt.Sprintf(format, args...), Fix: fix}
}

func fails(fix, format string, args ...any) Finding {
	return Finding{Level: Fails, Found: fmt.Sprintf(format, args...), Fix: fix}
}

// with adds a figure.
func (f Finding) with(name string, value any) Finding {
	if f.Values == nil {
		f.Values = map[string]any{}
	}
	f.Values[name] = value
	return f
}

// Host is the machine as the checks see it.
type Host struct {
	// Root is put before every path that is looked at; empty for the real
	// machine. Programs are started from PATH as it is.
	Root string
	Env  []string // "KEY=value", as os.Environ gives them
	// RunDir is where runs would be written. It need not exist yet.
	RunDir string
	// Job makes the checks strict about what this job needs; nil: in general.
	Job *jobs.Spec
	Backends

	joined collectives.Transport // by checkAllRanks
}

// Backends are the parts of the program that the checks try out. A nil one is
// reported as not checked.
type Backends struct {
	// Device opens the device that a job would use ("auto", "cpu", "cuda").
	Device func(kind string) (kernels.Device, error)
	// CUDA describes the GPUs and NVIDIA's libraries as the program would use them for
	// the job, nil for none; an error says why no GPU can be used.
	CUDA func(job *jobs.Spec) (CUDA, error)
	// World returns the transports of a world of this many ranks within this
	// process, over the local transport. The doctor closes them.
	World func(ranks int) ([]collectives.Transport, error)
	// Join returns this process's part in the world that a launcher started it in.
	// It is called once, in a process that is a rank; whoever handed it in closes
	// the transport, after Gather.
	Join func() (collectives.Transport, error)
	// MPIRank returns the command that, started as a rank by a launcher, joins MPI
	// with this library and calls MPIRank. The doctor starts it under every
	// launcher that fits. Empty: pairs are judged by their names alone.
	MPIRank func(library string) []string
}

// Check is one question.
type Check struct {
	Group string // heading in the table
	Name  string
	Run   func(context.Context, *Host) []Finding
	// Limit is how long the check may take; 0: DefaultLimit.
	Limit time.Duration
}

// DefaultLimit bounds a check. A file system or a daemon that hangs is itself a
// finding, and must not hide the others.
const DefaultLimit = 20 * time.Second

// Checks lists all checks in the order of the table.
func Checks() []Check {
	return []Check{
		{Group: "system", Name: "program", Run: checkProgram},
		{Group: "system", Name: "kernel", Run: checkKernel},
		{Group: "system", Name: "glibc", Run: checkGlibc},
		{Group: "system", Name: "cores", Run: checkCores},
		{Group: "system", Name: "instructions", Run: checkInstructions},
		{Group: "system", Name: "load", Run: checkLoad},
		{Group: "system", Name: "memory", Run: checkMemory},
		{Group: "system", Name: "huge pages", Run: checkHugePages},
		{Group: "system", Name: "limits", Run: checkLimits},
		{Group: "system", Name: "signals", Run: checkSignals},
		{Group: "system", Name: "environment", Run: checkEnvironment},
		{Group: "system", Name: "host name", Run: checkHostName},

		{Group: "files", Name: "run folder", Run: checkRunFolder},
		{Group: "files", Name: "temporary folder", Run: checkTempFolder},

		{Group: "compute", Name: "blas libraries", Run: checkBLAS},
		{Group: "compute", Name: "device", Run: checkDevice},
		{Group: "compute", Name: "gpus", Run: checkGPUs},
		{Group: "compute", Name: "cuda", Run: checkCUDA},

		{Group: "local transport", Name: "memfd", Run: checkMemfd},
		{Group: "local transport", Name: "direct copy", Run: checkDirectCopy},
		{Group: "local transport", Name: "messages", Run: checkMessages},

		{Group: "mpi", Name: "this process", Run: checkWorld},
		{Group: "mpi", Name: "all ranks", Run: checkAllRanks, Limit: time.Minute},
		{Group: "mpi", Name: "peers", Run: checkPeers, Limit: 2 * time.Minute},
		{Group: "mpi", Name: "shared folder", Run: checkSharedFolder},
		{Group: "mpi", Name: "shared gpus", Run: checkSharedGPUs},
		{Group: "mpi", Name: "shared memory", Run: checkShm},
		{Group: "mpi", Name: "libraries", Run: checkMPILibraries},
		{Group: "mpi", Name: "launchers", Run: checkMPILaunchers},
		{Group: "mpi", Name: "pairs", Run: checkMPIPairs, Limit: 3 * time.Minute},

		{Group: "slurm", Name: "commands", Run: checkSlurmCommands},
		{Group: "slurm", Name: "munge", Run: checkMunge},
		{Group: "slurm", Name: "controller", Run: checkSlurmController},
		{Group: "slurm", Name: "partition", Run: checkSlurmPartition},
	}
}

// Report is the result of all checks on one host.
type Report struct {
	Host     string    `json:"host"`
	Rank     int       `json:"rank"` // world rank of who looked; 0 when alone
	Worst    Level     `json:"worst"`
	Seconds  float64   `json:"seconds"`
	Findings []Finding `json:"findings"`
}

// Run performs the checks one after another: two at a time would disturb each
// other's timings. It does not fail; what went wrong is in the report. When ctx
// ends, the checks not yet done are reported so.
func Run(ctx context.Context, h *Host, checks []Check) Report {
	begin := time.Now()
	r := Report{Host: hostName(h)}
	for _, c := range checks {
		r.Findings = append(r.Findings, perform(ctx, h, c)...)
	}
	for _, f := range r.Findings {
		r.Worst = max(r.Worst, f.Level)
	}
	r.Seconds = time.Since(begin).Seconds()
	return r
}

// perform runs one check within its limit, and makes findings of a panic and of silence.
func perform(ctx context.Context, h *Host, c Check) []Finding {
	limit := c.Limit
	if limit == 0 {
		limit = DefaultLimit
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan []Finding, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- []Finding{warn("please report this", "the check itself broke: %v", p).with("stack", string(debug.Stack()))}
			}
		}()
		done <- c.Run(limited, h)
	}()
	var found []Finding
	select {
	case found = <-done:
	case <-limited.Done():
		// The check's goroutine stays behind, most likely inside a system call that nothing can end.
		if ctx.Err() != nil {
			found = []Finding{warn("", "not checked: %v", context.Cause(ctx))}
		} else {
			found = []Finding{fails("find out what hangs: the file system, the daemon or the library that this check uses", "no answer within %v", limit)}
		}
	}
	for i := range found {
		found[i].Check = c.Group + ": " + c.Name
	}
	return found
}

// Code is the exit code that says what the report says: Environment when
// something fails, else Finished.
func (r Report) Code() exitcode.Code {
	if r.Worst == Fails {
		return exitcode.Environment
	}
	return exitcode.Finished
}
