package launcher

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// Each rank has its own time to come up; who was not started is not late.
func TestJudgeStart(t *testing.T) {
	begin := time.Now()
	starting := func(ranks, cores int, began ...time.Duration) *world {
		w := newWorld(Config{Ranks: ranks, HelloTimeout: 4 * time.Second, StartTimeout: time.Minute, LossGrace: time.Hour, Stderr: io.Discard, Logger: zerolog.Nop()}, nil)
		w.cores, w.starting.looked = cores, begin
		for i, d := range began {
			w.ranks[i].pid, w.ranks[i].began = 1<<30+i, begin.Add(d) // no such process
			w.ranks[i].exited, w.ranks[i].killed = true, true        // and none is to be killed
		}
		return w
	}
	look := func(w *world, after time.Duration) string {
		for at := w.starting.looked.Add(time.Second); w.failed == nil && w.starting != nil && !at.After(begin.Add(after)); at = at.Add(time.Second) {
			w.judgeStart(at)
		}
		if w.failed == nil {
			return ""
		}
		return w.failed.Error()
	}

	w := starting(3, 2, 0, 10*time.Second) // the third is still to be forked
	w.ranks[0].hello = true
	if s := look(w, 14*time.Second); s != "" {
		t.Errorf("4 s after its start: %s", s)
	}
	if s := look(w, 16*time.Second); !strings.HasPrefix(s, "rank 1 (pid 1073741825 ") || !strings.HasSuffix(s, "never came up within 4s") {
		t.Errorf("6 s after its start: %q", s)
	}

	w = starting(128, 2, 0)
	if s := look(w, 15*time.Second); s != "" {
		t.Errorf("64 ranks a core: %s", s)
	}
	if s := look(w, 17*time.Second); !strings.Contains(s, "within 16s") {
		t.Errorf("64 ranks a core: %q", s)
	}

	w = starting(1, 1, 0)
	w.starting.looked = begin.Add(time.Hour)
	w.judgeStart(begin.Add(2 * time.Hour)) // ^Z and, later, fg
	w.judgeStart(begin.Add(2*time.Hour + time.Second))
	if w.failed != nil && !strings.Contains(w.failed.Error(), "never came up") || w.ranks[0].began != begin.Add(time.Hour) {
		t.Errorf("frozen for an hour: began %v, %v", w.ranks[0].began.Sub(begin), w.failed)
	}

	w = starting(20, 20, make([]time.Duration, 20)...)
	if s := look(w, 6*time.Second); strings.Count(s, "rank ") != named || !strings.Contains(s, "and 12 more never came up") {
		t.Errorf("20 late ranks: %q", s)
	}

	w = starting(2, 2, 0, 0)
	for _, p := range w.ranks {
		p.hello = true
	}
	w.starting.forked = begin.Add(30 * time.Second)
	w.ranks[0].ready = true
	if s := look(w, 89*time.Second); s != "" {
		t.Errorf("59 s after the last start: %s", s)
	}
	if s := look(w, 92*time.Second); !strings.HasPrefix(s, "rank 1 ") || !strings.HasSuffix(s, "did not finish setting up within 1m0s") {
		t.Errorf("62 s after the last start: %q", s)
	}
}
