package launcher

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipetrain/pipetrain/exitcode"
)

// termEcho is how long further SIGTERMs are the first one's: at a time limit Slurm sends one, and
// srun another.
const termEcho = 3 * time.Second

// world is a running world; one goroutine, the loop, owns it.
type world struct {
	cfg     Config
	host    string
	ranks   []*process
	relay   *relay
	oom     oomWatch
	events  chan event
	signals <-chan os.Signal
	started time.Time
	cores   int // of this host, which this process may use

	requests int           // SIGINT, SIGTERM, SIGHUP so far
	termAt   time.Time     // of the first SIGTERM
	asked    string        // the signal that asked first
	failed   error         // ends the world before or beside any rank: not startable, start time-out
	cut      exitcode.Code // why the world was ended from outside; 0: it was not
	over     bool          // the survivors have been told
	killed   bool
	gaveUp   bool // some process does not die

	starting                        *starting // nil once all ranks have joined, or the world is over
	stopTimer, killTimer, reapTimer <-chan time.Time
}

func newWorld(cfg Config, signals <-chan os.Signal) *world {
	w := &world{
		cfg: cfg, relay: newRelay(cfg), oom: watchOOM(), signals: signals, started: time.Now(),
		// Room for what ranks say while the loop is starting the next one.
		events:   make(chan event, 256),
		starting: newStarting(),
	}
	w.host, _ = os.Hostname()
	for i := range cfg.Ranks {
		w.ranks = append(w.ranks, &process{rank: i})
	}
	return w
}

// log is the launcher's own logger, on a terminal behind a wiped progress line.
func (w *world) log() *zerolog.Logger {
	w.relay.stderr.wipe()
	return &w.cfg.Logger
}

// loop handles what happens until no rank is left.
func (w *world) loop(ctx context.Context) {
	for w.alive() {
		w.next(ctx, true)
		if w.reapTimer == nil && w.killed {
			w.reapTimer = time.After(reapTimeout)
		}
		if w.gaveUp {
			return
		}
	}
}

// poll handles what is there already.
func (w *world) poll(ctx context.Context) {
	for w.next(ctx, false) {
	}
}

// next handles one thing; without wait it says whether there was one.
func (w *world) next(ctx context.Context, wait bool) bool {
	done := ctx.Done()
	if w.killed {
		done = nil
	}
	idle := make(chan struct{})
	if !wait {
		close(idle)
		select { // the idle case below would be taken at random
		case e := <-w.events:
			w.handle(e)
			return true
		case s := <-w.signals:
			w.signalled(s.(syscall.Signal))
			return true
		default:
		}
	}
	select {
	case e := <-w.events:
		w.handle(e)
	case s := <-w.signals:
		w.signalled(s.(syscall.Signal))
	case <-done:
		w.log().Warn().Err(context.Cause(ctx)).Msg("cancelled: the ranks are killed")
		w.interrupt()
		w.kill()
	case <-w.starting.look():
		w.judgeStart(time.Now())
	case <-w.stopTimer:
		w.stopTimer = nil
		w.log().Error().Dur("after", w.cfg.StopTimeout).Msg("the ranks did not stop: they are killed")
		w.interrupt()
		w.kill()
	case <-w.killTimer:
		w.killTimer = nil
		w.kill()
	case <-w.reapTimer:
		w.gaveUp = true
		w.log().Error().Ints("pids", w.alivePIDs()).Msg("processes do not die (stuck in the kernel); they are left behind")
	case <-idle:
		return false
	}
	return true
}

// handle takes a rank's line or end.
func (w *world) handle(e event) {
	p := e.p
	if e.msg == nil {
		p.exited, p.status, p.ended = true, e.status, e.time
		if !p.endedWell() {
			w.lose()
		}
		return
	}
	switch e.msg.verb {
	case verbHello:
		p.hello = true
	case verbReady:
		p.ready = true
	case verbJoined:
		p.joined = true
		if w.all(func(p *process) bool { return p.joined }) {
			w.endStarting()
			w.log().Debug().Int("ranks", len(w.ranks)).Dur("after", time.Since(w.started)).Msg("the world is together")
		}
	case verbStep:
		p.step = max(p.step, e.msg.n)
	case verbDone:
		p.done = true
	case verbStopped:
		p.stopped, p.step = true, max(p.step, e.msg.n)
	case verbFailed, verbTold:
		p.report = e.msg
		// Its end follows; the others need not wait for it.
		w.lose()
	}
}

