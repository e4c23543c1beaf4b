package progress

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

var example = Step{Step: 57, Loss: 2.41234, TokensPerSecond: 12345, BubbleMeasured: 0.2731, BubblePredicted: 0.25, PeakBytes: 19 << 20}

func TestRender(t *testing.T) {
	for _, c := range []struct {
		width int
		want  string
	}{
		{200, " 28% |=======>                      | step 57/200  loss 2.4123  12.3k tok/s  bubble 27.3%|25.0%  peak 19.0 MiB  1m02s left"},
		{110, " 28% |===>             | step 57/200  loss 2.4123  12.3k tok/s  bubble 27.3%|25.0%  peak 19.0 MiB  1m02s left"},
		{80, "step 57/200  loss 2.4123  12.3k tok/s  bubble 27.3%|25.0%  1m02s left"},
		{60, "step 57/200  loss 2.4123  12.3k tok/s  1m02s left"},
		{40, "step 57/200  loss 2.4123  1m02s left"},
		{30, "step 57/200  loss 2.4123"},
		{12, "step 57/200"},
		{5, "step "},
		{1, "s"},
		{0, ""},
		{-3, ""},
	} {
		got := render("", example, 200, 62*time.Second, c.width)
		if strings.TrimLeft(got, " ") != strings.TrimLeft(c.want, " ") {
			t.Errorf("%d columns:\n got %q\nwant %q", c.width, got, c.want)
		}
	}
	for width := range 300 {
		for _, total := range []int{0, 1, 57, 200, 1 << 40} {
			for _, left := range []time.Duration{-1, 0, 1e18} {
				got := render("", example, total, left, width)
				if len(got) > width || strings.ContainsAny(got, "\r\n\t\x1b") {
					t.Fatalf("%d columns, total %d: %q of %d", width, total, got, len(got))
				}
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{number(math.NaN()), "NaN"}, {number(math.Inf(1)), "+Inf"}, {number(0), "0.0000"}, {number(1e-5), "1.000e-05"}, {number(-123456), "-1.235e+05"},
		{count(3.14), "3.1"}, {count(999), "999"}, {count(12345), "12.3k"}, {count(2.5e6), "2.50M"},
		{Bytes(0), "0 B"}, {Bytes(1023), "1023 B"}, {Bytes(1024), "1.0 KiB"}, {Bytes(1<<20 - 1), "1.0 MiB"}, {Bytes(70 << 30), "70.0 GiB"}, {Bytes(math.MaxInt64), "8192.0 PiB"},
		{Duration(0), "0s"}, {Duration(59*time.Second + 600*time.Millisecond), "1m00s"}, {Duration(3599 * time.Second), "59m59s"},
		{Duration(5*time.Hour + 2*time.Minute), "5h02m"}, {Duration(76 * time.Hour), "3d04h"},
		{bubbles(Step{}), "?|?"}, {bubbles(Step{BubbleMeasured: 0.5}), "50.0%|?"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// onTerminal is a Progress with a clock and a width under the test's control.
func onTerminal(total int) (*Progress, *bytes.Buffer, *time.Time, *int) {
	var out bytes.Buffer
	now, width := time.Unix(0, 0), 60
	p := New(Config{Out: &out, Steps: total})
	p.now = func() time.Time { return now }
	p.began = now
	p.width = func() int { return width }
	return p, &out, &now, &width
}

// screen performs what was written on a terminal of the given width and returns
// its lines; it knows CR, LF and "clear to the end of line".
func screen(t *testing.T, out string, width int) (lines []string, column int) {
	t.Helper()
	line := []byte{}
	put := func(c byte) {
		if column >= width {
			t.Fatalf("wrote beyond column %d: %q", width, out)
		}
		for len(line) <= column {
			line = append(line, ' ')
		}
		line[column] = c
		column++
	}
	for i := 0; i < len(out); i++ {
		switch {
		case out[i] == '\r':
			column = 0
		case out[i] == '\n':
			lines, line, column = append(lines, string(line)), []byte{}, 0
		case strings.HasPrefix(out[i:], "\x1b[K"):
			line = line[:min(column, len(line))]
			i += 2
		default:
			put(out[i])
		}
	}
	return append(lines, string(line)), column
}

func TestLineOnTerminal(t *testing.T) {
	p, out, now, width := onTerminal(10)
	p.Step(Step{Step: 1, Loss: 5.5, TokensPerSecond: 10})
	*now = now.Add(50 * time.Millisecond)
	n := out.Len()
	p.Step(Step{Step: 2, Loss: 5.4, TokensPerSecond: 10}) // too soon to be drawn
	if out.Len() != n {
		t.Errorf("drawn twice within %v", redraw)
	}
	*now = now.Add(2*time.Second - 50*time.Millisecond)
	*width = 40 // the user makes the window smaller
	p.Step(Step{Step: 3, Loss: 5.3, TokensPerSecond: 10})
	lines, _ := screen(t, out.String(), 60)
	if len(lines) != 1 || lines[0] != "step 3/10  loss 5.3000  7s left" {
		t.Errorf("screen %q", lines)
	}
	fmt.Fprintln(p, "a log line")
	p.Step(Step{Step: 4, Loss: 5.2}) // not drawn: too soon
	p.Close()
	p.Close()
	p.Step(Step{Step: 5})
	lines, column := screen(t, out.String(), 60)
	if len(lines) != 3 || lines[0] != "a log line" || !strings.HasPrefix(lines[1], "step 4/10  loss 5.2000") || lines[2] != "" || column != 0 {
		t.Errorf("screen %q, cursor in column %d", lines, column)
	}
}

// Before any step there is nothing to clean up.
func TestCloseAtOnce(t *testing.T) {
	p, out, _, _ := onTerminal(10)
	p.Close()
	if out.Len() != 0 {
		t.Errorf("wrote %q", out)
	}
	var none *Progress
	none.Step(Step{})
	none.Close()
}

func TestPlainLines(t *testing.T) {
	var out, log bytes.Buffer
	now := time.Unix(0, 0)
	p := New(Config{Out: &out, Log: &log, Start: 10, Steps: 100, Interval: time.Second})
	p.log = zerolog.New(&log) // the same lines as JSON
	p.now = func() time.Time { return now }
	p.began = now
	for step := 11; step <= 100; step++ {
		p.Step(Step{Step: step, Loss: 1, TokensPerSecond: 5, BubbleMeasured: 0.3})
		now = now.Add(100 * time.Millisecond)
	}
	p.Close()
	if out.Len() != 0 {
		t.Errorf("drew on something that is no terminal: %q", out.String())
	}
	var steps []int
	var left string
	for _, line := range strings.Split(strings.TrimSpace(log.String()), "\n") {
		var m struct {
			Step    int
			Left    string
			Message string
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.Message != "step" {
			t.Fatalf("%v in %q", err, line)
		}
		steps = append(steps, m.Step)
		if m.Step == 21 {
			left = m.Left
		}
	}
	if got := fmt.Sprint(steps); got != "[11 21 31 41 51 61 71 81 91 100]" {
		t.Errorf("steps logged: %s", got)
	}
	if left != "8s" {
		t.Errorf("after 10 of 90 steps in 1 s: %q left", left)
	}
}

func TestConcurrent(t *testing.T) {
	p, _, _, _ := onTerminal(1000)
	p.now = time.Now
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 200 {
				p.Step(Step{Step: i})
				fmt.Fprintln(p, "x")
			}
		})
	}
	wg.Wait()
	p.Close()
}

// A real terminal, of 33 columns: nothing wraps, and the width is the kernel's.
func TestRealTerminal(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 33}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TERM", "xterm")
	p := New(Config{Out: tty, Steps: 200})
	p.Step(example)
	p.Close()
	tty.Close()
	// One read may return a part only; with the other side closed the end is an error.
	var shown []byte
	for buf := make([]byte, 4096); ; {
		k, err := master.Read(buf)
		shown = append(shown, buf[:k]...)
		if err != nil {
			break
		}
	}
	lines, column := screen(t, strings.ReplaceAll(string(shown), "\r\r\n", "\r\n"), 33)
	if len(lines) != 2 || lines[0] != "step 57/200  loss 2.4123" || column != 0 {
		t.Errorf("screen %q, cursor in column %d", lines, column)
	}
}

func TestTitle(t *testing.T) {
	if got := render("job", example, 200, 62*time.Second, 100); !strings.Contains(got, "job  step 57/200") {
		t.Errorf("no title: %q", got)
	}
	for title, width := range map[string]int{"job": 75, "größer": 300, "a\nb": 300} {
		if got := render(title, example, 200, 62*time.Second, width); strings.Contains(got, title) || len(got) > width {
			t.Errorf("title %q in %d columns: %q", title, width, got)
		}
	}
}

// What a user sees in a file.
func TestConsoleLines(t *testing.T) {
	var log bytes.Buffer
	p := New(Config{Log: &log, Steps: 200})
	p.Step(example)
	for _, part := range []string{" INF step ", "step=57", "of=200", "loss=2.4123 ", "peak=\"19.0 MiB\""} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("%q lacks %q", log.String(), part)
		}
	}
	New(Config{Steps: 3}).Step(example) // nowhere to write to
}
