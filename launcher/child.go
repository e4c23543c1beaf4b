package launcher

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
)

// Child is a rank's line to the embedded launcher. In a process that Run did
// not start (mpirun, srun, alone) it is inert: every method does nothing, so
// that rank code calls it without asking.
type Child struct {
	state   *os.File
	segment *os.File
	over    context.Context // ends, with a LossError as its cause, with the world
	end     context.CancelCauseFunc

	mu      sync.Mutex
	written map[string]bool // verbs that are said once
	step    int64           // the last one that was told
}

// LossError is the launcher's word that a rank failed and the world is over.
type LossError struct {
	Rank   int    // the rank that failed first; -1: the launcher itself is gone
	Reason string // "was killed by signal 9 (SIGKILL)"
}

func (l LossError) Error() string {
	if l.Rank < 0 {
		return l.Reason
	}
	return fmt.Sprintf("rank %d %s", l.Rank, l.Reason)
}

// OpenChild takes over the descriptors that Run passed, as named by env
// (os.Environ()); call it once, early, before anything opens files. It returns
// an inert Child where Run did not start this process.
func OpenChild(env []string) (*Child, error) {
	c := &Child{written: map[string]bool{}}
	c.over, c.end = context.WithCancelCause(context.Background())
	vars := environment(env)
	if vars[EnvStateFD] == "" {
		return c, nil
	}
	fd, err := inherited(vars, EnvStateFD)
	if err != nil {
		return nil, err
	}
	// Somebody who copied the variables, a grandchild, say, has another file there or none.
	if _, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TYPE); err != nil {
		return nil, exitcode.Errorf(exitcode.Usage, "%s=%d is no socket of a launcher (%v): this process is not a rank; unset the PIPETRAIN_ variables", EnvStateFD, fd, err)
	}
	if vars[EnvSegmentFD] != "" {
		seg, err := inherited(vars, EnvSegmentFD)
		if err != nil {
			return nil, err
		}
		syscall.CloseOnExec(seg)
		c.segment = os.NewFile(uintptr(seg), "segment")
	}
	syscall.CloseOnExec(fd)
	// Non-blocking, so that deadlines work on it and a stopped launcher cannot hold a step back.
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("state socket: %w", err)
	}
	c.state = os.NewFile(uintptr(fd), "state")
	surviveBrokenPipe() // rank 0 has the launcher's stdout
	c.once(message{verb: verbHello})
	go c.listen()
	return c, nil
}

func inherited(vars map[string]string, name string) (int, error) {
	fd, err := strconv.Atoi(vars[name])
	if err == nil && fd < 3 {
		err = fmt.Errorf("descriptor %d is a standard one", fd)
	}
	if err == nil {
		var st syscall.Stat_t
		err = syscall.Fstat(fd, &st)
	}
	if err != nil {
		return 0, exitcode.Errorf(exitcode.Usage, "%s=%q is no open descriptor (%v): this process is not a rank; unset the PIPETRAIN_ variables", name, vars[name], err)
	}
	return fd, nil
}

// Active says whether Run started this process.
func (c *Child) Active() bool { return c.state != nil }

// Segment is the shared memory that Config.Segment made, nil where there is
// none. It belongs to the caller from now on.
func (c *Child) Segment() *os.File { return c.segment }

// Ready tells that this rank's own set-up (data read, memory taken) is over and
// that it now waits for the others: a rank that never gets here is the one that
// the launcher names when the world does not come together.
func (c *Child) Ready() { c.once(message{verb: verbReady}) }

// Joined tells that this rank reached the others and can begin.
func (c *Child) Joined() { c.once(message{verb: verbJoined}) }

// Step tells that step n (counted from 1) is finished.
func (c *Child) Step(n int64) {
	c.mu.Lock()
	c.step = max(c.step, n)
	c.mu.Unlock()
	c.say(message{verb: verbStep, n: n})
}

// Done tells that this rank's part is over, results written. Without it an exit
// code of 0 counts as a failure.
func (c *Child) Done() { c.once(message{verb: verbDone}) }

// Stopped tells that the rank saved after the step on request; the process is
// to end with exitcode.Stopped.
func (c *Child) Stopped(step int64) { c.once(message{verb: verbStopped, n: step}) }

// Failed tells why this rank is about to end; err's code is the one to exit
// with. Say it as soon as the error is known, before anything slow: the
// earliest report names the culprit.
func (c *Child) Failed(err error) {
	if err == nil {
		return
	}
	if exitcode.Of(err) == exitcode.Stopped {
		// An error to the caller, who exits with its code; to the world a good end.
		c.mu.Lock()
		step := c.step
		c.mu.Unlock()
		c.Stopped(step)
		return
	}
	m := message{verb: verbFailed, n: int64(exitcode.Of(err)), time: time.Now(), text: err.Error()}
	if by := exitcode.Culprit(err, -1); by >= 0 {
		m.verb, m.by = verbTold, by
	}
	c.once(m)
}

// Context ends with the world: when the launcher says that another rank failed,
// or is itself gone. Its cause is then a LossError with the code exitcode.RankLost.
// Where Run did not start this process it ends with parent alone.
func (c *Child) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	unhook := context.AfterFunc(c.over, func() { cancel(context.Cause(c.over)) })
	return ctx, func() { unhook(); cancel(context.Canceled) }
}

func (c *Child) once(m message) {
	c.mu.Lock()
	said := c.written[m.verb]
	c.written[m.verb] = true
	c.mu.Unlock()
	if !said {
		c.say(m)
	}
}

// say writes a line. A launcher that does not read (stopped by ^Z for long) or
// is gone costs the line, never the rank: its end is noticed elsewhere.
func (c *Child) say(m message) {
	if !c.Active() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	wait := 2 * time.Second
	if m.verb == verbStep {
		wait = 10 * time.Millisecond
	}
	c.state.SetWriteDeadline(time.Now().Add(wait))
	c.state.WriteString(m.String())
}

// listen waits for the launcher's one message.
func (c *Child) listen() {
	in := bufio.NewScanner(c.state)
	for in.Scan() {
		if m, err := parseMessage(in.Text()); err == nil && m.verb == verbLost {
			c.end(exitcode.With(exitcode.RankLost, LossError{Rank: int(m.n), Reason: m.text}))
			return
		}
	}
	c.end(exitcode.With(exitcode.RankLost, LossError{Rank: -1, Reason: "the launcher is gone"}))
}
