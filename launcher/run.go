package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipetrain/pipetrain/exitcode"
)

// Config says what Run starts.
type Config struct {
	Binary string   // the program of every rank, usually os.Executable()
	Args   []string // its arguments, without argv[0]
	Ranks  int      // 1 or more
	Env    []string // the ranks' environment before Run adds its own variables
	Dir    string   // the ranks' working folder; empty: this process's
	RunDir string   // gets logs/ and the exit record; empty: neither is written
	// Home is where RunDir is at the end, empty where nobody knows: somebody may have moved it, and put
	// another run's in its place. nil: RunDir.
	Home func() string

	// Signals already collects StopSignals, for a caller that had something to lose before Run; Run adds the
	// others. nil: Run makes its own. Without this a signal between the two would be nobody's.
	Signals chan os.Signal

	// Segment makes the shared memory of the local transport for this many
	// ranks: a file that lives as long as somebody has it open (memfd), so that
	// no end, however sudden, leaves it behind. nil: the ranks need none.
	Segment func(ranks int) (*os.File, error)

	// Both count from the start of processes, and get longer where more than 16 ranks share a core.
	HelloTimeout time.Duration // a process runs and found its launcher within this; 0: 10 s
	StartTimeout time.Duration // all ranks have joined within this after the last was started; 0: a minute
	StopTimeout  time.Duration // from the request to stop until ranks that go on are killed; 0: five minutes
	LossGrace    time.Duration // what survivors of a failure have to end by themselves; 0: 1.5 s

	Bind    Bind // how cores are shared out; empty: BindAuto
	Threads int  // CPU threads of a rank; 0: the cores shared by the ranks

	Logger zerolog.Logger
	// Stdout and Stderr get what the ranks print. Rank 0 inherits Stdout itself
	// where it is a file, or has a File that it passes on to, so that a progress line on a terminal works; lines of
	// other ranks, and all of stderr, are relayed whole, with the rank in front.
	Stdout, Stderr io.Writer
}

const (
	defaultHelloTimeout = 10 * time.Second // says hello first of all
	defaultStartTimeout = time.Minute
	defaultStopTimeout  = 5 * time.Minute
	defaultLossGrace    = 1500 * time.Millisecond
	interruptGrace      = time.Second            // between SIGTERM and SIGKILL where nothing is to be saved
	reapTimeout         = 2 * time.Second        // after SIGKILL, for processes stuck in the kernel
	drainTimeout        = 500 * time.Millisecond // for output in pipes after a rank's end
)

func (c *Config) check() error {
	if c.Ranks < 1 {
		return exitcode.Errorf(exitcode.Usage, "launcher: %d ranks asked for, at least 1 is needed", c.Ranks)
	}
	if c.HelloTimeout == 0 {
		c.HelloTimeout = defaultHelloTimeout
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = defaultStartTimeout
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = defaultStopTimeout
	}
	if c.LossGrace == 0 {
		c.LossGrace = defaultLossGrace
	}
	if c.HelloTimeout < 0 || c.StartTimeout < 0 || c.StopTimeout < 0 || c.LossGrace < 0 {
		return exitcode.Errorf(exitcode.Usage, "launcher: a time-out is negative")
	}
	if c.Stdout == nil {
		c.Stdout = io.Discard
	}
	if c.Stderr == nil {
		c.Stderr = io.Discard
	}
	if c.Dir != "" {
		// fork and exec would blame the binary.
		if _, err := os.Stat(c.Dir); err != nil {
			return exitcode.With(exitcode.Environment, fmt.Errorf("launcher: working folder of the ranks: %w", err))
		}
	}
	if c.RunDir != "" {
		if err := os.MkdirAll(filepath.Join(c.RunDir, LogDir), 0o755); err != nil {
			return exitcode.With(exitcode.Environment, fmt.Errorf("launcher: run folder: %w", err))
		}
	}
	return nil
}

// LogDir is the folder in the run folder for what each rank wrote: rank-N.log,
// its log, by itself; rank-N.stderr, captured by Run where there was any.
const LogDir = "logs"

