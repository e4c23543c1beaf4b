package launcher

import (
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/exitcode"
)

// RankError is the rank that ended the world.
type RankError struct {
	Rank   int
	PID    int
	Host   string
	Signal syscall.Signal // that killed it; 0: none did
	Time   time.Time
	Step   int64 // last step it finished, 0: none

	code   exitcode.Code
	victim bool   // it complained of a rank that it lost
	what   string // "was killed by signal 9 (SIGKILL)"
	text   string // the whole sentence, where it is not the usual one
}

func (f *RankError) Error() string {
	if f.text != "" {
		return f.text
	}
	at := ""
	if f.Step > 0 {
		at = fmt.Sprintf(" after step %d", f.Step)
	}
	return fmt.Sprintf("rank %d (pid %d on host %s) %s%s", f.Rank, f.PID, f.Host, f.what, at)
}

// endedWell says that the rank's end is one that a world can end with.
func (p *process) endedWell() bool {
	if !p.status.Exited() {
		return false
	}
	switch exitcode.Code(p.status.ExitStatus()) {
	case exitcode.Finished:
		return p.done
	case exitcode.Stopped:
		return true
	}
	return false
}

// verdict is what Run returns, once all ranks are over.
func (w *world) verdict() error {
	if w.cut != 0 {
		return exitcode.Errorf(w.cut, "interrupted%s; not saved beyond the last checkpoint", w.byWhom())
	}
	if w.failed != nil {
		return w.failed
	}
	if f := w.culprit(); f != nil {
		// A rank that the request itself ended had no handler yet, or chose not to save.
		if w.requests > 0 && f.Signal == syscall.SIGTERM {
			return exitcode.Errorf(exitcode.Interrupted, "interrupted%s: %w", w.byWhom(), f)
		}
		return exitcode.With(f.code, f)
	}
	if w.any(func(p *process) bool { return !p.exited }) {
		return exitcode.Errorf(exitcode.RankLost, "processes %v on host %s cannot be ended; look at them with ps", w.alivePIDs(), w.host)
	}
	if w.any(func(p *process) bool { return p.stopped || p.status.ExitStatus() == int(exitcode.Stopped) }) {
		return exitcode.Errorf(exitcode.Stopped, "stopped%s after step %d and saved; --resume continues", w.byWhom(), w.lastStep())
	}
	return nil
}

func (w *world) byWhom() string {
	if w.asked == "" {
		return ""
	}
	return " by " + w.asked
}

// culprit is the rank that failed first, nil where none did by itself. When a
// rank dies, its peers soon fail too because they lost it, and may say so
// before the kernel has reported the death: who complains of a loss is named
// only if nobody else failed.
func (w *world) culprit() *RankError {
	var first *RankError
	for _, p := range w.ranks {
		f := w.failure(p)
		if f == nil {
			continue
		}
		if first == nil || first.victim && !f.victim || first.victim == f.victim && f.Time.Before(first.Time) {
			first = f
		}
	}
	return first
}

// failure says how p failed by itself, nil if it did not.
func (w *world) failure(p *process) *RankError {
	if p.pid == 0 || p.report == nil && (!p.exited || p.killed || p.endedWell()) {
		return nil
	}
	f := &RankError{Rank: p.rank, PID: p.pid, Host: w.host, Step: p.step, Time: p.ended}
	switch {
	case p.report != nil:
		f.code, f.Time = exitcode.Code(p.report.n), p.report.time
		f.what = "failed: " + p.report.text
		f.victim = f.code == exitcode.RankLost
		if by := p.report.by; p.report.verb == verbTold && by < len(w.ranks) {
			f.victim, f.Rank, f.PID = true, by, w.ranks[by].pid
		}
		if f.code == exitcode.Finished {
			f.code = exitcode.Unexpected
		}
	case p.status.Signaled():
		f.Signal = p.status.Signal()
		f.code = exitcode.RankLost
		f.what = fmt.Sprintf("was killed by signal %d (%s)", int(f.Signal), signalName(f.Signal))
		if f.Signal == syscall.SIGKILL {
			if evidence := w.oom.evidence(p.pid); evidence != "" {
				f.code = exitcode.OutOfMemory
				f.what += "; " + evidence
			}
		}
	default:
		w.unexplained(p, f)
	}
	return f
}

// unexplained fills f for a rank that ended by an exit code without a word.
func (w *world) unexplained(p *process, f *RankError) {
	status := p.status.ExitStatus()
	f.code = exitcode.Code(status)
	crash := p.stderr.crash()
	switch {
	case crash != "":
		f.code = exitcode.Unexpected
		if panicIsMemory(crash) {
			f.code = exitcode.OutOfMemory
		}
		limit := ""
		if panicIsLimit(crash) {
			f.code, limit = exitcode.Environment, ": raise ulimit -u or ulimit -v, or the cgroup's limit of processes"
		}
		f.what = fmt.Sprintf("crashed: %s%s%s", crash, limit, w.seeStderr(p))
	case status == 0:
		f.code = exitcode.RankLost
		f.what = "ended with exit code 0 before its work was done"
	default:
		known := "exit code " + f.code.String()
		if !f.code.Known() {
			known = fmt.Sprintf("exit code %d", status)
			f.code = exitcode.Unexpected
		}
		f.what = "ended with " + known
		f.victim = f.code == exitcode.RankLost
		if last := p.stderr.lastLine(); last != "" {
			f.what += fmt.Sprintf("; its last words: %q%s", last, w.seeStderr(p))
		}
	}
}

func (w *world) seeStderr(p *process) string {
	if w.cfg.RunDir == "" {
		return ""
	}
	return " (see " + filepath.Join(w.cfg.RunDir, LogDir, fmt.Sprintf("rank-%d.stderr", p.rank)) + ")"
}

func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}
