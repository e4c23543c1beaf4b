package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
)

// within5s is the promise from a failure to the end of the job. The machine may
// be busy; the figure is what users are told, so it is also what is tested.
const within5s = 5 * time.Second

func TestEnds(t *testing.T) {
	for _, c := range []struct {
		name   string
		ranks  int
		script string
		code   exitcode.Code
		rank   int    // to blame
		says   string // in the error
		change func(*Config)
	}{
		{"all done", 4, "*: joined; train 5; done", 0, -1, "", nil},
		{"one rank", 1, "*: joined; done", 0, -1, "", nil},
		{"sixteen ranks", 16, "*: joined; train 2; done", 0, -1, "", nil},
		{"ends apart", 3, "*: joined; done | 1: joined; sleep 300; done", 0, -1, "", nil},
		{"stopped by themselves", 2, "*: joined; train 3; exit 7", exitcode.Stopped, -1, "stopped after step 3 and saved", nil},
		{"stopped as an error", 2, "*: joined; train 3; fail 7", exitcode.Stopped, -1, "stopped after step 3 and saved", nil},

		{"exit 0 early, others listen", 3, "*: joined; wait | 1: joined; exit 0", exitcode.RankLost, 1, "ended with exit code 0 before its work was done", nil},
		{"exit 0 early, others deaf", 3, "*: joined; deaf; hang | 1: joined; exit 0", exitcode.RankLost, 1, "exit code 0 before", nil},
		{"exit 3 before joining", 3, "*: ready; hang | 2: exit 3", exitcode.Environment, 2, "exit code 3 (environment)", nil},
		{"unknown code", 2, "*: joined; wait | 1: joined; exit 42", exitcode.Unexpected, 1, "ended with exit code 42", nil},
		{"last words", 2, "*: joined; wait | 1: joined; complain-aloud no such GPU; exit 3", exitcode.Environment, 1, `last words: "no such GPU"`, nil},
		{"numerics with a reason", 4, "*: joined; wait | 2: joined; train 4; fail 6", exitcode.Numerics, 2, "failed: told to fail with 6 after step 4", nil},
		{"SIGKILL", 4, "*: joined; wait | 3: joined; train 3; signal 9", exitcode.RankLost, 3, "was killed by signal 9 (SIGKILL)", nil},
		{"SIGSEGV", 2, "*: joined; wait | 0: joined; signal 11", exitcode.Unexpected, 0, "SIGSEGV", nil}, // Go turns it into a crash of its own
		{"SIGKILL while starting", 3, "*: hang | 0: signal 9", exitcode.RankLost, 0, "SIGKILL", nil},
		{"victims complain first", 4, "*: joined; sleep 400; complain 2 | 2: joined; sleep 800; signal 9", exitcode.RankLost, 2, "SIGKILL", nil},
		{"only a victim", 2, "*: joined; wait | 1: joined; complain 0", exitcode.RankLost, 1, "rank 0 was lost", nil},
		{"panic", 3, "*: joined; wait | 1: joined; panic", exitcode.Unexpected, 1, "crashed: panic: a bug in the test's rank", nil},
		{"out of memory in Go", 2, "*: joined; wait | 1: joined; nomemory", exitcode.OutOfMemory, 1, "out of memory", nil},
		{"all at once", 8, "*: joined; sleep 50; exit 5", exitcode.Stalled, -2, "exit code 5 (stalled)", nil},
		{"says it is done, then dies", 2, "*: joined; wait | 1: joined; done; signal 9", exitcode.RankLost, 1, "SIGKILL", nil},
		{"garbage on the socket", 2, "*: joined; garbage; done", 0, -1, "", nil},
		{"grandchildren", 2, "*: joined; grandchild; done", 0, -1, "", nil},
		{"grandchildren of a killed rank", 2, "*: joined; grandchild; hang | 1: joined; grandchild; sleep 100; signal 9", exitcode.RankLost, 1, "SIGKILL", nil},

		{"says nothing", 2, "", exitcode.RankLost, 0, "never came up within 1s", func(c *Config) { c.Binary, c.Args, c.HelloTimeout = "/bin/sleep", []string{"60"}, time.Second }},
		{"never comes up", 3, "*: joined; hang | 1: hang", exitcode.RankLost, 1, "did not finish setting up within 4s", shortStart},
		{"all but one wait", 3, "*: ready; hang | 2: sleep 60000", exitcode.RankLost, 2, "rank 2 (pid", shortStart},
		{"stopped before joining", 2, "*: ready; hang | 0: signal 19", exitcode.RankLost, 0, "stopped by a signal", shortStart},
		{"nobody joins", 2, "*: ready; deaf; hang", exitcode.RankLost, 0, "did not join the others within", shortStart},

		{"told of a failure", 3, "*: joined; wait | 0: joined; told 2 | 2: joined; sleep 300; fail 3", exitcode.Environment, 2, "rank 2 (pid", nil},
		{"told of one that does not speak", 3, "*: joined; wait | 0: joined; told 2 | 2: joined; hang", exitcode.Environment, 2, "rank 2 (pid", nil},

		{"binary missing", 2, "", exitcode.Environment, -1, "rank 0 could not be started", func(c *Config) { c.Binary = "/does/not/exist" }},
		{"not executable", 2, "", exitcode.Environment, -1, "permission denied", func(c *Config) { c.Binary = "/etc/passwd" }},
		{"a folder", 2, "", exitcode.Environment, -1, "rank 0 could not be started", func(c *Config) { c.Binary = "/tmp" }},
		{"no shared memory", 2, "", exitcode.Environment, -1, "shared memory for 2 ranks", func(c *Config) {
			c.Segment = func(int) (*os.File, error) { return nil, errors.New("too small") }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := runScript(t, c.ranks, c.script, c.change)
			if r.code != c.code {
				t.Fatalf("code %v, want %v (%v)", r.code, c.code, r.err)
			}
			if c.rank != -2 && r.record.Rank != c.rank {
				t.Errorf("record blames rank %d, want %d: %v", r.record.Rank, c.rank, r.err)
			}
			if r.err != nil && !strings.Contains(r.err.Error(), c.says) {
				t.Errorf("error %q lacks %q", r.err, c.says)
			}
			if c.rank >= 0 {
				if took := r.over.Sub(r.record.Time); took > within5s {
					t.Errorf("over %v after the failure, promised within %v", took, within5s)
				}
			}
		})
	}
}

