package progress

import (
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Bar shows how much of some long work is done, on a terminal; elsewhere it shows nothing.
type Bar struct{ bar *progressbar.ProgressBar }

// NewBar begins a bar of total units. Finish ends it.
func NewBar(out io.Writer, what string, total int64) *Bar {
	f, ok := out.(*os.File)
	return &Bar{progressbar.NewOptions64(total, progressbar.OptionSetWriter(out), progressbar.OptionSetVisibility(ok && term.IsTerminal(int(f.Fd()))),
		progressbar.OptionSetDescription(what), progressbar.OptionThrottle(redraw), progressbar.OptionClearOnFinish())}
}

// Set says how many units are done.
func (b *Bar) Set(done int64) { _ = b.bar.Set64(done) }

// Finish takes the bar away.
func (b *Bar) Finish() { _ = b.bar.Exit() }
