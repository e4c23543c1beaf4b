package slurm

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Patience is how long a program of Slurm may take to answer. They retry for
// minutes where the controller is away.
const Patience = 30 * time.Second

// Tools asks Slurm's programs, which have to be in PATH. Its errors are one
// line: what went wrong and what to do.
type Tools struct {
	Patience time.Duration // 0: the constant
	Conf     string        // SLURM_CONF, where it is set
}

// ErrUnknownJob says that Slurm does not, or no longer, know a job.
var ErrUnknownJob = errors.New("there is no such job in Slurm: it never was, or ended a while ago")

// Submit hands a script to sbatch and returns the job's id. The error is an UncertainError where
// Slurm may have accepted the job.
func (t Tools) Submit(ctx context.Context, script string, options ...string) (string, error) {
	out, err := t.run(ctx, "sbatch", append(append([]string{"--parsable"}, options...), script)...)
	if err != nil {
		return "", err
	}
	id, _, _ := strings.Cut(strings.TrimSpace(lastLine(out)), ";") // a cluster's name may follow
	if !jobID.MatchString(id) {
		return "", &UncertainError{fmt.Errorf("sbatch answered %q, which is no job id", shorten(strings.TrimSpace(out)))}
	}
	return id, nil
}

// UncertainError says that a program of Slurm was started and failed, and what was asked of it may
// have been done all the same.
type UncertainError struct{ error }

func (e *UncertainError) Unwrap() error { return e.error }

// JobOf returns the newest job that Slurm knows of a batch script, the whole array's number for an
// array. The error is ErrUnknownJob where there is none.
func (t Tools) JobOf(ctx context.Context, script string) (string, error) {
	out, err := t.run(ctx, "squeue", "--me", "-h", "-t", "all", "-S", "-i", "-o", "%F|%o")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		if id, command, _ := strings.Cut(strings.TrimSpace(line), "|"); command == script {
			return id, nil
		}
	}
	return "", ErrUnknownJob
}

var jobID = regexp.MustCompile(`^\d+(_\d+)?$`)

// Job is what Slurm says of a job or of one task of an array.
type Job struct {
	ID        string `json:"id"` // "123", "123_4", "123_[5-9]" for tasks that wait
	State     string `json:"state"`
	Partition string `json:"partition"`
	Elapsed   string `json:"elapsed"`
	Limit     string `json:"limit"`
	Nodes     string `json:"nodes"`  // a host list; empty while it waits
	Reason    string `json:"reason"` // why it waits, or ended; "None" otherwise
}

// Active says whether the job is not over.
func (j Job) Active() bool {
	switch j.State {
	case "PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT",
		"REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESIZING", "RESV_DEL_HOLD":
		return true
	}
	return false
}

// Jobs returns the job, or the tasks of an array. The error is ErrUnknownJob where Slurm has forgotten it.
func (t Tools) Jobs(ctx context.Context, id string) ([]Job, error) {
	out, err := t.run(ctx, "squeue", "-h", "-t", "all", "-S", "i", "-j", id, "-o", "%i|%T|%P|%M|%l|%N|%r")
	if err != nil {
		return nil, err
	}
	var jobs []Job
	for line := range strings.Lines(out) {
		if f := strings.Split(strings.TrimSpace(line), "|"); len(f) == 7 {
			jobs = append(jobs, Job{ID: f[0], State: f[1], Partition: f[2], Elapsed: f[3], Limit: f[4], Nodes: f[5], Reason: f[6]})
		}
	}
	if len(jobs) == 0 {
		return nil, ErrUnknownJob
	}
	return jobs, nil
}

// Cancel ends a job.
func (t Tools) Cancel(ctx context.Context, id string) error {
	_, err := t.run(ctx, "scancel", id)
	return err
}

// Stop asks the script of a running job to have the ranks save and stop, for good.
func (t Tools) Stop(ctx context.Context, id string) error {
	_, err := t.run(ctx, "scancel", "--batch", "--signal=USR2", id)
	return err
}

// SaveAndRequeue asks the script of a running job to have the ranks save, and to put itself back.
func (t Tools) SaveAndRequeue(ctx context.Context, id string) error {
	_, err := t.run(ctx, "scancel", "--batch", "--signal=USR1", id)
	return err
}

// Requeue puts a job that Slurm still knows back into the queue.
func (t Tools) Requeue(ctx context.Context, id string) error {
	_, err := t.run(ctx, "scontrol", "requeue", id)
	return err
}

// Script returns the path of a job's batch script and how often it was put back into the queue.
func (t Tools) Script(ctx context.Context, id string) (path string, restarts int, err error) {
	out, err := t.run(ctx, "scontrol", "show", "job", id)
	if err != nil {
		return "", 0, err
	}
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if p, found := strings.CutPrefix(line, "Command="); found && path == "" {
			path = p
		}
		if _, rest, found := strings.Cut(line, " Restarts="); found && restarts == 0 {
			fmt.Sscan(rest, &restarts) // stays 0 where it is no number
		}
	}
	return path, restarts, nil
}

