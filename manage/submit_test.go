package manage

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/slurm"
)

// site has programs in the place of Slurm's: what goes wrong between sbatch and the controller
// cannot be had of a real one at will.
type site struct {
	t     *testing.T
	dir   string
	tools slurm.Tools
}

// newSite has an sbatch that queues job 71, 72, … and a squeue that lists what is queued.
func newSite(t *testing.T) *site {
	s := &site{t, t.TempDir(), slurm.Tools{Patience: 5 * time.Second}}
	t.Setenv("PATH", s.dir+":/usr/bin:/bin")
	s.program("srun", "echo 'MPI plugin types are...'; echo pmix")
	s.program("sbatch", accepts+"\necho $id")
	s.program("squeue", lists)
	return s
}

const (
	accepts = `for script; do :; done
exec 8>>"${0%/*}/lock"; flock 8
id=$((71 + $(cat "${0%/*}/queue" 2>/dev/null | wc -l)))
echo "$id|$script" >>"${0%/*}/queue"`
	lists = `case "$*" in
*%F*) tac "${0%/*}/queue" ;;
*) echo "71|RUNNING|batch|0:01|1:00|node1|None" ;;
esac`
)

func (s *site) program(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte("#!/bin/bash\n"+text+"\n"), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

// accepted are the scripts of the jobs that Slurm has.
func (s *site) accepted() (scripts []string) {
	b, _ := os.ReadFile(filepath.Join(s.dir, "queue"))
	for line := range strings.Lines(string(b)) {
		_, script, _ := strings.Cut(strings.TrimSpace(line), "|")
		scripts = append(scripts, script)
	}
	return scripts
}

// job writes a job file and the text it trains on.
func job(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text := `name = "tiny"
[model]
kind = "transformer"
layers = 2
dim = 8
heads = 2
seq = 8
[data]
kind = "text"
path = "corpus.txt"
[train]
steps = 2
batch = 2
[run]
dir = "` + dir + `/runs"
`
	for name, b := range map[string][]byte{"job.toml": []byte(text), "corpus.txt": bytes.Repeat([]byte("a corpus "), 1000)} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "job.toml")
}

func (s *site) submit(job, out string) error {
	return Submission{Job: job, Out: out, Binary: "/bin/pipetrain"}.Submit(context.Background(), s.tools, new(bytes.Buffer))
}

// The folder of a job that Slurm has stays, and its job is found, whatever became of sbatch.
func TestLateAnswer(t *testing.T) {
	s := newSite(t)
	s.tools.Patience = 300 * time.Millisecond
	file := job(t)
	for _, end := range []string{"exec sleep 60", "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1", "echo hello", "kill -9 $$"} {
		s.program("sbatch", accepts+"\n"+end)
		for _, reachable := range []bool{true, false} {
			os.Remove(filepath.Join(s.dir, "queue"))
			out := filepath.Join(t.TempDir(), "run")
			if s.program("squeue", lists); !reachable {
				s.program("squeue", "exit 1")
			}
			err := s.submit(file, out)
			if (err == nil) != reachable || err != nil && exitcode.Of(err) != exitcode.Environment {
				t.Errorf("%s: %v", end, err)
			}
			if _, err := os.Stat(filepath.Join(out, batchName)); err != nil {
				t.Errorf("%s: an accepted job has lost its script: %v", end, err)
				continue
			}
			s.program("squeue", lists)
			if r, err := Find(context.Background(), out, s.tools); err != nil || r.Job != "71" {
				t.Errorf("%s: its job is %q, %v", end, r.Job, err)
			}
			if err := s.submit(file, out); exitcode.Of(err) != exitcode.Usage || !strings.Contains(err.Error(), "job 71 is RUNNING") {
				t.Errorf("%s: submitted twice: %v", end, err)
			}
		}
	}
}

// What Slurm refuses leaves nothing where nothing was, and all where something was.
func TestRefused(t *testing.T) {
	s := newSite(t)
	file := job(t)
	s.program("sbatch", "echo 'sbatch: error: Batch job submission failed: Invalid qos specification' >&2; exit 1")
	out := filepath.Join(t.TempDir(), "run")
	if err := s.submit(file, out); exitcode.Of(err) != exitcode.Environment || !strings.Contains(err.Error(), "slurm.qos") {
		t.Error(err)
	}
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder is left: %v", err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeTicket(out, ticket{Job: "12"}); err != nil {
		t.Fatal(err)
	}
	s.program("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
	if err := s.submit(file, out); exitcode.Of(err) != exitcode.Environment {
		t.Error(err)
	}
	if got, err := readTicket(context.Background(), out, s.tools); err != nil || got.Job != "12" {
		t.Errorf("the folder's ticket is %+v, %v", got, err)
	}
}

// Many submit at once: into one folder, one of them; without a name, each into its own.
func TestSubmitAtOnce(t *testing.T) {
	s := newSite(t)
	file := job(t)
	for _, out := range []string{filepath.Join(t.TempDir(), "run"), ""} {
		os.Remove(filepath.Join(s.dir, "queue"))
		var all sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			all.Go(func() { errs[i] = s.submit(file, out) })
		}
		all.Wait()
		want := 1
		if out == "" {
			want = len(errs)
		}
		good, scripts := 0, map[string]bool{}
		for _, err := range errs {
			if err == nil {
				good++
			} else if exitcode.Of(err) != exitcode.Usage {
				t.Errorf("%q: %v", out, err)
			}
		}
		for _, script := range s.accepted() {
			scripts[script] = true
			if b, err := os.ReadFile(script); err != nil || !strings.Contains(string(b), filepath.Dir(script)) {
				t.Errorf("%s: %v", script, err)
			}
		}
		if good != want || len(s.accepted()) != want || len(scripts) != want {
			t.Errorf("%q: %d of %d were told that theirs is submitted, Slurm has %q", out, good, len(errs), s.accepted())
		}
	}
}
