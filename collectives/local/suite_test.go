package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/collectives/local"
	"github.com/pipetrain/pipetrain/collectives/transporttest"
)

// TestMain turns the test binary into a rank when a test started it as one.
func TestMain(m *testing.M) {
	if os.Getenv("LOCALTEST_MODE") != "" {
		if err := rank(os.Getenv("LOCALTEST_MODE")); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	envRank = "LOCALTEST_RANK"
	envSize = "LOCALTEST_SIZE"
)

func rank(mode string) error {
	opt := local.Options{
		Timeout:      20 * time.Second,
		NoDirectCopy: strings.Contains(mode, "ring"),
		Rendezvous:   strings.Contains(mode, "rendezvous"),
	}
	r, n := transporttest.Number(envRank), transporttest.Number(envSize)
	if mode == "late" && r == 2 {
		return nil // never joins
	}
	if mode == "late" {
		opt.Timeout = 300 * time.Millisecond
	}
	if mode == "stillborn" {
		opt.Timeout = 20 * time.Second
		if r == 1 {
			time.Sleep(time.Hour)
		}
	}
	tr, err := local.Join(os.NewFile(3, "segment"), r, n, opt)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	switch mode {
	case "dead", "aborted":
		return bereaved(ctx, tr, mode)
	case "bench", "bench ring":
		return benchRank(tr)
	case "brief":
		if err := collectives.World(tr).AllReduceSumF32(ctx, make([]float32, 100000)); err != nil {
			return err
		}
		return tr.Close()
	}
	if err := transporttest.RunRank(tr, transporttest.Options{Rendezvous: opt.Rendezvous, MaxBytes: transporttest.Number("LOCALTEST_MAX")}); err != nil {
		return err
	}
	return tr.Close()
}

// bereaved loses rank 1: all others get PeerLostError in time, in all ways of waiting.
func bereaved(ctx context.Context, tr collectives.Transport, mode string) error {
	if err := collectives.World(tr).Barrier(ctx); err != nil {
		return err
	}
	if tr.Rank() == 1 {
		time.Sleep(20 * time.Millisecond)
		if mode == "aborted" {
			tr.Abort(42)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	began := time.Now()
	big := make([]byte, 1<<20)
	for i, f := range []func() error{
		func() error { return tr.Irecv(1, 5, make([]byte, 10)).Wait(ctx) },
		func() error { return tr.Irecv(1, 5, make([]byte, 10)).Wait(collectives.Patient(ctx)) },
		func() error { return tr.Isend(1, 6, big).Wait(ctx) },
	} {
		var lost *collectives.PeerLostError
		if err := f(); !errors.As(err, &lost) || lost.Rank != 1 {
			return fmt.Errorf("rank %d, wait %d: %v, want PeerLostError of rank 1", tr.Rank(), i, err)
		}
	}
	if d := time.Since(began); d > 5*time.Second {
		return fmt.Errorf("rank %d noticed after %v", tr.Rank(), d)
	}
	return tr.Close()
}

// world starts n ranks of this test binary in a mode.
func world(t testing.TB, n int, mode string, env ...string) []*transporttest.Process {
	file, err := local.Create(n)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var cmds []*exec.Cmd
	for r := range n {
		c := transporttest.Self(t, append(env, "LOCALTEST_MODE="+mode, fmt.Sprint(envRank, "=", r), fmt.Sprint(envSize, "=", n))...)
		c.ExtraFiles = []*os.File{file}
		cmds = append(cmds, c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	return transporttest.Processes(ctx, cmds)
}

func TestGoroutines(t *testing.T) {
	maxBytes := 2 << 20
	if transporttest.Race {
		maxBytes = 300 << 10
	}
	for name, opt := range map[string]local.Options{
		"channels":          {},
		"rendezvous":        {Rendezvous: true},
		"through the ring":  {NoDirectCopy: true, RingBytes: 8 << 10},
		"futex":             {Processes: true},
		"futex, small ring": {Processes: true, NoDirectCopy: true, RingBytes: 8 << 10, Rendezvous: true},
		"futex at once":     {Processes: true, Spin: -1},
	} {
		if transporttest.Race && (name == "futex" || name == "rendezvous") {
			continue // what they do, others here do as well
		}
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB, n int) []collectives.Transport { return local.NewWorldWith(n, opt) },
				transporttest.Options{Rendezvous: opt.Rendezvous, MaxBytes: maxBytes})
		})
	}
}

func TestProcesses(t *testing.T) {
	for _, c := range []struct {
		n    int
		mode string
		max  int
	}{{1, "suite", 4 << 20}, {2, "suite", 64 << 20}, {3, "suite", 4 << 20}, {4, "suite", 4 << 20}, {8, "suite", 1 << 20},
		{2, "ring", 64 << 20}, {4, "ring", 4 << 20}, {3, "rendezvous", 4 << 20}, {2, "ring rendezvous", 4 << 20}} {
		if transporttest.Race {
			if c.n != 2 { // the detector does not see mapped memory, and starts slowly
				continue
			}
			c.max = min(c.max, 1<<20)
		}
		t.Run(fmt.Sprintf("%s/%d", c.mode, c.n), func(t *testing.T) {
			transporttest.Check(t, world(t, c.n, c.mode, fmt.Sprint("LOCALTEST_MAX=", c.max)))
		})
	}
}

func TestDeadPeer(t *testing.T) {
	for mode, want := range map[string]string{"dead": "signal: killed", "aborted": "exit status 42"} {
		procs := world(t, 4, mode)
		for r, p := range procs {
			if r == 1 {
				if p.Err == nil || p.Err.Error() != want {
					t.Errorf("%s: rank 1 ended with %v, want %s", mode, p.Err, want)
				}
			} else if p.Err != nil {
				t.Errorf("%s: rank %d: %v\n%s", mode, r, p.Err, p.Output.String())
			}
		}
	}
}

func TestJoinNamesMissingRanks(t *testing.T) {
	for r, p := range world(t, 4, "late") {
		if r == 2 {
			continue
		}
		if out := p.Output.String(); p.Err == nil || !strings.Contains(out, "rank(s) 2 of 4 did not join") {
			t.Errorf("rank %d: %v, %q", r, p.Err, out)
		}
	}
}

func TestJoinRefuses(t *testing.T) {
	file, err := local.Create(2)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	fmt.Fprint(text, strings.Repeat("no segment ", 1000))
	quick := local.Options{Timeout: time.Millisecond}
	for _, c := range []struct {
		file       *os.File
		rank, size int
		want       string
	}{
		{file, 0, 3, "made for 2 ranks"},
		{file, 2, 2, "rank 2 of a world of 2"},
		{file, -1, 2, "rank -1"},
		{text, 0, 2, "no segment of ours"},
		{file, 0, 2, "rank(s) 1 of 2 did not join"},
		{file, 0, 2, "already taken, by process"},
	} {
		if _, err := local.Join(c.file, c.rank, c.size, quick); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Join(%d, %d): %v, want %q", c.rank, c.size, err, c.want)
		}
	}
	for _, n := range []int{0, -1, 100000} {
		if f, err := local.Create(n); err == nil {
			f.Close()
			t.Errorf("Create(%d) made a segment", n)
		}
	}
}

func TestManyRanks(t *testing.T) {
	if transporttest.Race {
		t.Skip("64 ranks under the race detector take a minute")
	}
	for _, c := range transporttest.Cases() {
		if c.Name == "all-reduce" || c.Name == "barrier and broadcast" || c.Name == "split" {
			if err := transporttest.RunCase(c, local.NewWorld(64), transporttest.Options{}); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
	}
	// As many processes: the segment must stay modest.
	transporttest.Check(t, world(t, 64, "brief"))
}
