package record

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pipetrain/pipetrain/record/tfevents"
)

// TensorBoardDir is the folder of event files within a run folder.
const TensorBoardDir = "tensorboard"

// TensorBoard writes a run's steps as event files while it runs. Each start of the
// run has a file of its own.
type TensorBoard struct {
	f   *os.File
	buf []byte
}

// OpenTensorBoard begins the file of a run that goes on after done steps (0 for a new
// run). TensorBoard then leaves out what earlier files have of later steps.
func (f *Folder) OpenTensorBoard(done int) (*TensorBoard, error) {
	if err := f.Held(); err != nil {
		return nil, err
	}
	dir := f.File(TensorBoardDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, writeError(dir, err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	now := time.Now()
	// Readers take the files of a folder in the order of their names.
	path := filepath.Join(dir, fmt.Sprintf("events.out.tfevents.%010d.%s.%d", now.Unix(), host, os.Getpid()))
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, writeError(path, err)
	}
	t := &TensorBoard{f: file}
	t.buf = tfevents.Header(seconds(now), int64(done)+1)
	if err := t.flush(); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Append writes one step's record in one write: a crash leaves whole ones, but for a torn last, which readers leave out.
func (t *TensorBoard) Append(m Metrics) error {
	t.buf = tfevents.Append(t.buf[:0], Event(m, seconds(time.Now())))
	return t.flush()
}

func (t *TensorBoard) flush() error {
	if _, err := t.f.Write(t.buf); err != nil {
		return writeError(t.f.Name(), err)
	}
	return nil
}

// Close closes the file.
func (t *TensorBoard) Close() error { return t.f.Close() }

// Event returns a step as TensorBoard has it, its numbers as float32.
func Event(m Metrics, wallTime float64) tfevents.Event {
	e := tfevents.Event{WallTime: wallTime, Step: int64(m.Step)}
	for _, c := range Columns() {
		e.Scalars = append(e.Scalars, tfevents.Scalar{Tag: c.Name, Value: float32(c.Of(m))})
	}
	return e
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
