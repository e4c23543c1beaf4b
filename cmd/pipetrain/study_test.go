package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/study"
)

// rehearsedJob takes about 3 ms a step on 2 ranks and computes nothing.
const rehearsedJob = `
[model]
layers = 8
dim = 512
heads = 8
seq = 128
[data]
kind = "synthetic"
[train]
steps = 20
batch = 8
[optimizer]
clip = 0.0
[parallel]
stages = 2
[schedule]
microbatches = 8
[device]
kind = "rehearse"
messages = "small"
`

// writeStudyFile puts a study and its job into a folder and goes there.
func writeStudyFile(t *testing.T, job, text string) (file string) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	for name, content := range map[string]string{"job.toml": job, "night.toml": text} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return "night.toml"
}

func readCSV(t *testing.T, path string) (rows []map[string]string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range all[1:] {
		row := map[string]string{}
		for i, name := range all[0] {
			row[name] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

const twoCases = `
job = "job.toml"
repeats = 2
warmup_runs = 1
[[axis]]
parallel.stages = [1, 2, 16]
[launch]
kind = "local"
`

// finished returns what of a study's points is the same however often it was interrupted.
func finished(t *testing.T, dir string) (out []string) {
	t.Helper()
	points, err := study.ReadPoints(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range points {
		if p.Status == study.Finished || p.Status == study.Impossible {
			out = append(out, fmt.Sprintf("%s %s round %d %s %v", p.Case, p.Label, p.Round, p.Status, p.Warmup))
		}
	}
	slices.Sort(out)
	return out
}

func TestStudy(t *testing.T) {
	file := writeStudyFile(t, rehearsedJob, twoCases)
	dry := mustRun(t, "study", "--dry-run", file).stdout
	for _, want := range []string{"3 cases × 2 repeats, local", "stages 2", "impossible: ", "node-hours"} {
		if !strings.Contains(dry, want) {
			t.Errorf("--dry-run does not say %q:\n%s", want, dry)
		}
	}
	if _, err := os.Stat("studies"); err == nil {
		t.Fatal("--dry-run left something")
	}
	if e := mustRun(t, "study", "--quiet", "--out", "out", file); e.stdout != "" {
		t.Errorf("--quiet prints %q", e.stdout)
	}
	want := finished(t, "out")
	if len(want) != 6 { // a warm-up, an impossible case, two of two
		t.Errorf("points %q", want)
	}
	points, err := study.ReadPoints("out")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range points {
		if p.Status != study.Finished {
			continue
		}
		if !p.StepSeconds.Known() || !p.BubblePlan.Known() || p.PeakBytes <= 0 || len(p.StepSecondsAll) != 14 || p.Host == "" || p.Command == "" || p.EnvironmentHash == "" || p.Version == "" ||
			!p.IdleParts["drain"].Known() {
			t.Errorf("a point lacks figures: %+v", p)
		}
	}
	rows := readCSV(t, "out/"+study.SummaryCSV)
	if len(rows) != 3 || rows[0]["runs"] != "2" || rows[2]["runs"] != "0" || rows[0]["speedup"] != "1" || rows[1]["parallel.stages"] != "2" || rows[1]["speedup_predicted"] == "" {
		t.Errorf("summary %v", rows)
	}
	if all := readCSV(t, "out/"+study.PointsCSV); len(all) != len(points) {
		t.Errorf("%d lines of %d points", len(all), len(points))
	}
	// The folder is not taken twice, nothing is run twice, and what goes on is the study in it.
	if e := pipetrain(t, "study", "--out", "out", file); e.code != 3 || !strings.Contains(e.stderr, "is not empty") {
		t.Errorf("the same folder again: %v", e)
	}
	mustRun(t, "study", "--resume", "--out", "out", file)
	if got := finished(t, "out"); !slices.Equal(got, want) {
		t.Errorf("resumed when done: %q", got)
	}
	// The page, the Markdown and JUnit are there; a run has a page of its own.
	for name, want := range map[string]string{"report.html": "Speed-up: ", "report.md": "| stages 2 |", "junit.xml": `name="stages 16"`} {
		if b, err := os.ReadFile("out/" + name); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s lacks %q (%v)", name, want, err)
		}
	}
	runs, _ := filepath.Glob("out/runs/*/r1")
	mustRun(t, "report", "-o", "run.html", runs[0])
	if b, err := os.ReadFile("run.html"); err != nil || !strings.Contains(string(b), "A step as measured") || !strings.Contains(string(b), "A step as predicted") {
		t.Errorf("the page of a run lacks its timelines (%v)", err)
	}
	if e := pipetrain(t, "report", "--md", runs[0]); e.code != 2 {
		t.Errorf("Markdown of a run: %v", e)
	}
	// Two studies against each other, and the figures for benchstat.
	table := mustRun(t, "compare", "out", "out", "--metric", "step_seconds").stdout
	if !strings.Contains(table, "sec/step") || !strings.Contains(table, "stages 2") {
		t.Errorf("compare:\n%s", table)
	}
}

// A study that is killed at any moment goes on to the points of one that was not, and leaves no process.
func TestStudyKilled(t *testing.T) {
	file := writeStudyFile(t, rehearsedJob, twoCases)
	mustRun(t, "study", "--quiet", "--out", "calm", file)
	want := finished(t, "calm")
	kills := 12
	if os.Getenv("PIPETRAIN_LONG") != "" {
		kills = 50
	}
	r := rand.New(rand.NewPCG(1, uint64(kills)))
	for n, killed := 0, 0; killed < kills; n++ {
		out := fmt.Sprintf("out%d", n)
		args := []string{pipetrainPath, "study", "--quiet", "--out", out, file}
		for killed < kills {
			p := begin(t, args...)
			select {
			case <-p.done:
			case <-time.After(time.Duration(r.IntN(700)) * time.Millisecond):
				killed++
				_ = p.cmd.Process.Kill() // it may have ended just now
			}
			e := p.wait()
			if alive := left(t); len(alive) > 0 {
				t.Fatalf("after a kill there are still %v", alive)
			}
			if e.code == 0 {
				break
			}
			if e.code != 137 {
				t.Fatalf("%v", e)
			}
			if _, err := os.Stat(filepath.Join(out, study.FileName)); err == nil {
				args = []string{pipetrainPath, "study", "--quiet", "--resume", "--out", out, file}
			} else if err := os.RemoveAll(out); err != nil { // killed before there was a study
				t.Fatal(err)
			}
		}
		if args[3] == "--resume" {
			mustRun(t, args[1:]...)
			if got := finished(t, out); !slices.Equal(got, want) {
				t.Fatalf("after %d kills:\n%s\nundisturbed:\n%s", killed, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
}

// left returns processes of the test that are still there a moment after their parent was killed.
func left(t *testing.T) []int {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		alive := processes(t, true)
		if len(alive) == 0 || time.Now().After(end) {
			return alive
		}
	}
}

// A stop request ends the study with 7 and the run at once; --resume without a folder finds it.
func TestStudyStopped(t *testing.T) {
	file := writeStudyFile(t, strings.Replace(rehearsedJob, "steps = 20", "steps = 2000", 1), twoCases)
	p := begin(t, pipetrainPath, "study", "--only", "stages 2", "--set", "repeats=1", "--set", "warmup_runs=0", file)
	var dir string
	for end := time.Now().Add(20 * time.Second); dir == "" && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if found, _ := filepath.Glob("studies/night-*/runs/*/r1/metrics.jsonl"); len(found) > 0 {
			dir = filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(found[0]))))
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if e := p.wait(); e.code != 7 || !strings.Contains(e.stdout, "--resume goes on") {
		t.Fatalf("%v", e)
	}
	points, err := study.ReadPoints(dir)
	if err != nil || len(points) == 0 || points[len(points)-1].Status != study.Cancelled {
		t.Fatalf("points %+v, %v", points, err)
	}
	// Whoever holds the folder keeps others out.
	holder := begin(t, pipetrainPath, "study", "--resume", "--only", "stages 2", file)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if found, _ := filepath.Glob(dir + "/runs/*/r1-again1/metrics.jsonl"); len(found) > 0 {
			break
		}
	}
	second := pipetrain(t, "study", "--resume", "--out", dir, file)
	if second.code != 3 || !strings.Contains(second.stderr, "is in use by pid") {
		t.Errorf("a second start: %v", second)
	}
	if err := holder.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	holder.wait()
}

// A program against itself passes; against a control that rehearses a smaller feed-forward part it is slower: 9.
// The verdicts come from the control in the same rounds, whose program the baseline carries.
func TestStudyGate(t *testing.T) {
	file := writeStudyFile(t, strings.NewReplacer("dim = 512", "dim = 2048", "seq = 128", "seq = 512", "batches = 8", "batches = 4", "batch = 8", "batch = 4", "steps = 20", "steps = 16").Replace(rehearsedJob), `
job = "job.toml"
repeats = 5
warmup_runs = 1
[launch]
kind = "local"
[gate]
metrics = ["step_seconds", "peak_bytes", "loss"]
threshold = 0.15
`)
	mustRun(t, "study", "--save-baseline", "main", "--out", "first", "--set", "repeats=1", file)
	e := mustRun(t, "study", "--gate", "main", "--out", "second", file)
	if !strings.Contains(e.stdout, "verdicts: ") || strings.Contains(e.stdout, "slower") {
		t.Errorf("against itself: %v", e)
	}
	control := "baselines/main/pipetrain"
	if err := os.Rename(control, control+".real"); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nexec \"$0.real\" \"$@\" --set model.ffn=256\n"
	if err := os.WriteFile(control, []byte(strings.Replace(script, "exec \"$0.real\" \"$@\" --set model.ffn=256", "[ \"$1\" = --version ] && exec \"$0.real\" --version\nexec \"$0.real\" --set model.ffn=256 \"$@\"", 1)), 0o755); err != nil {
		t.Fatal(err)
	}
	e = pipetrain(t, "study", "--gate", "main", "--out", "third", file)
	if e.code != 9 || !strings.Contains(e.stdout, "slower   night: step_seconds") || !strings.Contains(e.stdout, "more     night: peak_bytes") {
		t.Errorf("against a faster control: %v", e)
	}
	if end, err := study.ReadEnd("third"); err != nil || end.Code != 9 || end.Gate != "main" {
		t.Errorf("study.json %+v, %v", end, err)
	}
	// A case that fails is incomplete, and a control that cannot run is said.
	if err := os.WriteFile(control, []byte("#!/bin/sh\n[ \"$1\" = --version ] && exit 0\necho 'no such key' >&2\nexit 2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	e = pipetrain(t, "study", "--gate", "main", "--out", "fourth", "--set", "warmup_runs=0", "--set", "repeats=1", file)
	if e.code != 0 || !strings.Contains(e.stdout, "the control did not run (no such key)") {
		t.Errorf("a control that cannot run: %v", e)
	}
	e = pipetrain(t, "study", "--out", "fifth", "--set", "warmup_runs=0", "--set", "repeats=1", "--set", "timeout=0.05", "--quiet", file)
	if e.code != 10 || !strings.Contains(e.stdout, "timeout") || !strings.Contains(e.stdout, "fifth") {
		t.Errorf("a run past its time: %v", e)
	}
	e = pipetrain(t, "study", "--out", "sixth", "--set", "warmup_runs=0", "--set", "repeats=2", "--set", "budget=0.5", "--quiet", file)
	if e.code != 10 || !strings.Contains(e.stdout, "skipped  night, round 1: the budget of 500ms has no room") {
		t.Errorf("a budget with no room: %v", e)
	}
	if e = pipetrain(t, "study", "--gate", "none", file); e.code != 2 || !strings.Contains(e.stderr, "--save-baseline none makes one") {
		t.Errorf("no such baseline: %v", e)
	}
}

// A run whose rank is killed is tried again; the attempt that failed stays in the record.
func TestStudyRetries(t *testing.T) {
	file := writeStudyFile(t, strings.Replace(rehearsedJob, "steps = 20", "steps = 300", 1), `
job = "job.toml"
repeats = 1
warmup_runs = 0
[launch]
kind = "local"
`)
	p := begin(t, pipetrainPath, "study", "--out", "out", file)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if found, _ := filepath.Glob("out/runs/*/r1/metrics.jsonl"); len(found) > 0 {
			break
		}
	}
	ranks := processes(t, false)
	if len(ranks) == 0 {
		t.Fatal("no rank to kill")
	}
	if err := syscall.Kill(ranks[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e := p.wait(); e.code != 0 {
		t.Fatalf("%v", e)
	}
	points, err := study.ReadPoints("out")
	if err != nil || len(points) != 2 || points[0].Status != study.Failed || points[0].ExitCode != 4 || !strings.Contains(points[0].Reason, "SIGKILL") || points[1].Status != study.Finished || points[1].Attempt != 2 {
		t.Errorf("points %+v, %v", points, err)
	}
}
