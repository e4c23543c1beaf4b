package main

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/checkpoint"
	"github.com/pipetrain/pipetrain/exitcode"
)

// The harness of make chaos: runs that random faults strike at random moments under random launchers, each
// judged by four rules. A case follows from its seed alone, but for the machine's own timing.
var (
	chaosFor    = flag.Duration("chaos", 0, "how long TestChaos makes faults; 0 with no -faults: none")
	chaosSeed   = flag.Uint64("seed", 1, "seed of TestChaos's first fault; the next one's is the next number")
	chaosFaults = flag.Int("faults", 0, "how many faults TestChaos makes at most; 0: as many as fit")
)

// chaosJob takes about a second, and saves every fourth step.
const chaosJob = tinyJob + `
[run]
stall_timeout = "20s"
`

const chaosSteps = 60

// chaosCase is one run and its fault.
type chaosCase struct {
	seed   uint64
	r      *rand.Rand
	way    string // launcher
	fault  fault
	moment time.Duration // of the fault, from the run's start
	whole  time.Duration // of a run that nothing disturbs

	job, root, out string // out is root/run, unless the fault moves it
	p              *program
	deaf           chan struct{} // closed: nobody reads any more what a loud run writes for people
	known          int           // the newest checkpoint that was there at the fault, -1: none
	group          string        // control group that the fault has made
	readOnly       bool          // the fault has mounted the checkpoints over themselves
	stopped        []int         // processes that the fault has stopped
}

func newChaosCase(seed uint64, whole time.Duration) *chaosCase {
	c := &chaosCase{seed: seed, whole: whole, r: rand.New(rand.NewPCG(seed, 9))}
	c.fault = faults[seed%uint64(len(faults))]
	ways := slices.Sorted(maps.Keys(mpiruns))
	c.way = append(ways, "local", "local")[c.r.IntN(len(ways)+2)]
	if c.fault.only != "" {
		c.way = c.fault.only
	}
	c.moment = time.Duration(c.r.Float64() * 1.2 * float64(whole))
	return c
}

// TestChaos makes faults at random moments; make chaos runs it.
func TestChaos(t *testing.T) {
	if *chaosFaults == 0 && *chaosFor == 0 {
		t.Skip("random faults are for make chaos")
	}
	job := writeJob(t, chaosJob)
	reference := filepath.Join(t.TempDir(), "reference")
	took := map[string]time.Duration{}
	for way, command := range launchers() {
		took[way] = begin(t, append(command(t), "--quiet", "--out", reference+way, "--set", sets("train.steps", chaosSteps), job)...).wait().took
	}
	want, bits := losses(t, reference+"local"), weights(t, reference+"local")

	n := *chaosFaults
	failed := 0
	begun := time.Now()
	for i := 0; (n == 0 || i < n) && (*chaosFor == 0 || time.Since(begun) < *chaosFor); i++ {
		seed := *chaosSeed + uint64(i)
		whole := took["local"]
		c := newChaosCase(seed, whole)
		c.moment = time.Duration(float64(c.moment) * float64(took[c.way]) / float64(whole))
		ok := t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			c.job = job
			c.run(t)
			c.judge(t, want, bits)
		})
		if !ok {
			failed++
			t.Logf("a violation: %s under %s after %v; again: make chaos SEED=%d FAULTS=1", c.fault.name, c.way, c.moment.Round(time.Millisecond), seed)
		}
		if *chaosFor > 0 && i%50 == 49 {
			t.Logf("%d faults, %d violations, %v", i+1, failed, time.Since(begun).Round(time.Second))
		}
		if *chaosFor > 0 && time.Since(begun) >= *chaosFor || n > 0 && i == n-1 {
			t.Logf("%d faults from seed %d, %d violations, %v", i+1, *chaosSeed, failed, time.Since(begun).Round(time.Second))
		}
	}
}

func sets(key string, value any) string { return fmt.Sprintf("%s=%v", key, value) }

// command is the run's command line; args come before the job.
func (c *chaosCase) command(t testing.TB, args ...string) []string {
	line := append(launchers()[c.way](t), "--auto-resume", "--out", c.out, "--set", sets("train.steps", chaosSteps), "--set", "checkpoint.keep=3")
	return append(append(line, args...), c.job)
}