// lose ends the world because a rank failed: the survivors are told, which is
// enough where they listen, and killed a little later where they do not.
func (w *world) lose() {
	if w.over {
		return
	}
	w.over = true
	w.stopTimer = nil
	w.endStarting()
	text := message{verb: verbLost, n: -1, text: "the world is ended"}
	if f := w.culprit(); f != nil {
		text.n, text.text = int64(f.Rank), f.what
		w.log().Error().Int("rank", f.Rank).Int("pid", f.PID).Str("host", f.Host).Msg("rank " + fmt.Sprint(f.Rank) + " " + f.what + "; ending the others")
	}
	for _, p := range w.ranks {
		if p.state != nil && !p.exited {
			p.state.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			p.state.WriteString(text.String())
		}
	}
	w.killTimer = time.After(w.cfg.LossGrace)
}

// fail ends the world for a reason that is no rank's own.
func (w *world) fail(err error) {
	if w.failed == nil {
		w.failed = err
	}
	w.lose()
	w.kill()
}

// interrupt notes that the end comes from outside.
func (w *world) interrupt() {
	if w.cut == 0 && !w.over {
		w.cut = exitcode.Interrupted
	}
}

// kill ends every rank that is left, at once.
func (w *world) kill() {
	w.over, w.killed = true, true
	w.stopTimer, w.killTimer = nil, nil
	w.endStarting()
	for _, p := range w.ranks {
		if !p.exited {
			// Who is dead already died by itself, though the loop has yet to hear of it.
			p.killed = p.alive()
			p.signal(syscall.SIGKILL, true)
		}
	}
}

// signalled handles a signal to the launcher.
func (w *world) signalled(s syscall.Signal) {
	switch s {
	case syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGQUIT:
		w.log().Info().Str("signal", signalName(s)).Msg("signal forwarded to the ranks")
		w.forward(s, false)
		return
	case syscall.SIGTSTP:
		w.forward(syscall.SIGSTOP, true)
		syscall.Kill(os.Getpid(), syscall.SIGSTOP) // continues here, by SIGCONT
		return
	case syscall.SIGCONT:
		w.forward(syscall.SIGCONT, true)
		return
	}
	if s == syscall.SIGTERM {
		if w.termAt.IsZero() {
			w.termAt = time.Now()
		} else if time.Since(w.termAt) < termEcho {
			return
		}
	}
	w.requests++
	if w.asked == "" {
		w.asked = signalName(s)
	}
	switch {
	case w.requests > 1:
		w.log().Warn().Str("signal", signalName(s)).Msg("second request: the ranks are killed")
		w.interrupt()
		w.kill()
	case w.over:
		// It ends already; the next one makes it quick.
	case w.lastStep() == 0 && !w.any(func(p *process) bool { return p.done || p.stopped }):
		w.log().Warn().Str("signal", signalName(s)).Msg("no step was finished yet, so there is nothing to save: ending")
		w.interrupt()
		w.over = true
		w.endStarting()
		w.forward(syscall.SIGTERM, false)
		w.killTimer = time.After(interruptGrace)
	default:
		w.log().Warn().Str("signal", signalName(s)).Int64("step", w.lastStep()).
			Msg("the ranks are asked to save and stop after this step; once more kills them at once")
		w.forward(syscall.SIGTERM, false)
		w.stopTimer = time.After(w.cfg.StopTimeout)
	}
}

func (w *world) forward(s syscall.Signal, group bool) {
	for _, p := range w.ranks {
		if !p.exited {
			p.signal(s, group)
		}
	}
}

// ending says that no more ranks are to be started.
func (w *world) ending() bool { return w.over }

func (w *world) alive() bool { return len(w.alivePIDs()) > 0 }

func (w *world) alivePIDs() (pids []int) {
	for _, p := range w.ranks {
		if p.pid != 0 && !p.exited {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

func (w *world) all(is func(p *process) bool) bool {
	return !w.any(func(p *process) bool { return !is(p) })
}

func (w *world) any(is func(p *process) bool) bool {
	for _, p := range w.ranks {
		if is(p) {
			return true
		}
	}
	return false
}

// lastStep is the last step that any rank finished in this run.
func (w *world) lastStep() (n int64) {
	for _, p := range w.ranks {
		n = max(n, p.step)
	}
	return n
}
