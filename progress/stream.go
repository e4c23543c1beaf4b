package progress

import (
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// streamLimit is how many bytes a Stream holds for a reader that does not read.
const streamLimit = 1 << 20

// Stream passes on what is written for people. Its writer never waits and never fails: what a
// reader does not take is held up to a limit and then dropped, and a reader that is gone ends it.
type Stream struct {
	w io.Writer

	mu    sync.Mutex
	held  []byte
	idle  chan struct{} // closed when all is written; nil: all is
	ended bool          // writing failed
}

// NewStream begins to pass on to w.
func NewStream(w io.Writer) *Stream {
	// Writing to a closed pipe as standard output would end the process.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return &Stream{w: w}
}

// Write takes b.
func (s *Stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || len(s.held)+len(b) > streamLimit {
		return len(b), nil
	}
	s.held = append(s.held, b...)
	if s.idle == nil {
		s.idle = make(chan struct{})
		go s.pass()
	}
	return len(b), nil
}

// pass writes what is held until nothing is.
func (s *Stream) pass() {
	for {
		s.mu.Lock()
		b := s.held
		if s.held = nil; len(b) == 0 || s.ended {
			close(s.idle)
			s.idle = nil
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if _, err := s.w.Write(b); err != nil {
			s.mu.Lock()
			s.ended = true
			s.mu.Unlock()
		}
	}
}

// Flush waits until all is written, or for the limit.
func (s *Stream) Flush(limit time.Duration) {
	s.mu.Lock()
	idle := s.idle
	s.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-time.After(limit):
	}
}

// File is what the stream passes on to, nil where that is no file.
func (s *Stream) File() *os.File { return FileOf(s.w) }

// FileOf returns the file that w writes to, nil where there is none.
func FileOf(w io.Writer) *os.File {
	switch f := w.(type) {
	case *os.File:
		return f
	case interface{ File() *os.File }:
		return f.File()
	}
	return nil
}