// run starts the run, lets the fault strike and waits for the end.
func (c *chaosCase) run(t *testing.T) {
	c.root = t.TempDir()
	if c.fault.disk != "" {
		c.root = smallDisk(t, c.fault.disk)
	}
	c.out = filepath.Join(c.root, "run")
	if c.fault.data {
		c.job = writeJob(t, chaosJob)
	}
	t.Logf("%s under %s after %v", c.fault.name, c.way, c.moment.Round(time.Millisecond))
	if c.fault.loud {
		c.p = beginWith(t, 90*time.Second, c.listen(t), c.command(t, c.fault.args...)...)
	} else {
		c.p = begin(t, append(c.command(t, c.fault.args...), "--quiet")...)
	}
	select {
	case <-c.p.done:
	case <-time.After(c.moment):
	}
	c.known = newestWhole(c.out)
	c.fault.strike(t, c)
	c.p.wait()
	for _, pid := range c.stopped {
		_ = syscall.Kill(pid, syscall.SIGCONT) // gone, mostly
	}
}

// listen gives a program a narrow pipe as its standard output, and reads it until c.deaf is closed.
func (c *chaosCase) listen(t testing.TB) func(*exec.Cmd) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	c.deaf = make(chan struct{})
	t.Cleanup(func() { r.Close(); w.Close() })
	go func() {
		b := make([]byte, 100)
		for {
			select {
			case <-c.deaf:
				return
			default:
			}
			if _, err := r.Read(b); err != nil {
				return
			}
		}
	}()
	return func(cmd *exec.Cmd) { cmd.Stdout = w }
}

// judge applies the four rules: the documented code, no process left, nothing lost past the last checkpoint, and
// after a resume the bits of a run that nothing disturbed.
func (c *chaosCase) judge(t *testing.T, want []float64, bits map[string][]byte) {
	e := c.p.end
	codes := c.fault.codes[c.way]
	if codes == nil {
		codes = c.fault.codes[""]
	}
	// A fault that comes too late, or in a moment when it changes nothing, leaves a run that finishes.
	if e.code != 0 && !slices.Contains(codes, e.code) {
		t.Errorf("code %d, want 0 or %v: %v", e.code, codes, e)
	}
	t.Logf("it ended with %d", e.code)
	if e.code == 0 && !c.fault.damages {
		if n := len(losses(t, c.out)); n != chaosSteps {
			t.Errorf("code 0 after %d steps of %d", n, chaosSteps)
		}
	}
	if rec, err := exitcode.Read(c.out); err == nil && rec.Code != exitcode.Finished && !slices.Contains(c.fault.records, rec.Code) {
		t.Errorf("record %+v, want 0 or %v: %v", rec, c.fault.records, e)
	} else if err == nil && e.code == 0 && rec.Code != exitcode.Finished {
		t.Errorf("code 0 with record %+v", rec)
	}
	if strings.Contains(e.stderr, "goroutine ") {
		t.Errorf("a panic: %v", e)
	}
	nothingLeft(t, map[string]bool{})
	if c.fault.heal != nil {
		c.fault.heal(t, c)
	}
	if newest := newestWhole(c.out); newest < c.known && !c.fault.damages {
		t.Errorf("checkpoint %d was there and is lost, the newest is %d: %v", c.known, newest, e)
	}
	c.way = "local"
	for range c.r.IntN(3) - 1 { // often enough what goes on is struck too
		p := begin(t, c.command(t, "--quiet")...)
		time.Sleep(time.Duration(c.r.Float64() * float64(c.whole)))
		_ = p.cmd.Process.Kill()
		p.wait()
		nothingLeft(t, map[string]bool{})
	}
	if again := begin(t, c.command(t, "--quiet")...).wait(); again.code != 0 {
		t.Fatalf("resumed: %v\nafter %v", again, e)
	}
	if got := losses(t, c.out); !slices.Equal(got, want) {
		t.Errorf("losses after the resume: %v\nwant %v", got, want)
	}
	for name, b := range weights(t, c.out) {
		if string(b) != string(bits[name]) {
			t.Errorf("%s differs after the resume", name)
		}
	}
	nothingLeft(t, map[string]bool{})
}

// newestWhole is the newest checkpoint of a run folder that verifies, -1 without one.
func newestWhole(out string) int {
	c, _, err := checkpoint.Open(filepath.Join(out, "checkpoints"), checkpoint.Want{})
	if err != nil {
		return -1
	}
	defer c.Close()
	return c.Manifest.Step
}