// Run starts the ranks of a world as children of this process and returns when
// none is left: nil when all are done, else an error with the exit code of the
// table (exitcode.Of) that names the rank that failed first. A failed, killed,
// vanished or never started rank ends the world; a rank never outlives Run, nor
// this process, however it ends.
//
// SIGINT, SIGTERM, SIGHUP: the first asks the ranks to stop at a step boundary
// (SIGTERM), or ends a world that has no step yet; the second kills. SIGUSR1,
// SIGUSR2 and SIGQUIT are forwarded; SIGTSTP stops the ranks too.
// The end of ctx kills at once.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.check(); err != nil {
		return err
	}
	signals := cfg.Signals
	if signals == nil {
		signals = make(chan os.Signal, 16)
	}
	signal.Notify(signals, append(StopSignals(), syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGCONT)...)
	defer signal.Stop(signals)
	defer surviveBrokenPipe()()

	w := newWorld(cfg, signals)
	err := w.run(ctx)
	w.writeRecord(err)
	return err
}

// StopSignals are those that ask a world to stop. SIGHUP is one unless this process was told to ignore it, by
// nohup. Ask before anything takes it: signal.Notify undoes that.
func StopSignals() []os.Signal {
	stop := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		stop = append(stop, syscall.SIGHUP)
	}
	return stop
}

// surviveBrokenPipe makes writing to a closed stdout an error, not the end: a
// reader that has seen enough (| head) must not end a training run.
func surviveBrokenPipe() (restore func()) {
	unread := make(chan os.Signal, 1)
	signal.Notify(unread, syscall.SIGPIPE)
	return func() { signal.Stop(unread) }
}

// run starts the ranks, sees them through and waits for all of them.
func (w *world) run(ctx context.Context) error {
	w.cores = len(availableCPUs())
	cores, err := shareCores(availableCPUs(), w.cfg.Ranks, w.cfg.Bind, w.cfg.Threads)
	if err != nil {
		return err
	}
	keeper := newKeeper()
	defer keeper.end()

	segment, err := w.segment()
	if err != nil {
		return err
	}
	for i := range w.ranks {
		if err := w.start(keeper, i, segment, cores[i]); err != nil {
			w.fail(err)
			break
		}
		// A signal or a dead rank while later ones still start is seen at once.
		w.poll(ctx)
		if w.ending() {
			break
		}
	}
	if w.starting != nil {
		w.starting.forked = time.Now()
	}
	segment.Close()
	w.loop(ctx)
	w.relay.drain(drainTimeout)
	err = w.verdict()
	if err != nil {
		w.relay.stdout.wipe()
	}
	return err
}

// segment is the file that all ranks inherit as descriptor 3; /dev/null holds
// the place where there is none.
func (w *world) segment() (*os.File, error) {
	if w.cfg.Segment == nil {
		return os.Open(os.DevNull)
	}
	f, err := w.cfg.Segment(w.cfg.Ranks)
	if err != nil {
		code := exitcode.Of(err)
		if code == exitcode.Unexpected {
			code = exitcode.Environment
		}
		return nil, exitcode.With(code, fmt.Errorf("launcher: shared memory for %d ranks: %w", w.cfg.Ranks, err))
	}
	return f, nil
}

// writeRecord leaves the exit record; that it cannot be written is said but
// does not change the verdict.
func (w *world) writeRecord(err error) {
	if w.cfg.RunDir == "" {
		return
	}
	home := w.cfg.RunDir
	if w.cfg.Home != nil {
		if home = w.cfg.Home(); home == "" {
			w.log().Error().Msg("no exit record: the run folder " + w.cfg.RunDir + " is gone")
			return
		}
	}
	r := exitcode.Record{Code: exitcode.Of(err), Rank: exitcode.NoRank, Launcher: string(Local), Step: w.lastStep()}
	if err != nil {
		r.Reason = err.Error()
	}
	var f *RankError
	if errors.As(err, &f) {
		r.Rank, r.PID, r.Host, r.Time, r.Step = f.Rank, f.PID, f.Host, f.Time, f.Step
		if f.Signal != 0 {
			r.Signal = signalName(f.Signal)
		}
	}
	if err := exitcode.Write(home, r); err != nil {
		w.log().Error().Err(err).Msg("the exit record could not be written")
	}
}

// keeper is the one OS thread that all ranks are started from. The kernel sends
// a child its parent-death signal when the *thread* that forked it ends, and Go
// ends threads as it likes, except one that a goroutine has locked.
type keeper struct {
	jobs chan func()
}

func newKeeper() *keeper {
	k := &keeper{jobs: make(chan func())}
	go func() {
		runtime.LockOSThread()
		// Never unlocked: the thread, whose affinity was changed, ends with the
		// goroutine, and a rank that were still there would end with it.
		for job := range k.jobs {
			job()
		}
	}()
	return k
}

func (k *keeper) do(job func()) {
	done := make(chan struct{})
	k.jobs <- func() { defer close(done); job() }
	<-done
}

func (k *keeper) end() { close(k.jobs) }
