package jobs

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/pipetrain/pipetrain/schedule"
)

// DeviceRehearse is the device.kind that computes nothing.
const DeviceRehearse = "rehearse"

// Kinds of schedule that are no builder's.
const (
	KindFile = "file" // a schedule file that the user gives
	KindAuto = "auto" // searched for when the run starts; schedule.file then names what was found
)

// scheduleKinds lists what schedule.kind may be.
func scheduleKinds() []string { return append(schedule.Names(), KindAuto, KindFile) }

// maxScheduleBytes bounds a schedule file; one of maxOps ops has less.
const maxScheduleBytes = 128 << 20

// ScheduleName returns the kind of schedule in words for summaries: of a file also its name.
func (s *Spec) ScheduleName() string {
	if s.Schedule.Kind == KindFile && s.custom != nil && s.custom.Name != "" {
		return KindFile + " " + s.custom.Name
	}
	return s.Schedule.Kind
}

// UseSchedule makes BuildSchedule return the schedule of a file: what a search found, or a
// copy of the user's in the run folder. The schedule must have been checked.
func (s *Spec) UseSchedule(found *schedule.Schedule, path string) {
	s.custom, s.Schedule.File = found, path
	s.Schedule.Chunks = max(1, found.Stages/found.Ranks)
}

// CustomSchedule returns the schedule of schedule.file as it was read and checked; nil where the job has none.
func (s *Spec) CustomSchedule() *schedule.Schedule { return s.custom }

// readCustom reads and checks a schedule file. The grid shows where it is wrong, and may be empty.
func readCustom(path string) (s *schedule.Schedule, what, right, grid string) {
	size, what := fileSize(path)
	switch {
	case what != "":
		return nil, showPath(path) + " " + what, "pipetrain schedule export writes one", ""
	case size > maxScheduleBytes:
		return nil, fmt.Sprintf("%s has %d bytes", showPath(path), size), fmt.Sprintf("at most %d", maxScheduleBytes), ""
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, "cannot be read: " + reason(err), "", ""
	}
	s, _, err = schedule.Read(text)
	if err == nil {
		err = schedule.Check(s)
	}
	var wrong *schedule.CheckError
	switch {
	case errors.As(err, &wrong):
		bare := *wrong
		bare.Grid = ""
		if wrong.Grid != "" {
			grid = "\n" + strings.TrimRight(wrong.Grid, "\n")
		}
		return nil, "cannot be performed: " + bare.Error(), "pipetrain schedule check says the same", grid
	case err != nil:
		return nil, err.Error(), "", ""
	}
	return s, "", "", ""
}

// completeCustom reads the job's schedule file and fills in what it decides.
func (l *loader) completeCustom(missing func(string) bool) {
	s := &l.spec
	c := &s.Schedule
	if missing("schedule.backward_p2") {
		c.BackwardP2 = string(schedule.PlaceNative)
	}
	if missing("schedule.chunks") {
		c.Chunks = 1
	}
	if c.File == "" || !l.ok("schedule.file") {
		if c.Kind == KindFile && missing("schedule.microbatches") {
			l.bad["schedule.microbatches"] = true // the file would say
		}
		if c.Kind == KindFile && l.ok("schedule.file") {
			l.mistake("schedule.file", "is missing", "schedule.kind = \"file\" runs the schedule of a file; pipetrain schedule export writes one", "")
		}
		return
	}
	found, what, right, grid := readCustom(c.File)
	if found == nil {
		l.mistake("schedule.file", what, right, "")
		l.errs[len(l.errs)-1].Excerpt = grid
		for _, key := range []string{"schedule.microbatches", "parallel.stages"} {
			if missing(key) {
				l.bad[key] = true
			}
		}
		return
	}
	s.custom = found
	if missing("optimizer.clip") && found.Async != nil {
		s.Optimizer.Clip = 0
	}
	if missing("parallel.stages") {
		s.Parallel.Stages = found.Ranks
	}
	if missing("schedule.microbatches") {
		c.Microbatches = found.Microbatches
	}
	if missing("schedule.chunks") {
		c.Chunks = max(1, found.Stages/found.Ranks)
	}
}

// validateCustom judges a schedule that is no builder's. It returns whether the job has a
// schedule that can be built now.
func (l *loader) validateCustom() bool {
	s := &l.spec
	c := &s.Schedule
	if s.custom == nil {
		if least := s.Parallel.Stages; c.Kind == KindAuto && l.ok("model.layers", "parallel.stages") && s.Model.Layers < least {
			l.mistake("model.layers", fmt.Sprintf("%d layers are too few for %d stages", s.Model.Layers, least), fmt.Sprintf("at least %d layers, or fewer stages", least), "")
		}
		if ops := 3 * s.Parallel.Stages; c.Kind == KindAuto && c.Microbatches > l.ops/ops {
			l.mistake("schedule.microbatches", fmt.Sprintf("%d over %d stages make more than %d ops a step", c.Microbatches, s.Parallel.Stages, l.ops), fmt.Sprintf("at most %d", max(1, l.ops/ops)), "")
		}
		return false
	}
	if s.Parallel.Stages != s.custom.Ranks {
		l.mistake("parallel.stages", fmt.Sprintf("%d ranks: the schedule of %s is for %d", s.Parallel.Stages, showPath(c.File), s.custom.Ranks), fmt.Sprintf("%d, or another file", s.custom.Ranks), "")
		return false
	}
	if c.Microbatches != s.custom.Microbatches {
		l.mistake("schedule.microbatches", fmt.Sprintf("%d: the schedule of %s is for %d", c.Microbatches, showPath(c.File), s.custom.Microbatches), fmt.Sprintf("%d, or another file", s.custom.Microbatches), "")
		return false
	}
	return true
}
