package launcher

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	maxLine    = 64 << 10 // longer lines are relayed in pieces
	maxCapture = 16 << 20 // bytes of a rank's stderr that are kept in its file
	maxTail    = 16 << 10 // bytes of it kept in memory, to say why it ended
)

// relay carries what ranks print to the launcher's own streams, whole lines at
// a time.
type relay struct {
	ranks          int
	stdout, stderr *lineWriter
	rank0          *os.File // Stdout itself, where rank 0 can inherit it
	logs           string   // folder for captured stderr, or empty
	wg             sync.WaitGroup
	mu             sync.Mutex
	open           []*os.File
}

func newRelay(cfg Config) *relay {
	r := &relay{ranks: cfg.Ranks}
	if cfg.RunDir != "" {
		r.logs = filepath.Join(cfg.RunDir, LogDir)
	}
	r.rank0 = fileOf(cfg.Stdout)
	// Both streams usually are one terminal: one lock for both.
	lock := &sync.Mutex{}
	r.stdout = &lineWriter{mu: lock, w: cfg.Stdout, clear: clearCode(cfg.Stdout)}
	r.stderr = &lineWriter{mu: lock, w: cfg.Stderr, clear: clearCode(cfg.Stderr)}
	return r
}

// fileOf returns the file that w is or passes on to, nil where there is none.
func fileOf(w io.Writer) *os.File {
	if s, ok := w.(interface{ File() *os.File }); ok {
		return s.File()
	}
	f, _ := w.(*os.File)
	return f
}

// clearCode wipes what a progress line left where w is a terminal; the next
// drawing of the line repairs it.
func clearCode(w io.Writer) string {
	if f := fileOf(w); f != nil && term.IsTerminal(int(f.Fd())) {
		return "\r\x1b[K"
	}
	return ""
}

// attach gives cmd its streams and starts their relay. The files returned
// belong to the child and are closed here after its start.
func (r *relay) attach(cmd *exec.Cmd, p *process) (childEnds []*os.File, err error) {
	prefix := ""
	if p.rank > 0 {
		prefix = fmt.Sprintf("[rank %d] ", p.rank)
	}
	p.stderr = &capture{done: make(chan struct{})}
	if r.logs != "" {
		p.stderr.path = filepath.Join(r.logs, fmt.Sprintf("rank-%d.stderr", p.rank))
	}
	errIn, errOut, err := os.Pipe()
	if err != nil {
		close(p.stderr.done)
		return nil, err
	}
	cmd.Stderr = errOut
	r.pump(errIn, r.stderr, prefix, p.stderr)
	childEnds = append(childEnds, errOut)
	if p.rank == 0 && r.rank0 != nil {
		cmd.Stdout = r.rank0
		return childEnds, nil
	}
	outIn, outOut, err := os.Pipe()
	if err != nil {
		errOut.Close()
		return nil, err
	}
	cmd.Stdout = outOut
	r.pump(outIn, r.stdout, prefix, nil)
	return append(childEnds, outOut), nil
}

func (r *relay) pump(in *os.File, to *lineWriter, prefix string, keep *capture) {
	r.mu.Lock()
	r.open = append(r.open, in)
	r.mu.Unlock()
	r.wg.Go(func() {
		defer in.Close()
		if keep != nil {
			defer keep.close()
		}
		buf := make([]byte, maxLine)
		n := 0
		for {
			m, err := in.Read(buf[n:])
			if keep != nil {
				keep.write(buf[n : n+m])
			}
			n += m
			for {
				i := bytes.IndexByte(buf[:n], '\n')
				if i < 0 && (n == len(buf) || err != nil && n > 0) {
					i = n - 1 // a flood without newlines, or the last words
				}
				if i < 0 {
					break
				}
				to.line(prefix, bytes.TrimSuffix(buf[:i+1], []byte("\n")))
				n = copy(buf, buf[i+1:n])
			}
			if err != nil {
				return
			}
		}
	})
}

// drain waits for the rest of the output; a pipe that somebody still holds open
// after that is closed on our side.
func (r *relay) drain(timeout time.Duration) {
	done := make(chan struct{})
	go func() { r.wg.Wait(); close(done) }()
	select {
	case <-done:
		return
	case <-time.After(timeout):
	}
	r.mu.Lock()
	for _, f := range r.open {
		f.SetReadDeadline(time.Now())
	}
	r.mu.Unlock()
	select {
	case <-done:
	case <-time.After(timeout): // our own stdout is blocked: leave it at that
	}
}

// lineWriter writes whole lines; several relays share one.
type lineWriter struct {
	mu    *sync.Mutex
	w     io.Writer
	clear string
	buf   []byte
}

func (l *lineWriter) line(prefix string, text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf[:0], l.clear...)
	l.buf = append(l.buf, prefix...)
	l.buf = append(l.buf, text...)
	l.buf = append(l.buf, '\n')
	l.w.Write(l.buf)
}

// wipe clears what a progress line that nobody ended left.
func (l *lineWriter) wipe() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clear != "" {
		io.WriteString(l.w, l.clear)
	}
}

// capture keeps a rank's stderr: all of it, up to a limit, in a file that is
// made with the first byte, and its head and tail in memory.
type capture struct {
	path string
	done chan struct{}

	mu      sync.Mutex
	file    *os.File
	written int
	head    []byte // from the first "panic:" or "fatal error:" on
	tail    []byte
}

func (c *capture) write(b []byte) {
	if len(b) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil && c.path != "" {
		c.file, _ = os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if c.file == nil {
			c.path = "" // no space or no permission: the relay still shows it
		}
	}
	if c.file != nil && c.written < maxCapture {
		c.file.Write(b[:min(len(b), maxCapture-c.written)])
		if c.written += len(b); c.written >= maxCapture {
			fmt.Fprintf(c.file, "\n[cut here: more than %d MiB]\n", maxCapture>>20)
		}
	}
	if c.tail = append(c.tail, b...); len(c.tail) > 2*maxTail {
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-maxTail:]...)
	}
	if c.head == nil {
		if i := panicStart(c.tail); i >= 0 {
			c.head = append([]byte{}, c.tail[i:]...)
		}
	} else if len(c.head) < 4096 {
		c.head = append(c.head, b...)
	}
}

func (c *capture) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file != nil {
		c.file.Close()
	}
	close(c.done)
}

// panicStart is where a message of the Go runtime about its own end begins, -1
// where there is none.
func panicStart(b []byte) int {
	if m := crashLine.FindIndex(b); m != nil {
		return m[0]
	}
	return -1
}

// crashLine begins what the runtime prints before it ends a process with code 2.
var crashLine = regexp.MustCompile(`(?m)^(panic: |fatal error: |runtime/cgo: |runtime: out of memory|SIG[A-Z0-9]+: )`)

// crash is the first line of the rank's panic, lastLine the last line it wrote;
// empty where there is none.
func (c *capture) crash() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	line, _, _ := bytes.Cut(c.head, []byte("\n"))
	return string(line)
}

func (c *capture) lastLine() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := bytes.Split(bytes.TrimSpace(c.tail), []byte("\n"))
	last := lines[len(lines)-1]
	return string(last[:min(len(last), 300)])
}
