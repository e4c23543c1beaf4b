package study

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/jobs"
)

const baseJob = `
[model]
layers = 8
dim = 32
heads = 4
seq = 16
[data]
kind = "synthetic"
[train]
steps = 20
batch = 16
`

// writeStudy puts a study and its job into a folder.
func writeStudy(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"job.toml": baseJob, "study.toml": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "study.toml")
}

const axes = `
name = "night"
job = "job.toml"
[set]
train.steps = 24
schedule.microbatches = 8
[[axis]]
parallel.stages = [1, 2, 4]
[[axis]]
label = ["1F1B", "1F1B + 2BP", "ZB-H1"]
schedule.kind = ["1f1b", "1f1b", "zb-h1"]
schedule.backward_p2 = ["fused", "cooldown", "native"]
[[exclude]]
parallel.stages = 1
schedule.kind = "zb-h1"
`

func TestCases(t *testing.T) {
	f, cases, err := Load(writeStudy(t, axes), []string{"repeats=3", "model.seq=8"})
	if err != nil {
		t.Fatal(err)
	}
	var labels []string
	for _, c := range cases {
		labels = append(labels, c.Label)
	}
	want := []string{"stages 1, 1F1B", "stages 1, 1F1B + 2BP", "stages 2, 1F1B", "stages 2, 1F1B + 2BP", "stages 2, ZB-H1", "stages 4, 1F1B", "stages 4, 1F1B + 2BP", "stages 4, ZB-H1"}
	if !slices.Equal(labels, want) || f.Repeats != 3 {
		t.Errorf("cases %q, %d repeats", labels, f.Repeats)
	}
	last := cases[7].Spec
	if last.World() != 4 || last.Schedule.Kind != "zb-h1" || last.Train.Steps != 24 || last.Model.Seq != 8 || last.Checkpoint.Enabled {
		t.Errorf("the last case's job is %+v", last)
	}
	ids := map[string]bool{}
	for _, c := range cases {
		ids[c.ID] = true
	}
	if len(ids) != len(cases) {
		t.Errorf("%d ids of %d cases", len(ids), len(cases))
	}
	// A round runs every case once, each in an order of its own, the same each time; listed and blocked.
	a, b := f.tasks(cases, 1, 2, false), f.tasks(cases, 1, 2, false)
	first, second := map[string]bool{}, ""
	for i, x := range a {
		if x.key() != b[i].key() {
			t.Fatal("the same seed gives another order")
		}
		if i < len(cases) {
			first[x.c.ID] = true
		} else if x.c != a[i-len(cases)].c {
			second = "another"
		}
	}
	if len(first) != len(cases) || second == "" {
		t.Errorf("the first round has %d cases; the second has %q order", len(first), second)
	}
	// With a control the order within a pair alternates, and both run as often.
	lead := map[string]int{}
	pairs := f.tasks(cases, 1, 4, true)
	for i := 0; i < len(pairs); i += 2 {
		lead[pairs[i].binary]++
		if pairs[i].c != pairs[i+1].c || pairs[i].binary == pairs[i+1].binary {
			t.Fatalf("%v and %v are no pair", pairs[i], pairs[i+1])
		}
	}
	if lead[Candidate] != lead[Control] {
		t.Errorf("who is first: %v", lead)
	}
	f.Order = "blocked"
	if blocked := f.tasks(cases, 1, 2, false); blocked[0].c != blocked[1].c {
		t.Error("blocked does not keep a case's runs together")
	}
}

