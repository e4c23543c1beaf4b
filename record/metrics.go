package record

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
)

// Metrics is one line of metrics.jsonl: what one optimizer step did.
type Metrics struct {
	Step            int     `json:"step"` // from 1: the count of steps done; a checkpoint of step n follows line n
	Loss            float64 `json:"loss"`
	GradNorm        float64 `json:"grad_norm"` // before clipping
	LR              float64 `json:"lr"`
	Tokens          int64   `json:"tokens"` // of the global batch of this step
	StepSeconds     float64 `json:"step_seconds"`
	TokensPerSecond float64 `json:"tokens_per_second"`
	// Bubble is the measured idle share of ranks × makespan.
	Bubble          float64 `json:"bubble"`
	MakespanSeconds float64 `json:"makespan_seconds,omitempty"`
	// Idle splits the idle seconds by cause, summed over the ranks.
	Idle map[string]float64 `json:"idle,omitempty"`
}

// MarshalJSON writes floats so that they read back to the same bits; NaN and
// the infinities are the strings "NaN", "Infinity" and "-Infinity".
func (m Metrics) MarshalJSON() ([]byte, error) { return appendObject(nil, reflect.ValueOf(m)) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (m *Metrics) UnmarshalJSON(b []byte) error {
	*m = Metrics{}
	return readObject(b, reflect.ValueOf(m).Elem())
}

// MetricsLog appends to metrics.jsonl.
type MetricsLog struct {
	// Cut is how many lines were removed because they follow the step resumed from.
	Cut int
	// Gap is not empty when lines before the step resumed from are missing (the
	// machine died before they reached the disk): log it.
	Gap string

	f    *os.File
	path string
	last int
	any  bool // last is known
	buf  []byte
}

// OpenMetrics opens metrics.jsonl for a run that goes on after resumeFrom steps
// (0 for a new run). Lines after that step, and a torn last line, are cut in one
// replacement of the file, so that the steps go on with no gap and no repeat.
func (f *Folder) OpenMetrics(resumeFrom int) (*MetricsLog, error) {
	if err := f.Held(); err != nil {
		return nil, err
	}
	path := f.File(MetricsName)
	m := &MetricsLog{path: path, last: resumeFrom, any: f.Resumed || resumeFrom > 0}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading metrics to resume: %w", err)
	}
	kept, err := m.cut(old, resumeFrom)
	if err != nil {
		return nil, err
	}
	if len(kept) != len(old) {
		if err := WriteFile(path, kept); err != nil {
			return nil, err
		}
	}
	if m.f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		return nil, writeError(path, err)
	}
	return m, nil
}

// cut returns the lines up to and with the step resumed from.
func (m *MetricsLog) cut(old []byte, resumeFrom int) ([]byte, error) {
	last, end, line := 0, 0, 0
	for at := 0; at < len(old); {
		n := bytes.IndexByte(old[at:], '\n')
		if n < 0 {
			m.Cut++ // torn: its newline never came
			break
		}
		line++
		var x Metrics
		if err := x.UnmarshalJSON(old[at : at+n]); err != nil {
			if at+n+1 == len(old) {
				m.Cut++
				break
			}
			return nil, fmt.Errorf("%s:%d: %w: repair or remove the line to resume", m.path, line, err)
		}
		at += n + 1
		if x.Step > resumeFrom {
			m.Cut++
			continue
		}
		if m.Cut > 0 || line > 1 && x.Step != last+1 {
			return nil, fmt.Errorf("%s:%d: step %d follows step %d: repair the file to resume", m.path, line, x.Step, last)
		}
		last, end = x.Step, at
	}
	if resumeFrom > 0 && last < resumeFrom {
		m.Gap = fmt.Sprintf("%s has no lines for steps %d to %d, which the checkpoint holds", m.path, last+1, resumeFrom)
	}
	return old[:end], nil
}

// Append writes one step's line. It refuses a step that does not follow the last.
func (m *MetricsLog) Append(x Metrics) error {
	if m.any && x.Step != m.last+1 {
		return fmt.Errorf("%s: step %d follows step %d", m.path, x.Step, m.last)
	}
	b, err := appendObject(m.buf[:0], reflect.ValueOf(x))
	if err != nil {
		return fmt.Errorf("%s: step %d: %w", m.path, x.Step, err)
	}
	m.buf = append(b, '\n')
	// One write a line: a crash of the process leaves whole lines.
	if n, err := m.f.Write(m.buf); err != nil {
		if st, e := m.f.Stat(); n > 0 && e == nil {
			_ = m.f.Truncate(st.Size() - int64(n)) // no half line before the next
		}
		return writeError(m.path, err)
	}
	m.last, m.any = x.Step, true
	return nil
}

// Sync makes the lines so far durable. Call it before a checkpoint is saved:
// then the lines up to the checkpoint survive whatever it survives.
func (m *MetricsLog) Sync() error {
	if err := m.f.Sync(); err != nil {
		return writeError(m.path, err)
	}
	return nil
}

// Close syncs and closes the file.
func (m *MetricsLog) Close() error {
	err := m.Sync()
	if e := m.f.Close(); err == nil {
		err = e
	}
	return err
}

// ReadMetrics reads the lines of a metrics.jsonl. A last line without its
// newline (a run being written, or killed) is left out.
func ReadMetrics(path string) ([]Metrics, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []Metrics
	r := bufio.NewReader(f)
	for line := 1; ; line++ {
		b, err := r.ReadBytes('\n')
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, fmt.Errorf("%s: %w", path, err)
		}
		var m Metrics
		if err := m.UnmarshalJSON(b); err != nil {
			return out, fmt.Errorf("%s:%d: %w", path, line, err)
		}
		out = append(out, m)
	}
}
