package progress

import (
	"bytes"
	"testing"
	"time"
)

func TestCount(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		var out bytes.Buffer
		now := time.Unix(0, 0)
		c := &Count{Out: &out, Terminal: terminal, Title: "plan", now: func() time.Time { return now }}
		c.At("schedules", 0, 3)
		now = now.Add(time.Second)
		c.At("schedules", 1, 3)
		if out.Len() > 0 {
			t.Errorf("%q within the first seconds", out.String())
		}
		now = now.Add(12 * time.Second)
		c.At("schedules", 2, 3)
		now = now.Add(time.Millisecond)
		c.At("schedules", 3, 3)
		c.Close()
		want := "plan: 2 of 3 schedules, " + Duration(13*time.Second) + "\n"
		if terminal {
			want = clearLine + want[:len(want)-1] + clearLine
		}
		if out.String() != want {
			t.Errorf("terminal %v: %q, want %q", terminal, out.String(), want)
		}
	}
}
