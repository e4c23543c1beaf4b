package launcher

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Under a launcher that is not ours nobody is left to say which rank died: mpiexec
// kills the others at once, srun and mpirun answer with a code of their own. So
// one rank of each host starts a guard: a small process outside the launcher's
// process groups that watches the host's ranks, writes the exit record when one
// dies without a word, ends those that outlive it, and goes when they are gone.

// GuardCommand is the first argument that makes this binary a guard.
const GuardCommand = "__guard"

// Guarded is one rank of a guard's host.
type Guarded struct {
	Rank int
	PID  int
	// Lifeline is what OpenLifeline returned there; 0: it has none, and the order in which
	// the kernel reports deaths has to do.
	Lifeline int
}

// GuardConfig is what a guard needs to know.
type GuardConfig struct {
	RunDir   string
	Launcher Kind
	Ranks    []Guarded // all on this host and in this pid namespace
	// Grace is what ranks get to end by themselves, or by their launcher's hand,
	// once the run has failed; 0: guardGrace.
	Grace time.Duration
}

// Guard is a rank's line to the guard that it started. A nil one does nothing.
type Guard struct {
	mu   sync.Mutex
	line *os.File
}

// PlaceKey names what process numbers are unique in: two ranks with the same key
// can be watched by one guard.
func PlaceKey() string {
	host, _ := os.Hostname()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	ns, _ := os.Readlink("/proc/self/ns/pid")
	return host + " " + strings.TrimSpace(string(boot)) + " " + ns
}

// StartGuard starts a guard from this binary, with env (os.Environ()) less what
// makes a process a rank.
func StartGuard(binary string, env []string, c GuardConfig) (*Guard, error) {
	// MPI libraries leave descriptors open over exec; held by a guard, they would look
	// to the launcher like a living rank.
	closeOnExec()
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := exec.Command(binary, GuardCommand, c.RunDir)
	cmd.Env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return slices.ContainsFunc([]string{"OMPI_", "PMIX_", "PMI_", "PALS_", "HYD", "MPI_", "FLUX_", "SLURM_"},
			func(prefix string) bool { return strings.HasPrefix(kv, prefix) })
	})
	cmd.Dir = "/" // no mount is held
	cmd.Stdin = theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, err
	}
	go cmd.Wait() // no zombie, should it end first
	b, err := json.Marshal(c)
	if err == nil {
		_, err = ours.Write(append(b, '\n'))
	}
	if err != nil {
		ours.Close()
		return nil, err
	}
	return &Guard{line: ours}, nil
}

// Step tells the last step that was finished.
func (g *Guard) Step(n int64) { g.say(fmt.Sprintf("step %d\n", n)) }

// Asked tells that this rank got a signal that asks it to stop.
func (g *Guard) Asked(s os.Signal) {
	name := s.String()
	if sig, ok := s.(syscall.Signal); ok {
		name = signalName(sig)
	}
	g.say("asked " + name + "\n")
}

func (g *Guard) say(line string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// A guard that is gone or stopped holds no step back.
	g.line.SetWriteDeadline(time.Now().Add(time.Millisecond))
	g.line.WriteString(line)
}

func closeOnExec() {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, f := range fds {
		if fd, err := strconv.Atoi(filepath.Base(f.Name())); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// heard is what the rank told its guard.
type heard struct {
	mu    sync.Mutex
	step  int64
	asked string
}

func (h *heard) listen(lines *bufio.Reader) {
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		verb, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		h.mu.Lock()
		switch verb {
		case "step":
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				h.step = n
			}
		case "asked":
			h.asked = text
		}
		h.mu.Unlock()
	}
}

// BeGuard is a guard's life: in is the pipe from the rank that started it.
func BeGuard(in io.Reader) error {
	lines := bufio.NewReader(in)
	first, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	var c GuardConfig
	if err := json.Unmarshal(first, &c); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	h := &heard{}
	go h.listen(lines)
	return newWatch(c, h).run()
}
