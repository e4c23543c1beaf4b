package exitcode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/pipetrain/pipetrain/durable"
)

// File is the exit record's name in the run folder.
const File = "exit.json"

// NoRank is Record.Rank where no single rank is to blame.
const NoRank = -1

// Record says how a run ended. One is in the run folder of every run that
// ended by itself; its absence means that the run still goes on or that nobody
// was left to write it (the whole node died).
type Record struct {
	Code     Code      `json:"exit_code"`
	Name     string    `json:"status"` // Code's name; filled in on writing
	Reason   string    `json:"reason"` // one sentence, empty when finished
	Rank     int       `json:"rank"`   // the rank that failed first, or NoRank
	Host     string    `json:"host"`   // of that rank, else of the writer
	PID      int       `json:"pid"`    // of that rank, else of the writer
	Signal   string    `json:"signal"` // "SIGKILL", where a signal ended the rank
	Time     time.Time `json:"time"`   // of the failure or the end
	Step     int64     `json:"step"`   // last step finished, 0 before the first
	Launcher string    `json:"launcher"`
}

// Path is the exit record of a run folder.
func Path(runDir string) string { return filepath.Join(runDir, File) }

// Write puts r into the run folder, replacing an older record, so that a reader
// sees the old record or the new one whole, also after a power failure.
func Write(runDir string, r Record) error {
	f, err := stage(runDir, &r)
	if err == nil {
		err = f.Commit()
	}
	return named(err)
}

// WriteFirst puts r into the run folder unless a record is there already; won
// says whether it was this one. Ranks that have no launcher of ours above them
// (mpirun, srun) all call it when they fail: the first failure is kept.
func WriteFirst(runDir string, r Record) (won bool, err error) {
	f, err := stage(runDir, &r)
	if err == nil {
		won, err = f.CommitNew()
	}
	return won, named(err)
}

func named(err error) error {
	if err != nil {
		return fmt.Errorf("exit record: %w", err)
	}
	return nil
}

// Read returns the run folder's record; fs.ErrNotExist where there is none.
func Read(runDir string) (Record, error) {
	b, err := os.ReadFile(Path(runDir))
	if err != nil {
		return Record{}, fmt.Errorf("exit record: %w", err)
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return Record{}, fmt.Errorf("exit record %s: %w", Path(runDir), err)
	}
	return r, nil
}

// Clear removes the record of an earlier run in the same folder; a run that
// resumes calls it before it starts.
func Clear(runDir string) error {
	if err := os.Remove(Path(runDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("exit record of the earlier run: %w", err)
	}
	return nil
}

// stage fills the record's gaps and writes it beside the final name.
func stage(runDir string, r *Record) (*durable.File, error) {
	r.Name = r.Code.Name()
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
	if r.Host == "" {
		r.Host, _ = os.Hostname()
	}
	if r.PID == 0 {
		r.PID = os.Getpid()
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, err
	}
	f, err := durable.Create(Path(runDir))
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(append(b, '\n')); err != nil {
		f.Discard()
		return nil, err
	}
	return f, nil
}
