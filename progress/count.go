package progress

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Count tells how far a computation is that needs no line when it is short: nothing in the first
// two seconds, then on a terminal one line that is rewritten and at last wiped, elsewhere
// a plain line every ten seconds.
type Count struct {
	Out      io.Writer
	Terminal bool
	// Title says what is done, e.g. "plan".
	Title string

	now   func() time.Time // for tests
	mu    sync.Mutex
	begun time.Time
	shown time.Time
	line  bool
}

const (
	countQuiet = 2 * time.Second
	countPlain = 10 * time.Second
	countLine  = 100 * time.Millisecond
)

// At tells that `done` of `total` are done; what names them: "schedules". It may be called at once from
// several goroutines.
func (c *Count) At(what string, done, total int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == nil {
		c.now = time.Now
	}
	now := c.now()
	if c.begun.IsZero() {
		c.begun, c.shown = now, now
	}
	every := countPlain
	if c.Terminal {
		every = countLine
	}
	if now.Sub(c.begun) < countQuiet || now.Sub(c.shown) < every {
		return
	}
	c.shown = now
	text := fmt.Sprintf("%s: %d of %d %s, %s", c.Title, done, total, what, Duration(now.Sub(c.begun)))
	if c.Terminal {
		fmt.Fprintf(c.Out, "%s%s", clearLine, text)
		c.line = true
	} else {
		fmt.Fprintln(c.Out, text)
	}
}

// Close wipes the line.
func (c *Count) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.line {
		io.WriteString(c.Out, clearLine)
		c.line = false
	}
}