// Ended returns what the accounting remembers of a job that squeue has forgotten:
// the database's, or where there is none the file's.
func (t Tools) Ended(ctx context.Context, id string) ([]Job, error) {
	args := []string{"-n", "-P", "-X", "-j", id, "-o", "JobID,State,Partition,Elapsed,Timelimit,NodeList"}
	out, err := t.run(ctx, "sacct", args...)
	if err != nil {
		if out, err = t.run(ctx, "sacct", append([]string{"-c"}, slices.DeleteFunc(args, func(a string) bool { return a == "-X" })...)...); err != nil {
			return nil, err
		}
	}
	var jobs []Job
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 6 {
			continue
		}
		state, _, _ := strings.Cut(f[1], " ") // "CANCELLED by 1000"
		jobs = append(jobs, Job{ID: f[0], State: state, Partition: f[2], Elapsed: f[3], Limit: f[4], Nodes: f[5]})
	}
	if len(jobs) == 0 {
		return nil, ErrUnknownJob
	}
	return jobs, nil
}

// Site finds out what starts ranks here. libMPI is the job's transport.libmpi.
func (t Tools) Site(ctx context.Context, libMPI string) Site {
	var s Site
	if types, err := t.MPITypes(ctx); err == nil && len(types) > 0 {
		s.MPITypes = types
	}
	s.Library = familyOfLibrary(libMPI)
	s.Programs = map[Family]string{}
	for _, name := range []string{"mpirun", "mpiexec", "mpiexec.hydra", "mpirun.openmpi", "mpirun.mpich"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		out, err := t.runBoth(ctx, path, "--version")
		if f := FamilyOfLauncher(out); err == nil && f != UnknownMPI && s.Programs[f] == "" {
			s.Programs[f] = path
			if s.Mpirun == UnknownMPI {
				s.Mpirun = f
			}
		}
	}
	return s
}

// familyOfLibrary tells whose a library is by its symbols, or by its name where only a node could read it.
func familyOfLibrary(path string) Family {
	if f, err := elf.Open(path); err == nil {
		defer f.Close()
		symbols, _ := f.DynamicSymbols()
		has := func(name string) bool {
			return slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == name && s.Section != elf.SHN_UNDEF })
		}
		switch {
		case has("ompi_mpi_comm_self"):
			return OpenMPI
		case has("MPI_Init_thread"):
			return MPICH
		}
	}
	switch name := strings.ToLower(path); {
	case path == "":
		return UnknownMPI
	case strings.HasSuffix(name, "libmpi.so.40"), strings.Contains(name, "openmpi"), strings.Contains(name, "ompi"):
		return OpenMPI
	case strings.HasSuffix(name, "libmpi.so.12"), strings.Contains(name, "mpich"), strings.Contains(name, "intel"), strings.Contains(name, "mvapich"), strings.Contains(name, "cray"):
		return MPICH
	}
	return UnknownMPI
}

// MPITypes returns what srun --mpi= may be here.
func (t Tools) MPITypes(ctx context.Context) ([]string, error) {
	out, err := t.runBoth(ctx, "srun", "--mpi=list")
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(out) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "srun: ")
		if _, rest, found := strings.Cut(line, "versions available:"); found {
			line = rest
		} else if strings.ContainsAny(line, ".:") || strings.Contains(line, " are") {
			continue // the heading
		}
		names = append(names, strings.FieldsFunc(line, func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	return names, nil
}

// run returns a program's stdout.
func (t Tools) run(ctx context.Context, name string, args ...string) (string, error) {
	out, _, err := t.ask(ctx, name, args...)
	return out, err
}

// runBoth returns stdout and stderr together.
func (t Tools) runBoth(ctx context.Context, name string, args ...string) (string, error) {
	out, said, err := t.ask(ctx, name, args...)
	return out + said, err
}

func (t Tools) ask(ctx context.Context, name string, args ...string) (out, said string, err error) {
	patience := t.Patience
	if patience == 0 {
		patience = Patience
	}
	path, err := exec.LookPath(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
			return "", "", fmt.Errorf("%s is not in PATH: this machine does not submit to Slurm; log in to one that does, or load its Slurm module", name)
		}
		return "", "", fmt.Errorf("%s cannot be started: %w", name, err)
	}
	// Slurm's programs wait a minute for the file to appear.
	if _, err := os.Stat(t.Conf); t.Conf != "" && err != nil {
		return "", "", fmt.Errorf("%s finds no cluster: SLURM_CONF=%s cannot be read (%w): correct or unset it", name, t.Conf, errors.Unwrap(err))
	}
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(within, path, args...)
	cmd.WaitDelay = time.Second
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", "", &UncertainError{fmt.Errorf("%s was interrupted: %w", name, context.Cause(ctx))}
	case within.Err() != nil:
		return "", "", &UncertainError{fmt.Errorf("%s did not answer within %v%s: the controller does not respond; scontrol ping asks it", name, patience, because(stderr.String()))}
	case err != nil:
		return "", "", t.explain(ctx, name, stderr.String(), err)
	}
	return stdout.String(), stderr.String(), nil
}
