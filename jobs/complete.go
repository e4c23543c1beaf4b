package jobs

import (
	"path/filepath"
	"strings"

	"github.com/pipetrain/pipetrain/schedule"
)

// complete reports required keys that are missing and fills in the defaults
// that follow from other keys.
func (l *loader) complete() {
	for _, k := range keyList {
		_, given := l.given[k.Name]
		if k.Required && !given && !l.bad[k.Name] && k.of(l.spec.Model.Kind) {
			l.bad[k.Name] = true
			// An unknown key that was meant to be this one is report enough.
			if !l.meant[k.Name] {
				l.mistake(k.Name, "is missing", "give it in ["+k.table()+"]: "+firstSentence(k.Doc), "")
			}
		}
	}
	s := &l.spec
	missing := func(key string) bool { _, given := l.given[key]; return !given }
	if missing("name") {
		s.Name = nameOf(l.file)
	}
	l.completeModel(missing)
	l.completeSchedule(missing)
	if missing("run.dir") {
		if dir, err := filepath.Abs("runs"); err == nil {
			s.Run.Dir = dir
		} else {
			l.mistake("run.dir", "the working directory is unknown: "+err.Error(), "give run.dir as an absolute path", "")
		}
	}
}

// completeSchedule fills in what the kind of schedule decides.
func (l *loader) completeSchedule(missing func(string) bool) {
	s := &l.spec
	info, known := schedule.Lookup(s.Schedule.Kind)
	if s.Schedule.Kind == KindAuto || s.Schedule.Kind == KindFile {
		l.completeCustom(missing)
	}
	if missing("schedule.chunks") && known {
		s.Schedule.Chunks = max(1, info.DefaultChunks)
	}
	if missing("schedule.backward_p2") && known {
		switch {
		case info.Async:
			s.Schedule.BackwardP2 = string(schedule.PlaceFused)
		case info.Split:
			s.Schedule.BackwardP2 = string(schedule.PlaceNative)
		}
	}
	if missing("optimizer.clip") && known && info.Async {
		s.Optimizer.Clip = 0
	}
	if missing("schedule.microbatches") && s.custom == nil {
		s.Schedule.Microbatches = s.Parallel.Stages
		if known && l.ok("parallel.stages", "schedule.chunks") {
			s.Schedule.Microbatches = max(s.Parallel.Stages, info.MinMicrobatches(s.Parallel.Stages, s.Schedule.Chunks))
		}
		l.follow("schedule.microbatches", "parallel.stages")
	}
	for _, key := range []string{"schedule.chunks", "schedule.backward_p2", "schedule.microbatches", "optimizer.clip"} {
		if missing(key) {
			l.follow(key, "schedule.kind")
		}
	}
}

// follow marks a key that follows from another as unknown when that one is.
func (l *loader) follow(key, from string) {
	if l.bad[from] {
		l.bad[key] = true
	}
}

// nameOf makes a job's name of its file's name.
func nameOf(file string) string {
	name := strings.TrimSuffix(filepath.Base(file), ".toml")
	name = strings.Map(func(r rune) rune {
		if isName(r) {
			return r
		}
		return '-'
	}, name)
	name = strings.TrimLeft(name, ".-")
	if len(name) > maxName {
		name = name[:maxName]
	}
	if name == "" {
		return "job"
	}
	return name
}

func firstSentence(s string) string {
	if i := strings.IndexAny(s, ".;"); i > 0 {
		return s[:i]
	}
	return s
}
