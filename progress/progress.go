// Package progress is the room of what a run shows while it goes on: one line
// that renews itself on a terminal, plain log lines elsewhere. It imports
// nothing of the project.
package progress

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"
)

// Step is one finished step as it is shown.
type Step struct {
	Step            int // counted from 1
	Loss            float64
	TokensPerSecond float64
	Bubble          float64 // measured, share of ranks × makespan; 0: not known
	PredictedBubble float64 // 0: not known yet
	PeakBytes       int64   // of the fullest rank that is known
}

// Options say where and how often.
type Options struct {
	Out      io.Writer      // the terminal, or whatever stdout is
	Log      zerolog.Logger // for the plain lines where Out is no terminal
	Total    int            // steps of the whole run
	Interval time.Duration  // between plain lines; 0: five seconds
}

const (
	redraw      = 100 * time.Millisecond // between drawings of the line
	logInterval = 5 * time.Second
	fallback    = 80 // columns of a terminal that does not say
	clearLine   = "\r\x1b[K"
)

// Progress shows the steps of one run. Its methods may be called from several
// goroutines; a nil *Progress shows nothing.
type Progress struct {
	o     Options
	width func() int       // columns of the terminal; nil: no terminal
	now   func() time.Time // the clock

	mu       sync.Mutex
	began    time.Time // when the first step was reported
	first    int       // that step
	shown    time.Time
	last     Step
	unshown  bool // last is newer than what is shown
	visible  bool // the cursor is on a progress line
	finished bool
}

// New returns a Progress that draws on o.Out if that is a terminal which can
// renew a line, and logs otherwise.
func New(o Options) *Progress {
	p := &Progress{o: o, now: time.Now}
	if p.o.Interval <= 0 {
		p.o.Interval = logInterval
	}
	if f, ok := o.Out.(*os.File); ok && Terminal(f) {
		p.width = func() int {
			w, _, err := term.GetSize(int(f.Fd()))
			if err != nil || w <= 0 {
				return fallback
			}
			return w
		}
	}
	return p
}

// Terminal says whether f is a terminal that can renew a line.
func Terminal(f *os.File) bool {
	return term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// Step shows that a step is finished.
func (p *Progress) Step(s Step) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished {
		return
	}
	now := p.now()
	if p.began.IsZero() {
		p.began, p.first = now, s.Step
	}
	p.last, p.unshown = s, true
	wait := redraw
	if p.width == nil {
		wait = p.o.Interval
	}
	if p.shown.IsZero() || now.Sub(p.shown) >= wait || s.Step >= p.o.Total {
		p.show(now)
	}
}

func (p *Progress) show(now time.Time) {
	p.shown, p.unshown = now, false
	if p.width == nil {
		e := p.o.Log.Info().Int("step", p.last.Step).Int("of", p.o.Total).Float64("loss", p.last.Loss).
			Float64("tokens_per_second", p.last.TokensPerSecond)
		if p.last.Bubble > 0 {
			e = e.Float64("bubble", p.last.Bubble)
		}
		if p.last.PredictedBubble > 0 {
			e = e.Float64("bubble_predicted", p.last.PredictedBubble)
		}
		if left := p.left(now); left >= 0 {
			e = e.Str("left", Duration(left))
		}
		e.Str("peak", Bytes(p.last.PeakBytes)).Msg("step")
		return
	}
	// The last column stays free: some terminals wrap as soon as it is written.
	io.WriteString(p.o.Out, "\r"+render(p.last, p.o.Total, p.left(now), p.width()-1)+"\x1b[K")
	p.visible = true
}

// left is the time that the remaining steps take at the mean pace of this run,
// checkpoints included; negative before two steps are known.
func (p *Progress) left(now time.Time) time.Duration {
	done := p.last.Step - p.first
	if done <= 0 {
		return -1
	}
	return now.Sub(p.began) / time.Duration(done) * time.Duration(max(0, p.o.Total-p.last.Step))
}

// Write prints whole lines above the progress line: a log that shares the
// terminal is given the Progress as its writer.
func (p *Progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.visible {
		return p.o.Out.Write(b)
	}
	if _, err := io.WriteString(p.o.Out, clearLine); err != nil {
		return 0, err
	}
	n, err := p.o.Out.Write(b)
	if n > 0 && b[n-1] != '\n' {
		io.WriteString(p.o.Out, "\n")
	}
	p.show(p.now())
	return n, err
}

// Close shows the last step if it was not yet, and leaves the cursor on an
// empty line of its own. It may be called more than once, and at any moment: a
// run that ends early calls it too.
func (p *Progress) Close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished {
		return
	}
	p.finished = true
	if p.unshown {
		p.show(p.now())
	}
	if p.visible {
		io.WriteString(p.o.Out, "\r\n")
		p.visible = false
	}
}
