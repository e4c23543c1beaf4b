package jobs

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/schedule"
)

const customJob = `
[model]
layers = 4
dim = 32
heads = 4
seq = 16
[data]
kind = "synthetic"
[train]
steps = 1
batch = 12
[optimizer]
clip = 0
`

func scheduleFile(t *testing.T, kind string, edit func(string) string) string {
	t.Helper()
	s, err := schedule.Build(kind, schedule.Config{Ranks: 2, Microbatches: 4})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s.txt")
	if err := os.WriteFile(path, []byte(edit(schedule.Format(s))), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func same(s string) string { return s }

// A schedule file decides ranks, micro-batches and chunks, and the resolved job loads to the same.
func TestScheduleFile(t *testing.T) {
	path := scheduleFile(t, "zb-v", same)
	spec, err := Parse("job.toml", []byte(customJob), []string{"schedule.kind=file", "schedule.file=" + path}, ".")
	if err != nil {
		t.Fatal(err)
	}
	if spec.Parallel.Stages != 2 || spec.Schedule.Microbatches != 4 || spec.Schedule.Chunks != 2 || spec.Schedule.BackwardP2 != "native" || spec.ScheduleName() != "file zb-v" {
		t.Errorf("%+v %+v", spec.Parallel, spec.Schedule)
	}
	got, err := spec.BuildSchedule()
	want, _ := schedule.Build("zb-v", schedule.Config{Ranks: 2, Microbatches: 4})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: another schedule than the file's", err)
	}
	again, err := Parse("job.toml", spec.Resolved(), nil, "/")
	if err != nil || !reflect.DeepEqual(again, spec) {
		t.Errorf("%v: the resolved job is another", err)
	}
	// A file may have its transfers, which ranks then perform as they stand there.
	low, err := schedule.Lower(want)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(schedule.Format(low)), 0o644); err != nil {
		t.Fatal(err)
	}
	if spec, err = Parse("job.toml", []byte(customJob), []string{"schedule.kind=file", "schedule.file=" + path}, "."); err != nil {
		t.Fatal(err)
	}
	if got, err := spec.BuildSchedule(); err != nil || !reflect.DeepEqual(got, low) {
		t.Errorf("%v: a lowered file gives another schedule", err)
	}
	if _, err = Parse("job.toml", []byte(customJob), []string{"schedule.kind=file", "schedule.file=" + path, "schedule.backward_p2=end"}, "."); err == nil || !strings.Contains(err.Error(), "lowered already") {
		t.Errorf("backward-p2 of a lowered file: %v", err)
	}
	// The dial works on a file too.
	split, err := Parse("job.toml", []byte(customJob), []string{"schedule.kind=file", "schedule.file=" + scheduleFile(t, "1f1b", same), "schedule.backward_p2=end"}, ".")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := split.BuildSchedule(); err != nil || !strings.Contains(schedule.Format(s), "0W3") {
		t.Errorf("%v: backward-p2 was not placed", err)
	}
}

// With kind auto there is no schedule until one is found.
func TestScheduleAuto(t *testing.T) {
	spec, err := Parse("job.toml", []byte(customJob), []string{"schedule.kind=auto", "parallel.stages=2", "schedule.microbatches=4"}, ".")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := spec.BuildSchedule(); err == nil || spec.CustomSchedule() != nil {
		t.Error("a schedule that nobody searched for")
	}
	if _, err := Parse("job.toml", spec.Resolved(), nil, "/"); err != nil {
		t.Errorf("the resolved job: %v", err)
	}
	path := scheduleFile(t, "1f1b", same)
	found, _ := schedule.Build("1f1b", schedule.Config{Ranks: 2, Microbatches: 4})
	spec.UseSchedule(found, path)
	again, err := Parse("job.toml", spec.Resolved(), nil, "/")
	if err != nil || !reflect.DeepEqual(again, spec) || again.Schedule.Kind != "auto" {
		t.Errorf("%v: %+v", err, again)
	}
}

func TestScheduleFileMistakes(t *testing.T) {
	good := scheduleFile(t, "1f1b", same)
	for _, c := range []struct{ sets, want string }{
		{"schedule.kind=file", "schedule.file: is missing"},
		{"schedule.kind=file schedule.file=/no/such", `schedule.file: "/no/such" does not exist`},
		{"schedule.kind=file schedule.file=" + t.TempDir(), "is a folder"},
		{"schedule.kind=file parallel.stages=4 schedule.file=" + good, "parallel.stages: 4 ranks: the schedule of"},
		{"schedule.kind=file schedule.microbatches=2 schedule.file=" + good, "schedule.microbatches: 2: the schedule of"},
		{"schedule.kind=file model.layers=1 schedule.file=" + good, "model.layers: 1 layers are too few for 2 stages"},
		{"schedule.kind=file train.batch=2 schedule.file=" + good, "train.batch: 2 sequences cannot be shared out"},
		{"schedule.kind=file optimizer.clip=1 schedule.file=" + scheduleFile(t, "pipedream", same), "optimizer.clip: 1 needs the gradient norm"},
		{"schedule.kind=1f1b schedule.file=" + good, `schedule.file: has no effect with schedule.kind = "1f1b"`},
		{"schedule.kind=1f1b schedule.profile=/no/such", "schedule.profile: \"/no/such\" does not exist"},
		{"schedule.kind=auto model.layers=1 parallel.stages=2", "model.layers: 1 layers are too few"},
		{"schedule.kind=file schedule.file=" + scheduleFile(t, "1f1b", func(s string) string { return strings.Replace(s, "1B0", "1B0 1B0", 1) }),
			"cannot be performed: rank 1: op 2 (1B0): 1B0 is there twice"},
		{"schedule.kind=file schedule.file=" + scheduleFile(t, "1f1b", func(s string) string { return s[:20] }), "line 1"},
	} {
		_, err := Parse("job.toml", []byte(customJob), strings.Fields(c.sets), ".")
		if err == nil {
			t.Errorf("%s: no mistake found", c.sets)
			continue
		}
		if list := err.(*MistakesError).List; len(list) != 1 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want the one mistake %q, got\n%v", c.sets, c.want, err)
		}
	}
	// The op is marked.
	bad := scheduleFile(t, "1f1b", func(s string) string { return strings.Replace(s, "1B0", "1B0 1B0", 1) })
	_, err := Parse("job.toml", []byte(customJob), []string{"schedule.kind=file", "schedule.file=" + bad}, ".")
	if err == nil || !strings.Contains(fmt.Sprint(err), "[1B0]") {
		t.Errorf("the op is not marked: %v", err)
	}
}
