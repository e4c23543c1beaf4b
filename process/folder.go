package process

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/record"
)

// openFolder makes or reopens the run folder, whose lock this process then holds.
// With o.Auto it decides o.Resume.
func openFolder(o *Options, spec *jobs.Spec) (*record.Folder, error) {
	var f *record.Folder
	var err error
	switch {
	case o.Out == "":
		f, err = record.CreateNamed(spec.Run.Dir, spec.Name, time.Now())
	case o.Auto:
		o.Resume = o.Resume || hasCheckpoint(o.Out)
		if f, err = record.Create(o.Out, o.Resume); err != nil && !o.Resume {
			// What a start left that ended before its first checkpoint is written anew.
			if again, err2 := record.Create(o.Out, true); err2 == nil {
				f, err = again, nil
			}
		}
	default:
		f, err = record.Create(o.Out, o.Resume)
	}
	if err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	return f, nil
}

// hasCheckpoint says whether a run folder has a checkpoint, sound or not: one that
// is damaged is for the resume to refuse, not a reason to start afresh.
func hasCheckpoint(dir string) bool {
	entries, _ := os.ReadDir(filepath.Join(dir, record.CheckpointsName))
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return strings.HasPrefix(e.Name(), "step-") && !strings.HasSuffix(e.Name(), ".tmp")
	})
}
