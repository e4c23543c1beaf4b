package manage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/slurm"
)

// Submission is a job on its way to Slurm.
type Submission struct {
	Job    string   // file
	Sets   []string // KEY=VALUE; %a is the number of an array's task
	Out    string   // run folder; empty: a new one in run.dir
	Binary string   // what the script starts
	DryRun bool     // write the script to w and submit nothing
}

// Submit makes a run folder with a batch script in it and hands that to sbatch.
func (s Submission) Submit(ctx context.Context, tools slurm.Tools, w io.Writer) error {
	spec, perTask, err := s.load()
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	if s.Out == "" {
		s.Out = filepath.Join(spec.Run.Dir, spec.Name+"-"+time.Now().Format("20060102-150405"))
	}
	out, err := filepath.Abs(s.Out)
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	choice, err := chooseLauncher(ctx, spec, tools)
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	script, err := slurm.Script(spec, slurm.Launch{Binary: s.Binary, Job: filepath.Join(out, submittedName), Sets: perTask, Out: out, Choice: choice})
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	if s.DryRun {
		_, err := io.WriteString(w, script)
		return err
	}
	if err := mayUse(ctx, out, tools); err != nil {
		return err
	}
	_, err = os.Stat(out)
	isNew := errors.Is(err, fs.ErrNotExist)
	id, err := place(ctx, out, script, spec, tools)
	if err != nil {
		if isNew {
			_ = os.RemoveAll(out) // holds nothing but what place wrote
		}
		return exitcode.With(exitcode.Environment, err)
	}
	how := "srun --mpi=" + choice.MPI
	if choice.Launcher == "mpirun" {
		how = choice.Mpirun[0]
	}
	fmt.Fprintf(w, "submitted job %s: %s\n  ranks    %d, started by %s (%s)\n  follow   pipetrain logs -f %s\n  look     pipetrain status %s\n",
		id, out, spec.World(), how, choice.Why, id, id)
	return nil
}

// load reads the job; what differs between the tasks of an array stays for the script to fill in.
func (s Submission) load() (spec *jobs.Spec, perTask []string, err error) {
	isPerTask := func(set string) bool { return strings.Contains(set, "%a") }
	common := slices.DeleteFunc(slices.Clone(s.Sets), isPerTask)
	if spec, err = jobs.Load(s.Job, common); err != nil || len(common) == len(s.Sets) {
		return spec, nil, err
	}
	perTask = slices.DeleteFunc(slices.Clone(s.Sets), func(set string) bool { return !isPerTask(set) })
	if spec.Slurm.Array == "" {
		return nil, nil, fmt.Errorf("--set %s: %%a is the number of an array's task, and there is no slurm.array", perTask[0])
	}
	first := spec.Slurm.Array[:strings.IndexFunc(spec.Slurm.Array+",", func(r rune) bool { return r < '0' || r > '9' })]
	filled := slices.Clone(s.Sets)
	for i := range filled {
		filled[i] = strings.ReplaceAll(filled[i], "%a", first)
	}
	_, err = jobs.Load(s.Job, filled) // for its mistakes
	return spec, perTask, err
}

// mayUse refuses a folder that a job waits or runs in, or that has nothing left to do.
func mayUse(ctx context.Context, out string, tools slurm.Tools) error {
	if rec, err := exitcode.Read(out); err == nil && rec.Code == exitcode.Finished {
		return exitcode.Errorf(exitcode.Usage, "the run in %s has finished: choose another folder with --out", out)
	}
	t, err := readTicket(out)
	if err != nil {
		return nil // none, or none that can be read
	}
	known, err := tools.Jobs(ctx, t.Job)
	if errors.Is(err, slurm.ErrUnknownJob) {
		return nil
	}
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	for _, j := range known {
		if j.Active() {
			return exitcode.Errorf(exitcode.Usage, "job %s is %s in %s already: pipetrain cancel %s ends it, or choose another folder with --out", j.ID, j.State, out, t.Job)
		}
	}
	return nil
}

// place writes what a job needs into its run folder and submits it.
func place(ctx context.Context, out, script string, spec *jobs.Spec, tools slurm.Tools) (id string, err error) {
	// Slurm makes no folders for its logs, and a job whose log cannot be written fails without a word.
	if err := os.MkdirAll(filepath.Join(out, slurm.LogsName), 0o755); err != nil {
		return "", fmt.Errorf("run folder %s cannot be made: %w: choose another with --out", out, err)
	}
	if err := record.WriteFile(filepath.Join(out, submittedName), spec.Resolved()); err != nil {
		return "", err
	}
	file := filepath.Join(out, batchName)
	if err := record.WriteFile(file, []byte(script)); err != nil {
		return "", err
	}
	if err := forgetRestarts(out); err != nil {
		return "", err
	}
	if id, err = tools.Submit(ctx, file); err != nil {
		return "", err
	}
	return id, writeTicket(out, ticket{Job: id, Array: spec.Slurm.Array, Submitted: time.Now()})
}
