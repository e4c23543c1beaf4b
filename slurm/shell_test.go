package slurm

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
)

// node runs scripts as a node would, with programs in front of the script that
// write down how they were called. What real ones do is tested on a real Slurm.
type node struct {
	t        testing.TB
	dir, bin string
}

func newNode(t testing.TB) *node {
	n := &node{t: t, dir: t.TempDir()}
	n.bin = filepath.Join(n.dir, "bin")
	if err := os.Mkdir(n.bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, does := range map[string]string{
		"srun": `printf '%s\0' "$@" >"$NODE/srun"; env -0 >"$NODE/env"
trap 'echo USR1 >>"$NODE/got"' USR1
if [ -n "$SAVES" ]; then mkdir -p "$RUN/checkpoints/step-0000000$SAVES"; fi
if [ -n "$RECORDS" ]; then printf '{\n  "exit_code": %d,\n  "reason": "why",\n}\n' "$RECORDS" >"$RUN/exit.json"; fi
if [ -n "$WAITS" ]; then : >"$NODE/runs"; while [ ! -f "$NODE/enough" ]; do sleep 0.02; done; fi
exit "${CODE:-0}"`,
		"scontrol": `echo "$@" >>"$NODE/scontrol"; [ -z "$REFUSES" ] || { echo "no"; exit 1; }`,
		"squeue":   `echo "${REASON:-None}"`,
	} {
		if err := os.WriteFile(filepath.Join(n.bin, name), []byte("#!/bin/bash\n"+does+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// run runs a script to its end. A signal, if given, is sent once the ranks run.
func (n *node) run(script, signal string, env ...string) (code int, said string) {
	n.t.Helper()
	for _, f := range []string{"srun", "env", "got", "runs", "scontrol"} {
		os.Remove(filepath.Join(n.dir, f))
	}
	cmd := exec.Command("bash", "-c", script)
	cmd.Env = append([]string{"PATH=" + n.bin + ":" + os.Getenv("PATH"), "NODE=" + n.dir, "SLURM_JOB_ID=77", "SLURM_ARRAY_JOB_ID=70", "SLURM_ARRAY_TASK_ID=7"}, env...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	if signal != "" {
		for range 1000 {
			if _, err := os.Stat(filepath.Join(n.dir, "runs")); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		for s := range strings.FieldsSeq(signal) {
			if out, err := exec.Command("kill", "-"+s, strconv.Itoa(cmd.Process.Pid)).CombinedOutput(); err != nil {
				n.t.Fatalf("%v: %s", err, out)
			}
			time.Sleep(50 * time.Millisecond) // bash joins signals that come together
		}
		if err := os.WriteFile(filepath.Join(n.dir, "enough"), nil, 0o644); err != nil {
			n.t.Fatal(err)
		}
	}
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), out.String()
	}
	if err != nil {
		n.t.Fatal(err, out.String())
	}
	return 0, out.String()
}

func (n *node) read(name string) string {
	b, _ := os.ReadFile(filepath.Join(n.dir, name))
	return string(b)
}

func mustScript(t testing.TB, s *jobs.Spec, l Launch) string {
	t.Helper()
	script, err := Script(s, l)
	if err != nil {
		t.Fatal(err)
	}
	return script
}

// What the script does at a run's end, by what the ranks and Slurm did.
func TestEndings(t *testing.T) {
	for name, c := range map[string]struct {
		sets    []string
		signal  string
		env     []string
		code    int
		requeue bool
		says    string
	}{
		"finished":                  {env: []string{"RECORDS=0"}, says: "finished"},
		"asked by Slurm":            {signal: "USR1", env: []string{"RECORDS=7", "CODE=7"}, code: 7, requeue: true, says: "goes back into the queue"},
		"asked by Slurm, not again": {sets: []string{"slurm.requeue=false"}, signal: "USR1", env: []string{"RECORDS=7", "CODE=7"}, code: 7},
		"cancelled":                 {signal: "USR2", env: []string{"RECORDS=7", "CODE=7"}, code: 7, says: "(USR2)"},
		"cancelled after asked":     {signal: "USR1 USR2", env: []string{"RECORDS=7", "CODE=7"}, code: 7},
		"asked after cancelled":     {signal: "USR2 USR1", env: []string{"RECORDS=7", "CODE=7"}, code: 7},
		"TERM":                      {signal: "TERM", env: []string{"RECORDS=7", "CODE=7"}, code: 7, says: "(TERM)"},
		"time limit":                {signal: "TERM", env: []string{"REASON=TimeLimit", "RECORDS=7", "CODE=7"}, code: 7, requeue: true, says: "(LIMIT)"},
		"stopped by somebody else":  {env: []string{"RECORDS=7", "CODE=7"}, code: 7},
		"lost a rank":               {env: []string{"RECORDS=4", "CODE=137"}, code: 4, requeue: true},
		"code without a record":     {env: []string{"CODE=143"}, code: 4, requeue: true, says: "srun ended with code 143"},
		"none came up":              {env: []string{"CODE=1"}, code: 4, requeue: true, says: "srun ended with code 1"},
		"stalled":                   {env: []string{"RECORDS=5", "CODE=5"}, code: 5, requeue: true},
		"numerics":                  {env: []string{"RECORDS=6", "CODE=6"}, code: 6, says: "why"},
		"bad job":                   {env: []string{"CODE=2"}, code: 2},
		"0 without a record":        {env: []string{"CODE=0"}, code: 1},
		"Slurm refuses":             {env: []string{"RECORDS=4", "REFUSES=1"}, code: 4, requeue: true, says: "could not be requeued (no): pipetrain requeue"},
		"array": {sets: []string{"slurm.array=7"}, env: []string{"RECORDS=4", "CODE=1"}, code: 4, requeue: true,
			says: "job 70_7"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			l := launch("pmix")
			l.Out = filepath.Join(n.dir, "run")
			run, id := l.Out, "77"
			if name == "array" {
				run, id = run+"/task-7", "70_7"
			}
			env := append(c.env, "RUN="+run)
			if c.signal != "" {
				env = append(env, "WAITS=1")
			}
			code, said := n.run(mustScript(t, spec(t, c.sets...), l), c.signal, env...)
			want := ""
			if c.requeue {
				want = "requeue " + id + "\n"
			}
			if code != c.code || n.read("scontrol") != want || !strings.Contains(said, c.says) {
				t.Errorf("code %d, scontrol %q, want %d and %q:\n%s", code, n.read("scontrol"), c.code, want, said)
			}
			if b, err := os.ReadFile(filepath.Join(run, "exit.json")); err != nil || !strings.Contains(string(b), `"exit_code": `+strconv.Itoa(c.code)) {
				t.Errorf("record %s, %v", b, err)
			}
		})
	}
}

// Codes, names and which of them are worth another start are those of the exit table.
func TestExitTable(t *testing.T) {
	for _, e := range exitcode.Table() {
		want := e // where the ranks' launcher ends with this code and nobody leaves a record
		switch e.Code {
		case exitcode.Finished:
			want = exitcode.Entry{Code: exitcode.Unexpected}
		case exitcode.Unexpected, exitcode.Regressed, exitcode.Incomplete: // as launchers end after a lost rank
			want = exitcode.Entry{Code: exitcode.RankLost, Resume: true}
		}
		for _, asked := range []bool{false, true} {
			n := newNode(t)
			l := launch("pmix")
			l.Out = filepath.Join(n.dir, "run")
			signal, env := "", []string{"RUN=" + l.Out, "CODE=" + strconv.Itoa(int(e.Code))}
			if asked {
				signal, env = "USR1", append(env, "WAITS=1")
			}
			code, said := n.run(mustScript(t, spec(t), l), signal, env...)
			rec, err := exitcode.Read(l.Out)
			if err != nil || rec.Code != want.Code || rec.Name != want.Code.Name() || rec.Rank != exitcode.NoRank || rec.Launcher != "srun" || code != int(want.Code) {
				t.Errorf("%v without a record became %d, %+v, %v", e.Code, code, rec, err)
			}
			again := want.Resume && (asked || want.Code != exitcode.Stopped && want.Code != exitcode.Interrupted)
			if got := n.read("scontrol") != ""; got != again {
				t.Errorf("%v, asked %v: put back %v, want %v:\n%s", e.Code, asked, got, again, said)
			}
		}
	}
}

// Starts without a new checkpoint are bounded; a checkpoint begins the count anew.
func TestRestartLimit(t *testing.T) {
	n := newNode(t)
	l := launch("pmix")
	l.Out = filepath.Join(n.dir, "run")
	script := mustScript(t, spec(t, "slurm.max_restarts=2"), l)
	for i, c := range []struct {
		saves   string
		requeue bool
	}{{"", true}, {"", true}, {"1", true}, {"", true}, {"2", true}, {"", true}, {"", true}, {"", false}} {
		_, said := n.run(script, "", "RECORDS=4", "CODE=4", "RUN="+l.Out, "SAVES="+c.saves)
		if got := n.read("scontrol") != ""; got != c.requeue || got == strings.Contains(said, "gives up") {
			t.Errorf("start %d: requeued %v, want %v: %s", i+1, got, c.requeue, said)
		}
	}
	// Somebody else requeues it: the ranks are not started.
	code, said := n.run(script, "", "RECORDS=4", "RUN="+l.Out)
	if code != 4 || n.read("srun") != "" || !strings.Contains(said, "after step 2") {
		t.Errorf("code %d: %s", code, said)
	}
	os.Remove(filepath.Join(l.Out, RestartsName))
	if code, said := n.run(script, "", "RECORDS=0", "RUN="+l.Out); code != 0 || n.read("srun") == "" {
		t.Errorf("code %d: %s", code, said)
	}
	if code, said := n.run(script, "", "RUN="+l.Out); code != 0 || n.read("srun") != "" || !strings.Contains(said, "finished already") {
		t.Errorf("code %d: %s", code, said)
	}
}

// Whatever stands in paths and values reaches the programs as it is.
func FuzzQuoting(f *testing.F) {
	for _, s := range []string{"plain", "two words", "it's", `"$HOME"`, "`id`", "a\\", "*?[x]", "-n", "#x", "ü € 試", "%t%N%%", "!x", "~", "$(exit 3)", "a;b&c|d>e", "'\"'\"'", "%a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if oneLine(s) != nil || len(s) > 100 {
			return
		}
		n := newNode(t)
		l := launch("pmix")
		l.Binary, l.Job, l.Sets = "/"+s, "/jobs/"+s, []string{"name=" + s}
		if name := strings.ReplaceAll(s, "/", "_"); name != "" && name != "." && name != ".." && !strings.Contains(name, `\`) {
			l.Out = filepath.Join(n.dir, "out", name)
		} else {
			l.Out = filepath.Join(n.dir, "run")
		}
		sp := spec(t, "slurm.array=7")
		sp.Slurm.Environment = []string{"VALUE=" + s}
		code, said := n.run(mustScript(t, sp, l), "", "CODE=2", "RUN=/nowhere")
		run := l.Out + "/task-7"
		want := []string{"-K1", "--mpi=pmix", "--ntasks=4", "--distribution=block", "--cpu-bind=none", "--output=" + strings.ReplaceAll(run, "%", "%%") + "/logs/rank-%t.%N.out",
			"--open-mode=append", l.Binary, "--auto-resume", "--out", run, "--set", "name=" + strings.ReplaceAll(s, "%a", "7"), l.Job}
		if got := strings.TrimSuffix(n.read("srun"), "\x00"); code != 2 || got != strings.Join(want, "\x00") {
			t.Errorf("code %d, srun got %q, want %q: %s", code, got, want, said)
		}
		if !strings.Contains("\x00"+n.read("env"), "\x00VALUE="+s+"\x00") {
			t.Errorf("the environment has not VALUE=%q", s)
		}
	})
}
