// Package progress shows how a run advances: a line that is rewritten on a
// terminal, plain log lines elsewhere. It imports nothing of the project.
package progress

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Config says where progress is shown.
type Config struct {
	Out   *os.File  // the line is shown here where it is a terminal
	Log   io.Writer // log lines go here where Out is none
	Title string
	Start int // steps done before
	Steps int // of the whole run
}

// Step is what the line shows of a step.
type Step struct {
	Step                            int
	Loss                            float64
	TokensPerSecond                 float64
	BubbleMeasured, BubblePredicted float64 // shares; predicted 0: not yet known
	PeakBytes                       int64
}

// Progress is the display of one run.
type Progress struct {
	c    Config
	bar  *progressbar.ProgressBar
	log  zerolog.Logger
	last time.Time
}

// New starts the display.
func New(c Config) *Progress {
	p := &Progress{c: c}
	if c.Out != nil && term.IsTerminal(int(c.Out.Fd())) {
		p.bar = progressbar.NewOptions(c.Steps-c.Start, progressbar.OptionSetWriter(c.Out), progressbar.OptionSetDescription(c.Title),
			progressbar.OptionFullWidth(), progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish(),
			progressbar.OptionThrottle(100*time.Millisecond))
		return p
	}
	p.log = zerolog.New(zerolog.ConsoleWriter{Out: c.Log, NoColor: true, TimeFormat: time.TimeOnly}).With().Timestamp().Logger()
	return p
}

// interval is how often a plain line is written.
const interval = 5 * time.Second

// Step shows a finished step.
func (p *Progress) Step(s Step) {
	bubble := fmt.Sprintf("%.1f%%", 100*s.BubbleMeasured)
	if s.BubblePredicted > 0 {
		bubble += fmt.Sprintf("|%.1f%%", 100*s.BubblePredicted)
	}
	if p.bar != nil {
		p.bar.Describe(fmt.Sprintf("step %d/%d loss %.3f %.0f tok/s bubble %s %.0f MiB", s.Step, p.c.Steps, s.Loss, s.TokensPerSecond, bubble, float64(s.PeakBytes)/(1<<20)))
		_ = p.bar.Add(1)
		return
	}
	now := time.Now()
	if s.Step != p.c.Start+1 && s.Step != p.c.Steps && now.Sub(p.last) < interval {
		return
	}
	p.last = now
	p.log.Info().Str("loss", fmt.Sprintf("%.4f", s.Loss)).Str("tokens_per_second", fmt.Sprintf("%.0f", s.TokensPerSecond)).
		Str("bubble", bubble).Msgf("step %d/%d", s.Step, p.c.Steps)
}

// Close takes the line away and leaves the cursor at the start of an empty one.
func (p *Progress) Close() {
	if p.bar != nil {
		_ = p.bar.Exit()
		_ = p.bar.Clear()
	}
}
