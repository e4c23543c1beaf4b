package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	choice, err := chooseLauncher(ctx, spec, tools)
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	write := func(out string) (string, error) {
		script, err := slurm.Script(spec, slurm.Launch{Binary: s.Binary, Job: filepath.Join(out, submittedName), Sets: perTask, Out: out, Choice: choice})
		return script, exitcode.With(exitcode.Usage, err)
	}
	out, err := filepath.Abs(cmp.Or(s.Out, filepath.Join(spec.Run.Dir, spec.Name+"-"+time.Now().Format("20060102-150405"))))
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	script, err := write(out)
	if err != nil {
		return err
	}
	if s.DryRun {
		_, err := io.WriteString(w, script)
		return err
	}
	c, err := claimFolder(out, s.Out == "")
	if err != nil {
		return err
	}
	defer c.release()
	if err := mayUse(ctx, c.dir, tools); err != nil {
		return err
	}
	if c.dir != out {
		if script, err = write(c.dir); err != nil {
			return err
		}
	}
	id, err := c.submit(ctx, script, spec, tools)
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	how := "srun --mpi=" + choice.MPI
	if choice.Launcher == "mpirun" {
		how = choice.Mpirun[0]
	}
	fmt.Fprintf(w, "submitted job %s: %s\n  ranks    %d, started by %s (%s)\n  follow   pipetrain logs -f %s\n  look     pipetrain status %s\n",
		id, c.dir, spec.World(), how, choice.Why, id, id)
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

// submit writes what a job needs into its run folder and hands the script to Slurm.
func (c *claim) submit(ctx context.Context, script string, spec *jobs.Spec, tools slurm.Tools) (id string, err error) {
	// Slurm makes no folders for its logs, and a job whose log cannot be written fails without a word.
	if err := os.MkdirAll(filepath.Join(c.dir, slurm.LogsName), 0o755); err != nil {
		return "", cannotUse(c.dir, err)
	}
	variables := len(spec.Slurm.Environment) > 0
	if err := record.WriteJob(filepath.Join(c.dir, submittedName), spec.Resolved(), variables); err != nil {
		return "", err
	}
	file := filepath.Join(c.dir, batchName)
	if err := record.WriteJob(file, []byte(script), variables); err != nil {
		return "", err
	}
	if err := forgetRestarts(c.dir); err != nil {
		return "", err
	}
	return c.handOver(ctx, file, ticket{Array: spec.Slurm.Array}, tools)
}

// mayUse refuses a folder that a run has, that a job waits or runs in, or that has nothing left to do.
func mayUse(ctx context.Context, out string, tools slurm.Tools) error {
	if rec, err := exitcode.Read(out); err == nil && rec.Code == exitcode.Finished {
		return exitcode.Errorf(exitcode.Usage, "the run in %s has finished: choose another folder with --out", out)
	}
	if record.InUse(out) {
		return exitcode.Errorf(exitcode.Usage, "a run goes on in %s: pipetrain cancel %[1]s ends it, or choose another folder with --out", out)
	}
	t, err := readTicket(ctx, out, tools)
	if errors.Is(err, errNoAnswer) {
		return exitcode.With(exitcode.Environment, err)
	}
	if err != nil || t.Job == "" {
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