// Long enough for three test processes to come up on a busy machine.
func shortStart(c *Config) { c.StartTimeout = 4 * time.Second }

// What is wrong before anything is started is an error of Run alone.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		code exitcode.Code
		says string
	}{
		{Config{}, exitcode.Usage, "0 ranks"},
		{Config{Ranks: 2, Bind: "socket"}, exitcode.Usage, `bind "socket"`},
		{Config{Ranks: 2, LossGrace: -1}, exitcode.Usage, "negative"},
		{Config{Ranks: 2, Dir: "/does/not/exist"}, exitcode.Environment, "/does/not/exist"},
		{Config{Ranks: 2, RunDir: "/proc/run"}, exitcode.Environment, "run folder"},
	} {
		if err := Run(t.Context(), c.cfg); exitcode.Of(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
}

// The rank that is blamed has its pid, host, signal and step in the record.
func TestFailureRecord(t *testing.T) {
	r := runScript(t, 3, "*: joined; wait | 1: joined; train 6; signal 9", nil)
	pid, _ := os.ReadFile(filepath.Join(r.dir, "pid-1"))
	host, _ := os.Hostname()
	rec := r.record
	if fmt.Sprint(rec.PID) != string(pid) || rec.Host != host || rec.Signal != "SIGKILL" || rec.Step != 6 || rec.Launcher != "local" || rec.Time.IsZero() {
		t.Errorf("record %+v; pid was %s", rec, pid)
	}
	for _, part := range []string{"rank 1", "pid " + string(pid), "host " + host, "signal 9 (SIGKILL)", "after step 6"} {
		if !strings.Contains(rec.Reason, part) {
			t.Errorf("reason %q lacks %q", rec.Reason, part)
		}
	}
	var f *RankError
	if !errors.As(r.err, &f) || f.Rank != 1 || f.Signal != syscall.SIGKILL {
		t.Errorf("error %#v holds no RankError", r.err)
	}
}

// One of the ranks dies at some moment, whatever the others do then.
func TestRandomMoments(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	for i := range 12 {
		ms, rank := rnd.IntN(120), rnd.IntN(4)
		how, code := "signal 9", exitcode.RankLost
		if i%3 == 0 {
			how, code = "exit 6", exitcode.Numerics
		}
		t.Run(fmt.Sprintf("rank %d %s after %d ms", rank, how, ms), func(t *testing.T) {
			t.Parallel()
			r := runScript(t, 4, fmt.Sprintf("*: joined; train 100000 | %d: sleep %d; %s", rank, ms, how), nil)
			if r.code != code || r.record.Rank != rank {
				t.Errorf("%v (record: rank %d)", r.err, r.record.Rank)
			}
		})
	}
}

func TestOutput(t *testing.T) {
	r := runScript(t, 3, "*: joined; print hello; complain-aloud oh; done", nil)
	count := func(s, line string) (n int) {
		for _, l := range strings.Split(s, "\n") {
			if l == line {
				n++
			}
		}
		return n
	}
	for _, line := range []string{"hello", "[rank 1] hello", "[rank 2] hello"} {
		if count(r.stdout, line) != 1 {
			t.Errorf("stdout %q: want the line %q once", r.stdout, line)
		}
	}
	for _, line := range []string{"oh", "[rank 1] oh", "[rank 2] oh"} {
		if count(r.stderr, line) != 1 {
			t.Errorf("stderr %q: want the line %q once", r.stderr, line)
		}
	}
	for rank := range 3 {
		b, err := os.ReadFile(filepath.Join(r.dir, LogDir, fmt.Sprintf("rank-%d.stderr", rank)))
		if err != nil || string(b) != "oh\n" {
			t.Errorf("captured stderr of rank %d: %q, %v", rank, b, err)
		}
	}
}

// A flood without newlines neither blocks nor is kept whole in memory; nobody
// who is quiet gets a file.
func TestFlood(t *testing.T) {
	r := runScript(t, 2, "0: joined; done | 1: joined; flood 20; done", nil)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if n := strings.Count(r.stdout, "x"); n != 20<<20 {
		t.Errorf("%d bytes came through, want %d", n, 20<<20)
	}
	st, err := os.Stat(filepath.Join(r.dir, LogDir, "rank-1.stderr"))
	if err != nil || st.Size() < maxCapture || st.Size() > maxCapture+100 {
		t.Errorf("captured: %v, %v", st, err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, LogDir, "rank-0.stderr")); err == nil {
		t.Error("rank 0 printed nothing, yet has a file")
	}
}

// The panic of a rank is in its file, whole.
func TestPanicIsKept(t *testing.T) {
	r := runScript(t, 2, "*: joined; wait | 1: joined; panic", nil)
	b, _ := os.ReadFile(filepath.Join(r.dir, LogDir, "rank-1.stderr"))
	if !strings.Contains(string(b), "goroutine 1") || !strings.Contains(string(b), "playRank") {
		t.Errorf("stack not in the file: %q", b)
	}
	if !strings.Contains(r.err.Error(), "rank-1.stderr") {
		t.Errorf("the error does not say where the stack is: %v", r.err)
	}
}

// What a rank finds: its place, its share of the cores, the segment, and no
// variables of an outer world of ours.
func TestRankEnvironment(t *testing.T) {
	r := runScript(t, 2, "*: joined; show; done", func(c *Config) {
		c.Env = append(c.Env, EnvRank+"=77", EnvThreads+"=99", "OMP_NUM_THREADS=5")
	})
	if r.err != nil {
		t.Fatal(r.err)
	}
	cpus := availableCPUs()
	seen := map[int][]int{}
	for _, line := range strings.Split(strings.TrimSpace(r.stdout), "\n") {
		var got struct {
			Rank    int      `json:"rank"`
			Env     []string `json:"env"`
			Segment int64    `json:"segment"`
			CPUs    []int    `json:"cpus"`
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "[rank 1] ")), &got); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		vars := environment(got.Env)
		if got.Segment != 2 {
			t.Errorf("segment of %d bytes, want 2", got.Segment)
		}
		if vars[EnvSize] != "2" || vars[EnvLocalSize] != "2" || vars[EnvRank] != fmt.Sprint(got.Rank) || vars[EnvRunDir] != r.dir {
			t.Errorf("rank %d: %v", got.Rank, vars)
		}
		if vars["OMP_NUM_THREADS"] != "5" || vars["OPENBLAS_NUM_THREADS"] != vars[EnvThreads] || vars[EnvThreads] != fmt.Sprint(max(1, len(cpus)/2)) {
			t.Errorf("threads: %v", vars)
		}
		seen[got.Rank] = got.CPUs
	}
	if len(cpus) >= 2 {
		if len(seen[0])+len(seen[1]) != len(cpus) || seen[0][0] == seen[1][0] {
			t.Errorf("cores %v shared as %v", cpus, seen)
		}
	}
}

