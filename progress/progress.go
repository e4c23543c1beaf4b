// Package progress shows a run while it goes on: one line
// that renews itself on a terminal, plain log lines elsewhere. It imports
// nothing of the project.
package progress

import (
	"io"
	"os"
	"strconv"
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
	BubbleMeasured  float64 // share of ranks × makespan; 0: not known
	BubblePredicted float64 // 0: not known yet
	PeakBytes       int64   // of the fullest rank that is known
}

// Config says what is shown, where and how often.
type Config struct {
	Out      io.Writer     // the terminal, or whatever stdout is
	Log      io.Writer     // gets plain lines where Out is no terminal
	Title    string        // of the job; shown where there is room
	Start    int           // steps done before (resumed)
	Steps    int           // of the whole run
	Interval time.Duration // between plain lines; 0: five seconds
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
	c     Config
	log   zerolog.Logger
	width func() int       // columns of the terminal; nil: no terminal
	now   func() time.Time // the clock

	mu       sync.Mutex
	began    time.Time // when the pace is counted from
	first    int       // the step that was finished then
	shown    time.Time
	last     Step
	unshown  bool // last is newer than what is shown
	visible  bool // the cursor is on a progress line
	finished bool
}

// New returns a Progress that draws on c.Out if that is a terminal which can
// renew a line, and writes plain lines to c.Log otherwise.
func New(c Config) *Progress {
	p := &Progress{c: c, now: time.Now, first: c.Start}
	p.began = p.now()
	if p.c.Interval <= 0 {
		p.c.Interval = logInterval
	}
	if c.Log != nil {
		f := FileOf(c.Log)
		p.log = zerolog.New(zerolog.ConsoleWriter{Out: c.Log, TimeFormat: time.TimeOnly, NoColor: f == nil || !Terminal(f)}).With().Timestamp().Logger()
	}
	if f := FileOf(c.Out); f != nil && Terminal(f) {
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
	if p.shown.IsZero() {
		defer func() {
			// The first step is slow (caches, pages, clocks): it counts until there is a second.
			p.began, p.first = now, s.Step
		}()
	}
	p.last, p.unshown = s, true
	wait := redraw
	if p.width == nil {
		wait = p.c.Interval
	}
	if p.shown.IsZero() || now.Sub(p.shown) >= wait || s.Step >= p.c.Steps {
		p.show(now)
	}
}

func (p *Progress) show(now time.Time) {
	p.shown, p.unshown = now, false
	if p.width == nil {
		e := p.log.Info().Int("step", p.last.Step).Int("of", p.c.Steps).Float64("loss", round(p.last.Loss)).
			Float64("tokens_per_second", round(p.last.TokensPerSecond))
		if p.last.BubbleMeasured > 0 {
			e = e.Float64("bubble", round(p.last.BubbleMeasured))
		}
		if p.last.BubblePredicted > 0 {
			e = e.Float64("bubble_predicted", round(p.last.BubblePredicted))
		}
		if left := p.left(now); left >= 0 {
			e = e.Str("left", Duration(left))
		}
		e.Str("peak", Bytes(p.last.PeakBytes)).Msg("step")
		return
	}
	// The last column stays free: some terminals wrap as soon as it is written.
	io.WriteString(p.c.Out, "\r"+render(p.c.Title, p.last, p.c.Steps, p.left(now), p.width()-1)+"\x1b[K")
	p.visible = true
}

// round keeps five digits: lines are to be read; metrics.jsonl has all.
func round(f float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(f, 'g', 5, 64), 64)
	if err != nil {
		return f
	}
	return r
}

// left is the time that the remaining steps take at the mean pace of this run,
// checkpoints included; negative where nothing is known.
func (p *Progress) left(now time.Time) time.Duration {
	done := p.last.Step - p.first
	if done <= 0 {
		return -1
	}
	return now.Sub(p.began) / time.Duration(done) * time.Duration(max(0, p.c.Steps-p.last.Step))
}

// Write prints whole lines above the progress line: a log that shares the
// terminal is given the Progress as its writer.
func (p *Progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.visible {
		return p.c.Out.Write(b)
	}
	if _, err := io.WriteString(p.c.Out, clearLine); err != nil {
		return 0, err
	}
	n, err := p.c.Out.Write(b)
	if n > 0 && b[n-1] != '\n' {
		io.WriteString(p.c.Out, "\n")
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
		io.WriteString(p.c.Out, "\r\n")
		p.visible = false
	}
}
