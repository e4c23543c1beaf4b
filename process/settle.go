package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/pipetrain/pipetrain/costs"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/plan"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/schedule"
)

// ScheduleName is the file in a run folder that holds the schedule of a job that names no builder.
const ScheduleName = "schedule.txt"

// settle gives a job with schedule.kind = "auto" the schedule that is found for it, and
// puts that, or the user's file, into the run folder, which the resolved job then names: the run can be
// repeated when the file is long gone. A resumed run keeps the schedule it began with.
func settle(spec *jobs.Spec, folder *record.Folder, scratch func(*jobs.Spec) (kernels.Device, error), say io.Writer) error {
	if spec.Schedule.Kind != jobs.KindAuto && spec.Schedule.Kind != jobs.KindFile {
		return nil
	}
	if folder.Resumed {
		err := adopt(spec, folder)
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	s := spec.CustomSchedule()
	if s == nil {
		source, err := costs.Named(spec)
		if err != nil {
			return exitcode.With(exitcode.Usage, err)
		}
		ops, err := scratch(spec)
		if err != nil {
			return err
		}
		defer ops.Close()
		found, err := plan.Solve(spec, source, ops)
		if err != nil {
			return exitcode.With(exitcode.Usage, err)
		}
		s = found.Schedule
		fmt.Fprintf(say, "%v\n  times from %s; the schedule is %s in the run folder\n", found, found.Costs, ScheduleName)
	}
	path, err := filepath.Abs(folder.File(ScheduleName))
	if err == nil {
		err = record.WriteFile(path, []byte(schedule.Format(s)))
	}
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	spec.UseSchedule(s, path)
	return nil
}

// adopt takes the schedule that the run folder has.
func adopt(spec *jobs.Spec, folder *record.Folder) error {
	if spec.Schedule.Kind != jobs.KindAuto && spec.Schedule.Kind != jobs.KindFile {
		return nil
	}
	path, err := filepath.Abs(folder.File(ScheduleName))
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	s, err := schedule.Parse(string(text))
	if err == nil {
		err = schedule.Check(s)
	}
	if err == nil && (s.Ranks != spec.Parallel.Stages || s.Microbatches != spec.Schedule.Microbatches) {
		err = fmt.Errorf("it is for %d ranks and %d micro-batches, the job has %d and %d", s.Ranks, s.Microbatches, spec.Parallel.Stages, spec.Schedule.Microbatches)
	}
	if err != nil {
		return exitcode.With(exitcode.Usage, fmt.Errorf("%s: %w", path, err))
	}
	spec.UseSchedule(s, path)
	return nil
}
