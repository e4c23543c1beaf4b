package launcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/exitcode"
)

// The test binary plays all parts: testMode says which. As a rank it performs a
// script, one for each rank: "0: joined; train 5 | *: joined; hang".
const (
	testMode   = "LAUNCHER_TEST_MODE"
	testScript = "LAUNCHER_TEST_SCRIPT"
	testConfig = "LAUNCHER_TEST_CONFIG"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == GuardCommand {
		if err := BeGuard(os.Stdin); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	switch os.Getenv(testMode) {
	case "rank":
		os.Exit(playRank())
	case "launcher":
		os.Exit(playLauncher())
	case "lifeline":
		os.Exit(playLifeline())
	case "detect":
		json.NewEncoder(os.Stdout).Encode(Detect(os.Environ()))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// settings is the part of Config that travels to a launcher in its own process.
type settings struct {
	Binary                    string
	Ranks                     int
	Env                       []string
	RunDir                    string
	StartTimeout, StopTimeout time.Duration
}

// playLauncher is a launcher in a process of its own, so that it can be sent
// signals and killed.
func playLauncher() int {
	var s settings
	if err := json.Unmarshal([]byte(os.Getenv(testConfig)), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	cfg := Config{Binary: s.Binary, Ranks: s.Ranks, Env: s.Env, RunDir: s.RunDir, HelloTimeout: 20 * time.Second, StartTimeout: s.StartTimeout, StopTimeout: s.StopTimeout}
	cfg.Stdout, cfg.Stderr = os.Stdout, os.Stderr
	cfg.Logger = zerolog.New(os.Stderr)
	cfg.Segment = memfd(os.Getenv("LAUNCHER_TEST_SEGMENT"))
	err := Run(context.Background(), cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, "END:", err)
	}
	return int(exitcode.Of(err))
}

func memfd(name string) func(int) (*os.File, error) {
	return func(ranks int) (*os.File, error) {
		fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
		if err != nil {
			return nil, err
		}
		f := os.NewFile(uintptr(fd), name)
		return f, f.Truncate(int64(ranks))
	}
}

func playRank() int {
	child, err := OpenChild(os.Environ())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return int(exitcode.Of(err))
	}
	w := Detect(os.Environ())
	if dir := os.Getenv(EnvRunDir); dir != "" {
		os.WriteFile(filepath.Join(dir, fmt.Sprintf("pid-%d", w.Rank)), []byte(strconv.Itoa(os.Getpid())), 0o644)
	}
	ctx, cancel := child.Context(context.Background())
	defer cancel()
	term := make(chan os.Signal, 8)
	signal.Notify(term, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)

	script := ""
	for _, part := range strings.Split(os.Getenv(testScript), "|") {
		who, what, _ := strings.Cut(part, ":")
		if who = strings.TrimSpace(who); who == strconv.Itoa(w.Rank) || who == "*" && script == "" {
			script = what
		}
	}
	for _, line := range strings.Split(script, ";") {
		word, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.Atoi(arg)
		switch word {
		case "ready":
			child.Ready()
		case "joined":
			child.Ready()
			child.Joined()
		case "done":
			child.Done()
		case "exit":
			return n
		case "sleep":
			time.Sleep(time.Duration(n) * time.Millisecond)
		case "hang":
			select {}
		case "wait": // as a rank does that listens
			<-ctx.Done()
			child.Failed(fmt.Errorf("receive: %w", context.Cause(ctx)))
			return int(exitcode.Of(context.Cause(ctx)))
		case "complain": // notices a loss sooner than the launcher
			child.Failed(exitcode.Errorf(exitcode.RankLost, "rank %d was lost", n))
			return int(exitcode.RankLost)
		case "signal": // to itself
			syscall.Kill(os.Getpid(), syscall.Signal(n))
			time.Sleep(time.Hour)
		case "deaf":
			signal.Ignore(syscall.SIGTERM)
		case "default-term":
			signal.Reset(syscall.SIGTERM)
		case "panic":
			panic("a bug in the test's rank")
		case "nomemory":
			fmt.Fprintln(os.Stderr, "fatal error: runtime: out of memory")
			return 2
		case "fail":
			err := exitcode.Errorf(exitcode.Code(n), "told to fail with %d", n)
			child.Failed(err)
			return n
		case "told": // that rank n could not save
			child.Failed(exitcode.With(exitcode.Environment, &exitcode.BlamedError{Rank: n, Err: errors.New("not saved")}))
			return int(exitcode.Environment)
		case "print":
			fmt.Println(arg)
		case "complain-aloud":
			fmt.Fprintln(os.Stderr, arg)
		case "flood": // MiB without a newline
			b := bytes.Repeat([]byte("x"), 1<<20)
			for range n {
				os.Stdout.Write(b)
				os.Stderr.Write(b)
			}
		case "garbage":
			child.state.WriteString("nonsense 1 2 3\n\x00\xff\n")
		case "grandchild":
			// Outlives its parent unless somebody ends the group.
			p, err := os.StartProcess("/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{})
			if err == nil {
				os.WriteFile(filepath.Join(os.Getenv(EnvRunDir), fmt.Sprintf("pid-grandchild-%d", w.Rank)), []byte(strconv.Itoa(p.Pid)), 0o644)
			}
		case "eat": // memory, MiB a time, until the kernel objects
			for keep := [][]byte{}; ; {
				keep = append(keep, bytes.Repeat([]byte{1}, 1<<20))
				_ = keep
			}
		case "show":
			b, _ := json.Marshal(map[string]any{"rank": w.Rank, "env": os.Environ(), "segment": segmentSize(child), "cpus": availableCPUs()})
			fmt.Println(string(b))
		case "step":
			child.Step(int64(n))
		case "train":
			if code, over := train(ctx, child, term, n); over {
				return code
			}
		}
	}
	return 0
}

// train is a loop of n steps that stops at a step's end when asked.
func train(ctx context.Context, child *Child, asked <-chan os.Signal, n int) (code int, over bool) {
	for step := 1; step <= n; step++ {
		select {
		case <-ctx.Done():
			err := context.Cause(ctx)
			child.Failed(err)
			return int(exitcode.Of(err)), true
		case <-time.After(5 * time.Millisecond):
		}
		child.Step(int64(step))
		if step == 1 {
			fmt.Println("stepping")
		}
		select {
		case <-asked:
			child.Stopped(int64(step))
			return int(exitcode.Stopped), true
		default:
		}
	}
	return 0, false
}

func segmentSize(c *Child) int64 {
	if c.Segment() == nil {
		return -1
	}
	st, err := c.Segment().Stat()
	if err != nil {
		return -2
	}
	return st.Size()
}

// result is what a world left.
type result struct {
	err            error
	code           exitcode.Code
	stdout, stderr string
	dir            string
	record         exitcode.Record
	over           time.Time
}

// world runs a script in this process and checks what every world must leave
// behind: an exit record that agrees, no process, no shared memory.
func runScript(t *testing.T, ranks int, script string, change func(*Config)) result {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	segment := segmentName(t)
	cfg := Config{
		Binary: self, Ranks: ranks, RunDir: t.TempDir(), HelloTimeout: 20 * time.Second, StartTimeout: 20 * time.Second,
		Env:     append(os.Environ(), testMode+"=rank", testScript+"="+script),
		Segment: memfd(segment), Stdout: &out, Stderr: &errs, Logger: zerolog.New(zerolog.NewTestWriter(t)),
	}
	if change != nil {
		change(&cfg)
	}
	err = Run(context.Background(), cfg)
	r := result{err: err, code: exitcode.Of(err), stdout: out.String(), stderr: errs.String(), dir: cfg.RunDir, over: time.Now()}
	if r.record, err = exitcode.Read(r.dir); err != nil {
		t.Error(err)
	}
	if r.record.Code != r.code {
		t.Errorf("record says %v, Run %v", r.record.Code, r.code)
	}
	nothingLeft(t, r.dir, segment)
	return r
}

func segmentName(t *testing.T) string {
	return fmt.Sprintf("pipetrain-test-%d-%d", os.Getpid(), time.Now().UnixNano())
}

// nothingLeft checks by pid and by the segment's name that no rank is there.
func nothingLeft(t *testing.T, dir, segment string) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "pid-*"))
	for _, f := range files {
		b, _ := os.ReadFile(f)
		pid, _ := strconv.Atoi(string(b))
		if s := kernelState(pid); s != 0 && s != 'Z' && s != 'X' {
			t.Errorf("%s: process %d is still there (state %c)", filepath.Base(f), pid, s)
		}
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && strings.Contains(to, segment) {
			t.Errorf("shared memory %s is still open: %s", segment, l)
		}
	}
	if _, err := os.Stat("/dev/shm/" + segment); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("/dev/shm/%s: %v", segment, err)
	}
}
