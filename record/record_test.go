package record

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary starts itself again as another process that takes a run
// folder and prints what came of it.
const otherEnv = "RECORD_TEST_OTHER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(otherEnv); dir != "" {
		if os.Getenv(otherEnv+"_NOBODY") != "" {
			if err := syscall.Setuid(65534); err != nil {
				fmt.Println(err)
				os.Exit(4)
			}
		}
		f, err := Create(dir, os.Getenv(otherEnv+"_RESUME") != "")
		if err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
		fmt.Println("holding")
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed or told to end
		f.Close()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// other starts the other process; stop ends it by the signal.
func other(t *testing.T, dir string, more ...string) (said string, pid int, stop func(os.Signal)) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), otherEnv+"="+dir), more...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2000)
	n, err := out.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	done := false
	stop = func(s os.Signal) {
		if done {
			return
		}
		done = true
		if s != nil {
			_ = cmd.Process.Signal(s)
		}
		in.Close()
		_ = cmd.Wait() // its status is the signal's
	}
	t.Cleanup(func() { stop(nil) })
	return strings.TrimSpace(string(b[:n])), cmd.Process.Pid, stop
}

// refused checks that an error is one line that names the folder and says want.
func refused(t *testing.T, f *Folder, err error, dir string, want ...string) {
	t.Helper()
	if err == nil {
		f.Close()
		t.Errorf("%s was taken, want %q", dir, want)
		return
	}
	for _, w := range append(want, dir) {
		if !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q, want one line with %q", err, w)
		}
	}
}

