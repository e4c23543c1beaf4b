package launcher

import (
	"fmt"
	"strings"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
)

// starting watches a world that is not together yet.
type starting struct {
	tick   *time.Ticker
	looked time.Time // when the ranks were last looked at
	forked time.Time // when the last rank was started; zero: not yet
}

const (
	startLook = 100 * time.Millisecond
	// frozenAfter is how long this process has not run itself where it looks that much too late: it was
	// stopped, or its machine was. The ranks have had no time then either.
	frozenAfter = 2 * time.Second
	// crowd is how many ranks can start on a core within the times of Config; more get more.
	crowd = 16
)

func newStarting() *starting {
	return &starting{tick: time.NewTicker(startLook), looked: time.Now()}
}

func (s *starting) look() <-chan time.Time {
	if s == nil {
		return nil
	}
	return s.tick.C
}

func (w *world) endStarting() {
	if w.starting != nil {
		w.starting.tick.Stop()
		w.starting = nil
	}
}

// crowded is what a time becomes where many ranks share a core.
func crowded(d time.Duration, ranks, cores int) time.Duration {
	return time.Duration(float64(d) * max(1, float64(ranks)/float64(crowd*max(1, cores))))
}

// judgeStart ends the world where a rank has not come up, or not joined the others, in its time.
func (w *world) judgeStart(now time.Time) {
	s := w.starting
	gap := now.Sub(s.looked)
	s.looked = now
	if gap > frozenAfter {
		for _, p := range w.ranks {
			p.began = p.began.Add(gap)
		}
		if !s.forked.IsZero() {
			s.forked = s.forked.Add(gap)
		}
		return
	}
	hello := crowded(w.cfg.HelloTimeout, len(w.ranks), w.cores)
	if l := w.late(func(p *process) bool { return p.hello || now.Sub(p.began) <= hello }); len(l) > 0 {
		w.missing("never came up", hello, l)
		return
	}
	within := crowded(w.cfg.StartTimeout, len(w.ranks), w.cores)
	if s.forked.IsZero() || now.Sub(s.forked) <= within {
		return
	}
	what := "did not finish setting up"
	l := w.late(func(p *process) bool { return p.ready || p.joined })
	if len(l) == 0 || len(l) == len(w.ranks) { // all of them late means that this is not what they report
		what = "did not join the others"
		l = w.late(func(p *process) bool { return p.joined })
	}
	w.missing(what, within, l)
}

// late lists the ranks that were started and are not there yet.
func (w *world) late(there func(p *process) bool) (l []*process) {
	for _, p := range w.ranks {
		if p.pid != 0 && !there(p) {
			l = append(l, p)
		}
	}
	return l
}

// named is how many late ranks are named; a reader looks at the first.
const named = 8

// missing ends the world for ranks that did not start in time.
func (w *world) missing(what string, within time.Duration, ranks []*process) {
	if len(ranks) == 0 {
		return
	}
	var names []string
	for i, p := range ranks {
		if i == named {
			names = append(names, fmt.Sprintf("and %d more", len(ranks)-named))
			break
		}
		name := fmt.Sprintf("rank %d (pid %d on host %s", p.rank, p.pid, w.host)
		switch kernelState(p.pid) {
		case 'T', 't':
			name += ", stopped by a signal"
		case 'D':
			name += ", waiting in the kernel, for a file system perhaps"
		}
		names = append(names, name+")")
	}
	f := &RankError{Rank: ranks[0].rank, PID: ranks[0].pid, Host: w.host, Time: time.Now(), what: what + " within " + within.String()}
	f.text = strings.Join(names, ", ") + " " + f.what
	w.log().Error().Msg(f.text)
	w.fail(exitcode.With(exitcode.RankLost, f))
}
