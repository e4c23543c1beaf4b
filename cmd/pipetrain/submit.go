package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/slurm"
)

// Names in the folder of a submitted run.
const (
	batchName     = "job.sbatch"
	submittedName = "submitted.toml" // the job as it was submitted: what is edited later is for later
	ticketName    = "slurm.json"
)

// ticket remembers in the run folder which job of Slurm it belongs to.
type ticket struct {
	Job       string    `json:"job"`
	Array     string    `json:"array,omitempty"`
	Submitted time.Time `json:"submitted"`
}

func submitCommand(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name: "submit", Usage: "hand a job to Slurm as a batch script made from its [slurm] table", ArgsUsage: "JOB.toml",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "set", Usage: "override a key of the job: `KEY=VALUE`; %a is the number of an array's task"},
			&cli.StringFlag{Name: "out", Usage: "run folder `DIR`, with script and logs (default: a new one in run.dir)"},
			&cli.StringFlag{Name: "mpi", Usage: "`KIND` for srun --mpi: short for --set slurm.mpi=KIND"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print the script and submit nothing"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Len() != 1 {
				return exitcode.Errorf(exitcode.Usage, "submit: want one job file, got %d arguments", c.Args().Len())
			}
			sets := c.StringSlice("set")
			if mpi := c.String("mpi"); mpi != "" {
				sets = append(sets, "slurm.mpi="+mpi)
			}
			return submit(ctx, submission{job: c.Args().First(), sets: sets, out: c.String("out"), dryRun: c.Bool("dry-run")}, stdout, stderr)
		},
	}
}

type submission struct {
	job    string
	sets   []string
	out    string
	dryRun bool
}

func submit(ctx context.Context, s submission, stdout, stderr io.Writer) error {
	spec, perTask, err := s.load()
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	if s.out == "" {
		s.out = filepath.Join(spec.Run.Dir, spec.Name+"-"+time.Now().Format("20060102-150405"))
	}
	self, err1 := os.Executable()
	out, err2 := filepath.Abs(s.out)
	if err := errors.Join(err1, err2); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	tools := slurm.Tools{Conf: os.Getenv("SLURM_CONF")}
	choice, err := chooseLauncher(ctx, spec, tools)
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	script, err := slurm.Script(spec, slurm.Launch{Binary: self, Job: filepath.Join(out, submittedName), Sets: perTask, Out: out, Choice: choice})
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	if s.dryRun {
		_, err := io.WriteString(stdout, script)
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
	fmt.Fprintf(stdout, "submitted job %s: %s\n  ranks    %d, started by %s (%s)\n  follow   pipetrain logs -f %s\n  look     pipetrain status %s\n",
		id, out, spec.World(), how, choice.Why, id, id)
	return nil
}

// load reads the job; what differs between the tasks of an array stays for the script to fill in.
func (s submission) load() (spec *jobs.Spec, perTask []string, err error) {
	isPerTask := func(set string) bool { return strings.Contains(set, "%a") }
	common := slices.DeleteFunc(slices.Clone(s.sets), isPerTask)
	if spec, err = jobs.Load(s.job, common); err != nil || len(common) == len(s.sets) {
		return spec, nil, err
	}
	perTask = slices.DeleteFunc(slices.Clone(s.sets), func(set string) bool { return !isPerTask(set) })
	if spec.Slurm.Array == "" {
		return nil, nil, fmt.Errorf("--set %s: %%a is the number of an array's task, and there is no slurm.array", perTask[0])
	}
	first := spec.Slurm.Array[:strings.IndexFunc(spec.Slurm.Array+",", func(r rune) bool { return r < '0' || r > '9' })]
	filled := slices.Clone(s.sets)
	for i := range filled {
		filled[i] = strings.ReplaceAll(filled[i], "%a", first)
	}
	_, err = jobs.Load(s.job, filled) // for its mistakes
	return spec, perTask, err
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

func writeTicket(out string, t ticket) error {
	b, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	return record.WriteFile(filepath.Join(out, ticketName), append(b, '\n'))
}

// readTicket returns the job of a run folder; fs.ErrNotExist where it was not submitted.
func readTicket(out string) (ticket, error) {
	var t ticket
	b, err := os.ReadFile(filepath.Join(out, ticketName))
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(b, &t); err != nil || t.Job == "" {
		return t, fmt.Errorf("%s: it names no job (%v)", filepath.Join(out, ticketName), err)
	}
	return t, nil
}

// forgetRestarts lets a run, and the tasks below it, be started again as often as at first.
func forgetRestarts(out string) error {
	files, _ := filepath.Glob(filepath.Join(globEscape(out), "task-*", slurm.RestartsName))
	for _, f := range append(files, filepath.Join(out, slurm.RestartsName)) {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// globEscape keeps a folder's name from being read as a pattern.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}
