package manage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

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
	Job       string    `json:"job"` // empty: sbatch was asked, and its answer is not known
	Array     string    `json:"array,omitempty"`
	Task      string    `json:"task,omitempty"` // the folder's own, where it was submitted again by itself
	Submitted time.Time `json:"submitted"`
}

func writeTicket(out string, t ticket) error {
	b, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	return record.WriteFile(filepath.Join(out, ticketName), append(b, '\n'))
}

// errNoAnswer says that a folder may have a job, and Slurm could not be asked which.
var errNoAnswer = errors.New("whether the folder has a job in Slurm is not known")

// readTicket returns the job of a run folder; fs.ErrNotExist where it was not submitted. A job whose
// number sbatch never told is looked for in Slurm; Job stays empty where there is none.
func readTicket(ctx context.Context, out string, tools slurm.Tools) (ticket, error) {
	var t ticket
	b, err := os.ReadFile(filepath.Join(out, ticketName))
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(b, &t); err != nil {
		return t, fmt.Errorf("%s: it names no job (%v)", filepath.Join(out, ticketName), err)
	}
	if t.Job != "" {
		return t, nil
	}
	script := filepath.Join(out, batchName)
	if t.Task != "" {
		script = filepath.Join(filepath.Dir(out), batchName)
	}
	switch id, err := tools.JobOf(ctx, script); {
	case err == nil:
		if t.Job = id; t.Task != "" {
			t.Job += "_" + t.Task
		}
		_ = writeTicket(out, t) // it is asked again next time
	case !errors.Is(err, slurm.ErrUnknownJob):
		return t, fmt.Errorf("%w: %w", errNoAnswer, err)
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
