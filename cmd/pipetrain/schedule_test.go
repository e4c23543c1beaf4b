package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/schedule"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// said is what a command without ranks left.
type said struct {
	code           int
	stdout, stderr string
}

// call runs a command in this process.
func call(args ...string) said {
	var out, errs bytes.Buffer
	code := run(append([]string{"pipetrain"}, args...), &out, &errs)
	return said{code, out.String(), errs.String()}
}

// golden compares text with a file of testdata, or rewrites it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}

func temp(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Every form of every schedule that it can hold is written, passes the check, and
// converts to the same schedule again.
func TestScheduleForms(t *testing.T) {
	for _, args := range []string{
		"--kind 1f1b --ranks 4 --microbatches 8 --p2 cooldown --concat all",
		"--kind interleaved --ranks 2 --microbatches 4 --chunks 3",
		"--kind chimera --ranks 4 --microbatches 4 --p2 end",
		"--kind zb-v --ranks 3 --microbatches 6 --lowered",
		"--kind pipedream --ranks 2 --microbatches 4",
	} {
		var want *schedule.Schedule
		noCSV := strings.Contains(args, "all") || strings.Contains(args, "lowered") || strings.Contains(args, "pipedream")
		for _, form := range []string{"text", "json", "csv"} {
			file := filepath.Join(t.TempDir(), "s."+form)
			got := call(append(strings.Fields("schedule export "+args), "--format", form, "-o", file)...)
			if form == "csv" && noCSV {
				if got.code != 2 || !strings.Contains(got.stderr, "compute-only") {
					t.Errorf("%s as CSV: %+v", args, got)
				}
				continue
			}
			if got.code != 0 || got.stdout != "" {
				t.Fatalf("%s as %s: %+v", args, form, got)
			}
			if got := call("schedule", "check", file); got.code != 0 || !strings.Contains(got.stdout, ": valid: ") {
				t.Errorf("%s as %s: %+v", args, form, got)
			}
			back := call("schedule", "convert", file, "--format", "json")
			s := &schedule.Schedule{}
			if err := json.Unmarshal([]byte(back.stdout), s); err != nil || back.code != 0 {
				t.Fatalf("%s as %s: %v: %+v", args, form, err, back)
			}
			if want == nil {
				want = s
			}
			if !reflect.DeepEqual(s.Programs, want.Programs) || form != "csv" && !reflect.DeepEqual(s, want) {
				t.Errorf("%s as %s is another schedule", args, form)
			}
		}
	}
}

func TestScheduleText(t *testing.T) {
	export := []string{"--kind", "1f1b", "--ranks", "4", "--microbatches", "4", "--p2", "cooldown"}
	golden(t, "export.txt", call(append([]string{"schedule", "export"}, export...)...).stdout)
	golden(t, "export.csv", call(append([]string{"schedule", "export", "--format", "csv"}, export...)...).stdout)
	golden(t, "draw.txt", call(append([]string{"schedule", "draw", "--width", "100", "--cost", "F=1,I=1,W=0.5,transfer=0.25"}, export...)...).stdout)
	golden(t, "grid.txt", call(append([]string{"schedule", "draw", "--grid"}, export...)...).stdout)
	golden(t, "list.txt", call("schedule", "list").stdout)
	var list struct {
		Schedules []struct{ Name, Source string }
		P2        []string
	}
	if err := json.Unmarshal([]byte(call("schedule", "list", "--json").stdout), &list); err != nil || len(list.Schedules) != len(schedule.Kinds()) || len(list.P2) != 5 {
		t.Errorf("%v: %+v", err, list)
	}
}

// A wrong file is named with the op marked, and nothing but exit code 2 says so to a script.
func TestScheduleCheckRefuses(t *testing.T) {
	good := call("schedule", "export", "--kind", "1f1b", "--ranks", "2", "--microbatches", "2").stdout
	var report strings.Builder
	for _, c := range []struct{ name, old, new string }{
		{"dropped op", " 1B1", ""},
		{"twice", "1B0", "1B0 1B0"},
		{"backward first", "1F0 1B0", "1B0 1F0"},
		{"circle", "0F0 0F1 0B0 0B1", "0F0 0B1 0F1 0B0"},
		{"wrong rank", "rank 0: 0F0", "rank 0: 1F0"},
		{"not an op", "0F0", "0F0xyz"},
		{"old letters", "1B0", "1BW0"},
		{"no such stage", "0F0", "7F0"},
		{"version", "schedule 2", "schedule 9"},
	} {
		if !strings.Contains(good, c.old) {
			t.Fatalf("%s: the schedule has no %q:\n%s", c.name, c.old, good)
		}
		file := temp(t, "wrong.txt", strings.Replace(good, c.old, c.new, 1))
		got := call("schedule", "check", file)
		if got.code != 2 || got.stdout != "" {
			t.Errorf("%s: %+v", c.name, got)
		}
		report.WriteString("# " + c.name + "\n" + strings.ReplaceAll(got.stderr, file, "wrong.txt"))
		var v verdict
		asJSON := call("schedule", "check", file, "--json")
		if err := json.Unmarshal([]byte(asJSON.stdout), &v); err != nil || asJSON.code != 2 || v.Valid || v.Reason == "" {
			t.Errorf("%s: %v: %+v", c.name, err, asJSON)
		}
		if conv := call("schedule", "convert", file, "--format", "json"); conv.code != 2 {
			t.Errorf("%s: converted: %+v", c.name, conv)
		}
	}
	golden(t, "check.txt", report.String())
}

func TestScheduleUsage(t *testing.T) {
	empty := temp(t, "empty", "")
	for _, c := range []struct{ args, want string }{
		{"schedule", "want one of export"},
		{"schedule nonsense", `not "nonsense"`},
		{"schedule check", "want one schedule file"},
		{"schedule check " + empty, "empty"},
		{"schedule check /no/such/file", "no such file"},
		{"schedule export", "--kind is missing"},
		{"schedule export --kind 1f1b --ranks 4", "--microbatches is missing"},
		{"schedule export --kind 2f2b --ranks 4 --microbatches 4", "known: naive"},
		{"schedule export --kind 1f1b --ranks 0 --microbatches 4", "ranks must be"},
		{"schedule export --kind 1f1b --ranks 4 --microbatches 4 --chunks -1", "--chunks"},
		{"schedule export --kind 1f1b --ranks 4 --microbatches 4 --chunks 2", "chunks must be 1"},
		{"schedule export --kind 1f1b --ranks 60000 --microbatches 1000000", "more than"},
		{"schedule export --kind 1f1b --ranks 4 --microbatches 4 --p2 late", "known: fused"},
		{"schedule export --kind 1f1b --ranks 4 --microbatches 4 --concat 0", "--concat"},
		{"schedule export --kind 1f1b --ranks 4 --microbatches 4 --format xml", "known: text, json, csv"},
		{"schedule export --kind 1f1b --ranks 4 --microbatches x", "invalid"},
		{"schedule export --kind pipedream --ranks 4 --microbatches 4 --p2 end", "only fused"},
		{"schedule convert " + empty, "--format is missing"},
		{"schedule draw --kind 1f1b --ranks 4 --microbatches 4 --cost F=x", "want a number"},
		{"schedule draw --kind 1f1b --ranks 4 --microbatches 4 --cost Q=1", "known: B, F, I, W"},
		{"schedule draw --kind 1f1b --ranks 4 --microbatches 4 --cost F=1,F=2", "twice"},
		{"schedule draw --kind 1f1b --ranks 4 --microbatches 4 --cost F=-1", "from 0"},
		{"schedule draw --kind 1f1b --ranks 4 --microbatches 4 --cost F=0,I=0,W=0", "all op times are 0"},
		{"schedule list --what", "not defined"},
	} {
		got := call(strings.Fields(c.args)...)
		if got.code != 2 || !strings.Contains(got.stderr, c.want) || strings.Count(got.stderr, "pipetrain:") > 1 {
			t.Errorf("pipetrain %s: want exit code 2 and %q, got %+v", c.args, c.want, got)
		}
	}
}