func TestShareCores(t *testing.T) {
	for _, c := range []struct {
		cpus, ranks int
		bind        Bind
		threads     int
		want        string
	}{
		{8, 2, BindAuto, 0, "[[0 1 2 3]:4 [4 5 6 7]:4]"},
		{8, 3, "", 0, "[[0 1]:2 [2 3 4]:3 [5 6 7]:3]"},
		{2, 4, BindAuto, 0, "[[]:1 []:1 []:1 []:1]"},
		{4, 2, BindNone, 0, "[[]:2 []:2]"},
		{4, 2, BindAuto, 1, "[[0 1]:1 [2 3]:1]"},
		{0, 1, BindAuto, 0, "[[]:1]"},
	} {
		cpus := make([]int, c.cpus)
		for i := range cpus {
			cpus[i] = i
		}
		shares, err := shareCores(cpus, c.ranks, c.bind, c.threads)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range shares {
			got = append(got, fmt.Sprintf("%v:%d", s.cpus, s.threads))
		}
		if g := fmt.Sprint(got); g != c.want {
			t.Errorf("%d cores, %d ranks, %q: %s, want %s", c.cpus, c.ranks, c.bind, g, c.want)
		}
	}
}

// On a machine of two nodes of four CPUs.
func TestShareNUMA(t *testing.T) {
	cpus := []int{0, 1, 2, 3, 4, 5, 6, 7}
	node := func(cpu int) int { return cpu / 2 % 2 } // 0 1 4 5 and 2 3 6 7
	for ranks, want := range map[int]string{
		1: "[[0 1 4 5]:4]",
		2: "[[0 1 4 5]:4 [2 3 6 7]:4]",
		3: "[[0 1 4 5]:2 [0 1 4 5]:2 [2 3 6 7]:4]",
		4: "[[0 1 4 5]:2 [0 1 4 5]:2 [2 3 6 7]:2 [2 3 6 7]:2]",
	} {
		shares, err := shareOf(cpus, ranks, BindNUMA, 0, node)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range shares {
			got = append(got, fmt.Sprintf("%v:%d", s.cpus, s.threads))
		}
		if g := fmt.Sprint(got); g != want {
			t.Errorf("%d ranks: %s, want %s", ranks, g, want)
		}
	}
}

func TestMessages(t *testing.T) {
	for _, m := range []message{
		{verb: verbHello}, {verb: verbReady}, {verb: verbJoined}, {verb: verbDone}, {verb: verbStep, n: 12}, {verb: verbStopped, n: 3},
		{verb: verbFailed, n: 6, time: time.Unix(0, 123), text: "line\nwith \"quotes\" and \xff"}, {verb: verbLost, n: 2, text: ""},
		{verb: verbTold, by: 5, n: 3, time: time.Unix(0, 9), text: "x"},
	} {
		line := m.String()
		if strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") {
			t.Errorf("%q is not one line", line)
		}
		got, err := parseMessage(strings.TrimSuffix(line, "\n"))
		if err != nil || !(got.verb == m.verb && got.n == m.n && got.by == m.by && got.text == m.text && got.time.Equal(m.time)) {
			t.Errorf("%+v came back as %+v, %v", m, got, err)
		}
	}
	for _, bad := range []string{"", "x", "step", "step -1", "step 1 2", "joined now", "failed", "failed 3", "failed 3 4", "failed 3 4 text", "told 1 2", "told -1 3 4 \"x\"", "lost 1 x"} {
		if m, err := parseMessage(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, m)
		}
	}
}