func TestCreate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "run")
	f, err := Create(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	if f.Path != dir || f.Resumed || f.Note != "" {
		t.Errorf("%+v", f)
	}
	// The same process counts too: the lock is the open file's.
	g, err := Create(dir, false)
	refused(t, g, err, dir, fmt.Sprintf("in use by pid %d on ", os.Getpid()), "--out")
	if err := f.WriteJob([]byte("name = \"x\"\n"), false); err != nil {
		t.Fatal(err)
	}
	if !InUse(dir) || InUse(filepath.Dir(dir)) {
		t.Error("a held folder is not in use, or one above it is")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if InUse(dir) {
		t.Error("a folder that nobody holds is in use")
	}
	if err := f.Close(); err != nil {
		t.Error("second Close:", err)
	}
	g, err = Create(dir, false)
	refused(t, g, err, dir, "holds a run already", "--resume", "--out")
	if f, err = Create(dir, true); err != nil || !f.Resumed {
		t.Fatal(err)
	}
	f.Close()
	if b, err := os.ReadFile(f.File(JobName)); err != nil || string(b) != "name = \"x\"\n" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestNothingToResume(t *testing.T) {
	dir := t.TempDir()
	f, err := Create(dir, true)
	refused(t, f, err, dir, "nothing to resume")
	none := filepath.Join(dir, "none")
	f, err = Create(none, true)
	refused(t, f, err, none, "nothing to resume")
	if _, err := os.Lstat(none); !errors.Is(err, os.ErrNotExist) {
		t.Error("a refused resume made the folder")
	}
}

// TestStartedTwice: a second process is refused by the first one's pid, and the
// lock is free as soon as the first is killed.
func TestStartedTwice(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	said, pid, stop := other(t, dir)
	if said != "holding" {
		t.Fatal(said)
	}
	f, err := Create(dir, false)
	refused(t, f, err, dir, fmt.Sprintf("in use by pid %d on ", pid))
	said, _, _ = other(t, dir)
	if !strings.Contains(said, fmt.Sprintf("in use by pid %d on ", pid)) {
		t.Error(said)
	}
	if f, err := Join(dir); err != nil || f.Close() != nil {
		t.Error(err)
	}
	stop(syscall.SIGKILL)
	f, err = Create(dir, false)
	if err != nil {
		t.Fatal("after the holder was killed:", err)
	}
	f.Close()
}

func TestUnusableFolders(t *testing.T) {
	base := t.TempDir()
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Create(file, false)
	refused(t, f, err, file, "is a file")
	under := filepath.Join(file, "run")
	f, err = Create(under, false)
	refused(t, f, err, under, "is a file")
	f, err = CreateNamed(file, "x", time.Now())
	refused(t, f, err, file, "is a file")
	if _, err := Join(filepath.Join(base, "none")); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Error(err)
	}
}

// TestNoPermission runs the other process as nobody, since root may do all.
func TestNoPermission(t *testing.T) {
	base := t.TempDir()
	run := filepath.Join(base, "run")
	closed := filepath.Join(base, "closed")
	for _, d := range []string{run, closed} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var as []string
	if os.Getuid() == 0 {
		as = []string{otherEnv + "_NOBODY=1"}
		for _, d := range []string{filepath.Dir(base), base} {
			if err := os.Chmod(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, d := range []string{run, closed} {
		if err := os.Chmod(d, 0o555); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{run, filepath.Join(closed, "run")} {
		said, _, _ := other(t, dir, as...)
		if want := "run folder " + dir + " cannot be used: no permission to write there: choose another with --out"; said != want {
			t.Errorf("%q, want %q", said, want)
		}
	}
}

// small mounts a file system of a size, or skips the test.
func small(t *testing.T, size string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "fs")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("needs root to mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestReadOnlyFolder(t *testing.T) {
	dir := small(t, "64k")
	old := filepath.Join(dir, "old")
	f, err := Create(old, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WriteJob(nil, false); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, resume := range []bool{false, true} {
		f, err := Create(old, resume)
		refused(t, f, err, old, "read-only", "--out")
	}
	run := filepath.Join(dir, "run")
	f, err = Create(run, false)
	refused(t, f, err, run, "read-only", "--out")
}

func TestFullDisk(t *testing.T) {
	dir := small(t, "16k")
	f, err := Create(filepath.Join(dir, "run"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := f.OpenMetrics(0)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := f.WriteSummary(Summary{Status: "before"}); err != nil {
		t.Fatal(err)
	}
	// Metrics fill what is left; the line that does not fit must not stay in half.
	step := 0
	for {
		if err = m.Append(Metrics{Step: step + 1, Loss: 1.0 / 3}); err != nil {
			break
		}
		step++
	}
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), f.File(MetricsName)) || !strings.Contains(err.Error(), "free space") {
		t.Error(err)
	}
	if got, err := ReadMetrics(f.File(MetricsName)); err != nil || len(got) != step {
		t.Errorf("%d lines, %v; want %d", len(got), err, step)
	}
	if b, _ := os.ReadFile(f.File(MetricsName)); len(b) == 0 || b[len(b)-1] != '\n' {
		t.Error("half a line stayed")
	}
	// A file that is replaced keeps its old content, and nothing is left beside it.
	if err := f.WriteSummary(Summary{Status: strings.Repeat("long", 5000)}); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	if s, err := ReadSummary(f.File(SummaryName)); err != nil || s.Status != "before" {
		t.Errorf("%+v, %v", s, err)
	}
	if left, _ := filepath.Glob(f.File("*.tmp")); len(left) > 0 {
		t.Error(left)
	}
	tr, err := f.CreateTrace()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		tr.Add(Slice{Name: "x", Cat: Compute, Start: float64(i), End: float64(i) + 0.5})
	}
	if err := tr.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	// A new run on the full disk is refused, and leaves nothing.
	run := filepath.Join(dir, "second")
	g, err := Create(run, false)
	refused(t, g, err, run, "no space left", "--out")
	if _, err := os.Lstat(run); !errors.Is(err, os.ErrNotExist) {
		t.Error("the refused run left its folder")
	}
}

func TestCreateNamed(t *testing.T) {
	root := filepath.Join(t.TempDir(), "runs")
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.Local)
	for _, want := range []string{"my-job-20260102-150405", "my-job-20260102-150405-2", "my-job-20260102-150405-3"} {
		f, err := CreateNamed(root, "my job", now)
		if err != nil {
			t.Fatal(err)
		}
		if got := filepath.Base(f.Path); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		f.Close()
	}
	for name, want := range map[string]string{"../../etc": "etc", "": "run", "...": "run", "a/b c": "a-b-c", "-x": "x", "größe": "gr--e", strings.Repeat("n", 300): strings.Repeat("n", 100)} {
		got := fileName(name)
		if got != want {
			t.Errorf("%q gives %q, want %q", name, got, want)
		}
	}
}

func TestRankLog(t *testing.T) {
	f, err := Create(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, s := range []string{"one\n", "two\n"} {
		l, err := f.RankLog(3)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.WriteString(s); err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
	if b, err := os.ReadFile(f.File("logs/rank-3.log")); err != nil || string(b) != "one\ntwo\n" {
		t.Errorf("%q, %v", b, err)
	}
}
