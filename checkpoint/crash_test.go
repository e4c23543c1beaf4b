package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// The test binary starts itself again as a victim: a process that saves step 2
// from two ranks and kills itself (SIGKILL) at a given point of the save.
const (
	victimEnv   = "CHECKPOINT_TEST_VICTIM" // folder
	victimPoint = "CHECKPOINT_TEST_POINT"  // at which point to die, from 1; 0: none
	victimOld   = "CHECKPOINT_TEST_NO_EXCHANGE"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimEnv); dir != "" {
		victim(dir)
	}
	os.Exit(m.Run())
}

func victim(dir string) {
	die, err := strconv.Atoi(os.Getenv(victimPoint))
	if err != nil {
		panic(err)
	}
	if os.Getenv(victimOld) != "" {
		exchange = func(_, _ string) error { return syscall.EINVAL }
	}
	var count atomic.Int64
	crash = func(point string) {
		n := int(count.Add(1))
		if n == die {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		fmt.Println(point)
	}
	c := SaveConfig{Dir: dir, Step: 2, Shards: 2, Keep: 1}
	if err := errors.Join(saveAll(context.Background(), c, 2, nil)...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runVictim returns the points it passed; killed says that it died as told.
func runVictim(t *testing.T, dir string, point int, more ...string) (points []string, killed bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"="+dir, victimPoint+"="+strconv.Itoa(point))
	cmd.Env = append(cmd.Env, more...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var e *exec.ExitError
	if errors.As(err, &e) {
		killed = e.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	}
	if err != nil && !killed {
		t.Fatalf("the victim failed by itself: %v", err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), killed
}

// TestKilledAnywhere kills a save at each of its points: after each, the last
// good checkpoint loads, the next start cleans up, and saving again works.
func TestKilledAnywhere(t *testing.T) {
	for _, c := range []struct {
		name  string
		start func(t *testing.T, dir string)
		env   []string
	}{
		{"new step", func(t *testing.T, dir string) {}, nil},
		{"over a damaged one", damagedStep2, nil},
		{"over a damaged one, without exchange", damagedStep2, []string{victimOld + "=1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			points := 0
			for n := 0; ; n++ { // 0: let it end, and count the points
				dir := filepath.Join(t.TempDir(), "checkpoints")
				mustSave(t, dir, 0, 2)
				mustSave(t, dir, 1, 2)
				c.start(t, dir)
				passed, killed := runVictim(t, dir, n, c.env...)
				if n == 0 {
					points = len(passed)
				}
				if killed != (n > 0 && n <= points) {
					t.Fatalf("point %d of %d: killed is %v", n, points, killed)
				}
				at := fmt.Sprintf("killed at point %d, after %v", n, passed[len(passed)-1:])
				whole := !killed || passedAny(passed, "renamed")
				ck, skipped, err := Open(dir, Want{})
				if err != nil {
					t.Fatalf("%s: %v", at, err)
				}
				checkValues(t, ck)
				ck.Close()
				// A point later than the rename passed: step 2. Otherwise step 1, or 2
				// where the kill came just after the rename.
				if s := ck.Manifest.Step; whole && s != 2 || s < 1 {
					t.Errorf("%s: loads step %d, skipped %v", at, s, skipped)
				}
				if _, err := Clean(dir); err != nil {
					t.Errorf("%s: %v", at, err)
				}
				if again := mustOpenStep(t, dir); again < ck.Manifest.Step {
					t.Errorf("%s: cleaning lost step %d", at, ck.Manifest.Step)
				}
				mustSave(t, dir, 2, 2, func(c *SaveConfig) { c.Keep = 1 })
				if got, want := fmt.Sprint(names(t, dir)), fmt.Sprint([]string{StepDir(0), StepDir(2)}); got != want {
					t.Errorf("%s, then saved again: %v, want %v", at, got, want)
				}
				if s := mustOpen(t, dir, Want{}, 2); len(s) > 0 {
					t.Errorf("%s: %v", at, s)
				}
				if n == points {
					break
				}
			}
			if points < 20 {
				t.Errorf("only %d points", points)
			}
			t.Logf("%d points", points)
		})
	}
}

func damagedStep2(t *testing.T, dir string) {
	mustSave(t, dir, 2, 2)
	edit(t, filepath.Join(dir, StepDir(2), "model-00001-of-00002.safetensors"), flip(-1))
}

func passedAny(points []string, name string) bool {
	for _, p := range points {
		if p == name {
			return true
		}
	}
	return false
}

func mustOpenStep(t *testing.T, dir string) int {
	t.Helper()
	c, _, err := Open(dir, Want{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.Manifest.Step
}
