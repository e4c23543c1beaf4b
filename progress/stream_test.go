package progress

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"
)

// A stream brings everything, in order, to a reader that reads.
func TestStream(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	var reader sync.WaitGroup
	reader.Go(func() { got, _ = io.ReadAll(r) })
	s := NewStream(w)
	var want bytes.Buffer
	for i := range 5000 {
		fmt.Fprintf(io.MultiWriter(s, &want), "line %d\n", i)
	}
	s.Flush(10 * time.Second)
	w.Close()
	reader.Wait()
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%d bytes came, want %d", len(got), want.Len())
	}
	if s.File() != w || FileOf(s) != w || FileOf(new(bytes.Buffer)) != nil {
		t.Error("the stream's file is not its pipe")
	}
}

// Nobody who writes waits for a reader that has stopped, is gone, or has no room.
func TestStreamUnread(t *testing.T) {
	stopped, unread, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stopped.Close()
	gone, broken, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*os.File{"stopped": unread, "gone": broken, "full": full} {
		s := NewStream(f)
		begin := time.Now()
		for range 10 {
			if n, err := s.Write(make([]byte, streamLimit/4)); n != streamLimit/4 || err != nil {
				t.Errorf("%s: %d %v", name, n, err)
			}
		}
		s.Flush(50 * time.Millisecond)
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("%s: the writer waited %v", name, took)
		}
		s.mu.Lock()
		if len(s.held) > streamLimit {
			t.Errorf("%s: %d bytes are held", name, len(s.held))
		}
		s.mu.Unlock()
	}
}
