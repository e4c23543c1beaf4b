package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/schedule"
)

const planJob = `
name = "planned"
[model]
layers = 8
dim = 64
heads = 4
seq = 64
[data]
kind = "synthetic"
[train]
steps = 2
batch = 16
[parallel]
stages = 4
[schedule]
microbatches = 8
[device]
threads = 1
blas = "go"
`

// planned is what programs may rely on.
type planned struct {
	Schedule                    string
	Ranks, Stages, Microbatches int
	Makespan, Bubble            float64
	Idle                        []float64
	PeakMicrobatches            []float64 `json:"peak_microbatches"`
	PeakBytes                   []int64   `json:"peak_bytes"`
	Transfers                   int
	Unit                        string
	Alternatives                []planned
}

func mustPlan(t *testing.T, args ...string) planned {
	t.Helper()
	got := call(append(append([]string{"plan"}, args...), "--json")...)
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("plan %q: %+v", args, got)
	}
	var p planned
	if err := json.Unmarshal([]byte(got.stdout), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPlanJSON(t *testing.T) {
	job := temp(t, "job.toml", planJob)
	p := mustPlan(t, job, "--cost", "F=1,I=1,W=1,transfer=0")
	if p.Schedule != "1f1b" || p.Ranks != 4 || p.Stages != 4 || p.Microbatches != 8 || p.Makespan != 27 || p.Bubble < 0.111 || p.Bubble > 0.1112 ||
		!slices.Equal(p.Idle, []float64{3, 3, 3, 3}) || len(p.PeakBytes) != 4 || p.PeakBytes[0] < 1<<20 || p.Transfers != 48 || p.Unit != "units" {
		t.Errorf("%+v", p)
	}
	kinds := map[string]bool{}
	for _, a := range p.Alternatives {
		kinds[a.Schedule] = true
		if a.Ranks != 4 || a.Microbatches != 8 || a.Makespan <= 0 || len(a.Idle) != 4 || len(a.PeakBytes) != 4 || len(a.PeakMicrobatches) != 4 || a.Transfers == 0 {
			t.Errorf("%+v", a)
		}
	}
	for _, name := range append(schedule.Names(), "auto") {
		if !kinds[name] {
			t.Errorf("no alternative is %s", name)
		}
	}
	// Times are seconds where a device is assumed, and a faster one is faster.
	slow, fast := mustPlan(t, job, "--tflops", "1", "--gbps", "10"), mustPlan(t, job, "--tflops", "1000", "--gbps", "10000")
	if slow.Unit != "s" || !(fast.Makespan < slow.Makespan) {
		t.Errorf("makespan %v on a slow device, %v on a fast one", slow.Makespan, fast.Makespan)
	}
}

// The text is for people: drawing, idle times, memory, table, Pareto front.
func TestPlanText(t *testing.T) {
	job := temp(t, "job.toml", planJob)
	got := call("plan", job, "--cost", "F=1,I=1.5,W=1,transfer=0.1", "--width", "110", "--set", "schedule.memory_limit=4MiB")
	if got.code != 0 {
		t.Fatal(got)
	}
	// Sizes are the engine's and the search's results are the search's: other tests hold them.
	own, table, _ := strings.Cut(got.stdout, "\nall schedules")
	golden(t, "plan.txt", regexp.MustCompile(` *[\d.]+ ([KMG]i)?B`).ReplaceAllString(own, " SIZE"))
	for _, want := range []string{"fused", ">!34.4 ", "! over the memory limit", "naive", "pipedream-2bw", "Pareto front", "against the job", "asynchronous kinds"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

// The planned memory is what a run measures, and the page is written.
func TestPlanAgainstRun(t *testing.T) {
	job := temp(t, "job.toml", planJob)
	dir := t.TempDir()
	page := filepath.Join(dir, "plan.html")
	p := mustPlan(t, job, "--html", page)
	if b, err := os.ReadFile(page); err != nil || !strings.Contains(string(b), `"name":"planned"`) {
		t.Errorf("%v: no page", err)
	}
	mustRun(t, "--quiet", "--out", filepath.Join(dir, "run"), job)
	s, err := record.ReadSummary(filepath.Join(dir, "run", record.SummaryName))
	if err != nil || !slices.Equal(s.PeakBytesMeasured, p.PeakBytes) {
		t.Errorf("%v: measured %v, planned %v", err, s.PeakBytesMeasured, p.PeakBytes)
	}
}

func TestPlanUsage(t *testing.T) {
	job := temp(t, "job.toml", planJob)
	bad := temp(t, "bad.toml", strings.Replace(planJob, "heads = 4", "heads = 5", 1))
	noProfile := temp(t, "p.json", "{}")
	for _, c := range []struct{ args, want string }{
		{"plan", "want one job file, got 0"},
		{"plan " + job + " " + job, "want one job file, got 2"},
		{"plan " + bad, "model.heads"},
		{"plan /no/such.toml", "no such file"},
		{"plan " + job + " --cost F", "not NAME=NUMBER"},
		{"plan " + job + " --tflops 0", "--tflops: want a rate above 0"},
		{"plan " + job + " --tflops x", "invalid"},
		{"plan " + job + " --link-latency -1s", "--link-latency: want a time from 0"},
		{"plan " + job + " --node-ranks -1", "--node-ranks: want 0 or more"},
		{"plan " + job + " --profile /no/such", "no such file"},
		{"plan " + job + " --profile " + noProfile, "no profile of pipetrain"},
		{"plan " + job + " --profile x --tflops 1", "give one of them"},
		{"plan " + job + " --profile x --inter-gbps 1", "say with --node-ranks"},
		{"plan " + job + " --profile x --cost F=1", "give one of them"},
		{"plan " + job + " --set schedule.kind=auto --set schedule.memory_limit=1kB", "no schedule fits"},
		{"plan " + job + " --what", "not defined"},
		{"profile", "want one job file, got 0"},
		{"profile --run /no/such", "no such file"},
	} {
		got := call(strings.Fields(c.args)...)
		if got.code != 2 || !strings.Contains(got.stderr, c.want) || got.stdout != "" {
			t.Errorf("pipetrain %s: want exit code 2 and %q, got %+v", c.args, c.want, got)
		}
	}
}

// A schedule of a file, and one that is found, train to the losses of the job's own; the run
// folder holds the schedule, and runs again when the file is gone.
func TestRunOfSchedules(t *testing.T) {
	job := temp(t, "job.toml", planJob)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	mustRun(t, "--quiet", "--out", at("own"), job)
	want := losses(t, at("own"))

	file := at("mine.csv")
	if got := call("schedule", "export", "--kind", "zb-h2", "--ranks", "4", "--microbatches", "8", "--format", "csv", "-o", file); got.code != 0 {
		t.Fatal(got)
	}
	mustRun(t, "--quiet", "--out", at("file"), job, "--set", "schedule.kind=file", "--set", "schedule.file="+file)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "--quiet", "--out", at("again"), filepath.Join(at("file"), "job.toml"))
	auto := mustRun(t, "--out", at("auto"), job, "--set", "schedule.kind=auto")
	if !strings.Contains(auto.stdout, "above the lower bound") {
		t.Errorf("it does not say how far from the lower bound it is:\n%s", auto.stdout)
	}
	for _, run := range []string{"file", "again", "auto"} {
		if got := losses(t, at(run)); !slices.Equal(got, want) {
			t.Errorf("%s: losses %v, want %v", run, got, want)
		}
		if got := call("schedule", "check", filepath.Join(at(run), scheduleName)); got.code != 0 {
			t.Errorf("%s: %+v", run, got)
		}
	}
	spec, err := jobs.Load(filepath.Join(at("auto"), record.JobName), nil)
	if err != nil || spec.Schedule.Kind != "auto" || spec.Schedule.File != filepath.Join(at("auto"), scheduleName) {
		t.Errorf("%v: the resolved job names %q", err, spec.Schedule.File)
	}
	// A wrong file stops the job before anything starts.
	wrong := temp(t, "wrong.txt", "pipetrain-schedule 1\nranks 4\n")
	got := call("--out", at("wrong"), job, "--set", "schedule.kind=file", "--set", "schedule.file="+wrong)
	if _, err := os.Stat(at("wrong")); got.code != 2 || !os.IsNotExist(err) || !strings.Contains(got.stderr, "schedule.file") {
		t.Errorf("%+v, %v", got, err)
	}
}

// A profile is measured by real steps, and a plan made of it has seconds.
func TestProfileCommand(t *testing.T) {
	job := temp(t, "job.toml", planJob)
	dir := t.TempDir()
	file := filepath.Join(dir, "profile.json")
	runs := filepath.Join(dir, "runs")
	e := mustRun(t, "profile", "--set", "run.dir="+runs, "--set", "parallel.stages=2", "-o", file, job)
	if !regexp.MustCompile(`a profile of planned on cpu in fp32: 2 stages, \d+ steps`).MatchString(e.stdout) {
		t.Errorf("%s", e.stdout)
	}
	if _, err := os.Stat(runs); !os.IsNotExist(err) {
		t.Errorf("the profile's runs are left: %v", err)
	}
	// It serves other numbers of ranks, and jobs that name it.
	p := mustPlan(t, job, "--profile", file)
	same := mustPlan(t, job, "--set", "schedule.profile="+file)
	if p.Unit != "s" || p.Ranks != 4 || p.Makespan <= 0 || same.Makespan != p.Makespan {
		t.Errorf("%v %v", p.Makespan, same.Makespan)
	}
	if got := call("plan", job, "--profile", file, "--set", "model.layers=9"); got.code != 2 || !strings.Contains(got.stderr, "measure again") {
		t.Errorf("%+v", got)
	}
}