// A study that was written out loads to the same cases, so that --resume runs what was begun. A default
// that the job file does not give, or another name or folder, makes no other case; another key does.
func TestCaseIDs(t *testing.T) {
	path := writeStudy(t, axes)
	f, cases, err := Load(path, []string{"launch.kind=local"})
	if err != nil {
		t.Fatal(err)
	}
	folder, err := NewFolder("", t.TempDir(), f.Name, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if err := folder.Prepare(f); err != nil {
		t.Fatal(err)
	}
	again, same, err := Load(folder.File(FileName), nil)
	if err != nil {
		t.Fatal(err)
	}
	if again.Launch.Kind != "local" || again.Repeats != f.Repeats || len(same) != len(cases) {
		t.Errorf("written and read: %+v", again)
	}
	for i := range cases {
		if same[i].ID != cases[i].ID || same[i].Label != cases[i].Label {
			t.Errorf("case %s %q became %s %q", cases[i].ID, cases[i].Label, same[i].ID, same[i].Label)
		}
	}
	if _, others, err := Load(path, []string{"optimizer.lr=1e-4"}); err != nil || others[0].ID == cases[0].ID {
		t.Errorf("another learning rate is the same case (%v)", err)
	}
}

func TestWeakScaling(t *testing.T) {
	_, cases, err := Load(writeStudy(t, `
job = "job.toml"
[[axis]]
parallel.stages = [2, 4, 8]
[scaling]
kind = "weak"
grow = ["train.batch", "model.layers"]
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		if n := 1 << i; c.Spec.Train.Batch != 16*n || c.Spec.Model.Layers != 8*n {
			t.Errorf("%s: batch %d, %d layers", c.Label, c.Spec.Train.Batch, c.Spec.Model.Layers)
		}
	}
}

// Every mistake at once, each with the line of the study file and, where it is one case's, the case.
func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"everything", `
job = "job.toml"
repeats = "five"
odrer = "listed"
order = "random"
budget = "5 hours"
[set]
train.stepss = 20
[[axis]]
parallel.stages = [1, 2]
schedule.microbatches = [8, 8, 16]
[[axis]]
schedule.kind = ["1f1b", "1f2b"]
[[exclude]]
model.dim = 3
[gate]
metrics = ["speed"]
`, []string{
			`study.toml:3: repeats: is "five", not an integer`, "study.toml:4: odrer: no such key", `study.toml:5: order: no such kind: "random"`, "study.toml:6: budget:",
			`study.toml:8: train.stepss: no such key (did you mean "train.steps"?)`, "study.toml:11: axis: schedule.microbatches: has 3 values, the axis has 2",
			`study.toml:13: axis: schedule.kind: no such kind: "1f2b"`, "study.toml:14: exclude: model.dim: is a key of no axis", `study.toml:17: gate.metrics: no such metric: "speed"`,
		}},
		{"too few steps", "job = \"job.toml\"\n[set]\ntrain.steps = 8\n", []string{"study.toml:3: train.steps: case \"study\": is 8"}},
		{"impossible refused", "job = \"job.toml\"\nimpossible = \"refuse\"\n[[axis]]\nparallel.stages = [2, 16]\n", []string{`case "stages 16"`}},
		{"every case", "job = \"job.toml\"\n[set]\nmodel.heads = 7\n[[axis]]\nparallel.stages = [1, 2]\n", []string{"study.toml:3: model.heads: every case: 7 does not divide"}},
		{"no job", "repeats = 3\n", []string{"study.toml: job: is missing"}},
		{"no such job", "job = \"other.toml\"\n", []string{"study.toml:1: job:"}},
		{"no TOML", "job = \n", []string{"study.toml:1: not TOML"}},
		{"labels", "job = \"job.toml\"\n[[axis]]\nlabel = [\"a\", \"a\"]\nparallel.stages = [1, 2]\n", []string{"study.toml:3: axis: label"}},
		{"grows by halves", "job = \"job.toml\"\n[[axis]]\nparallel.stages = [2, 3]\n[scaling]\nkind = \"weak\"\ngrow = [\"model.kv_heads\"]\n[set]\nmodel.kv_heads = 1\ntrain.batch = 12\n", []string{`study.toml:6: scaling.grow: case "stages 3"`}},
	} {
		_, _, err := Load(writeStudy(t, c.text), nil)
		wrong := (*jobs.MistakesError)(nil)
		if !errors.As(err, &wrong) {
			t.Errorf("%s: %v, want mistakes", c.name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: no mistake has %q:\n%v", c.name, want, err)
			}
		}
		if len(c.want) > 1 && len(wrong.List) != len(c.want) {
			t.Errorf("%s: %d mistakes, want %d:\n%v", c.name, len(wrong.List), len(c.want), err)
		}
	}
}

// Cases that the job check refuses are recorded, unless all are.
func TestImpossible(t *testing.T) {
	_, cases, err := Load(writeStudy(t, "job = \"job.toml\"\n[[axis]]\nparallel.stages = [2, 16]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if cases[0].Spec == nil || cases[1].Spec != nil || !strings.Contains(cases[1].Why, "layers") {
		t.Errorf("%+v %+v", cases[0], cases[1])
	}
}
