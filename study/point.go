package study

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/pipetrain/pipetrain/stats"
)

// Status says how an attempt ended.
type Status string

// The statuses of a point.
const (
	Finished   Status = "finished"
	Failed     Status = "failed"
	TimedOut   Status = "timeout"    // it ran longer than [study] timeout
	Cancelled  Status = "cancelled"  // somebody ended it: scancel, a signal to the study
	Lost       Status = "lost"       // the study itself was killed while it ran, or its node died
	Impossible Status = "impossible" // the job check refuses the case
	Skipped    Status = "skipped"    // the budget had no room for it
)

// Binaries of a study with a gate.
const (
	Candidate = "candidate" // the program that runs the study
	Control   = "control"   // the baseline's
)

// Point is one attempt to run one case: a line of points.jsonl. Times are seconds, sizes bytes.
type Point struct {
	Case     string `json:"case"` // hash of the keys that were given
	Label    string `json:"label"`
	Round    int    `json:"round"` // from 1; 0 of warm-ups and impossible cases
	Attempt  int    `json:"attempt"`
	Order    int    `json:"order"` // position in the study, from 1
	Binary   string `json:"binary"`
	Warmup   bool   `json:"warmup"`
	Status   Status `json:"status"`
	ExitCode int    `json:"exit_code"` // of exit.json where there is one, else of the process; -1: unknown
	Reason   string `json:"reason"`

	JobID   string    `json:"job_id"` // of Slurm
	Nodes   []string  `json:"nodes"`
	Started time.Time `json:"started"`
	Queued  Number    `json:"queued_seconds"`
	Seconds Number    `json:"seconds"` // from start to end of the command

	Keys  map[string]any `json:"keys"` // values of the axes' keys
	Ranks int            `json:"ranks"`

	TokensPerSecond Number `json:"tokens_per_second"`
	// StepSeconds is the median of the counted steps; a run's first six are not counted.
	StepSeconds    Number   `json:"step_seconds"`
	StepSecondsAll []Number `json:"step_seconds_all"` // of the counted steps
	Makespan       Number   `json:"makespan_measured"`
	MakespanPlan   Number   `json:"makespan_predicted"`
	Bubble         Number   `json:"bubble_measured"`
	BubblePlan     Number   `json:"bubble_predicted"`
	// IdleParts are idle seconds of a step by cause, summed over the ranks of the first replica.
	IdleParts     map[string]Number `json:"idle_parts_measured"`
	IdlePartsPlan map[string]Number `json:"idle_parts_predicted"`
	// PeakBytes are those of the fullest rank; Memory is what they were for.
	PeakBytes     Number            `json:"peak_bytes_measured"`
	PeakBytesPlan Number            `json:"peak_bytes_predicted"`
	Memory        map[string]Number `json:"memory"`
	TFLOPS        Number            `json:"tflops"` // of all ranks together
	MFU           Number            `json:"mfu"`    // mean of the ranks
	LossFirst     Number            `json:"loss_first"`
	LossLast      Number            `json:"loss_last"`
	LossHash      string            `json:"loss_hash"` // of the bits of every step's loss

	EnvironmentHash string `json:"environment_hash"`
	Version         string `json:"version"`
	Commit          string `json:"commit"`
	Host            string `json:"host"` // of rank 0
	Device          string `json:"device"`
	Folder          string `json:"folder"`  // of the run, within the study's folder
	Command         string `json:"command"` // that made it, as a shell reads it
}

// NewPoint returns a point whose figures are all unknown.
func NewPoint() Point {
	return Point{ExitCode: -1, Queued: Unknown, Seconds: Unknown, TokensPerSecond: Unknown, StepSeconds: Unknown, Makespan: Unknown, MakespanPlan: Unknown,
		Bubble: Unknown, BubblePlan: Unknown, PeakBytes: Unknown, PeakBytesPlan: Unknown, TFLOPS: Unknown, MFU: Unknown, LossFirst: Unknown, LossLast: Unknown}
}

// Counts says whether the point is a sample: it finished and is no warm-up.
func (p *Point) Counts() bool { return p.Status == Finished && !p.Warmup }

// PointsName is the file of points in a study's folder.
const PointsName = "points.jsonl"

// Points appends to points.jsonl.
type Points struct{ f *os.File }

// OpenPoints opens the file of points in dir and returns what it holds. A torn last line, of a study
// that was killed while it wrote, is cut off.
func OpenPoints(dir string) (*Points, []Point, error) {
	path := filepath.Join(dir, PointsName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, nil, err
	}
	points, whole, err := readPoints(f, path)
	if err == nil {
		err = f.Truncate(whole)
	}
	if err == nil {
		_, err = f.Seek(whole, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return &Points{f}, points, nil
}

// Append writes one line and brings it to the disk.
func (p *Points) Append(x Point) error {
	b, err := json.Marshal(x)
	if err != nil {
		return err
	}
	if _, err := p.f.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("%w: free space there, and go on with --resume", err)
	}
	return p.f.Sync()
}

// Close closes the file.
func (p *Points) Close() error { return p.f.Close() }

// ReadPoints reads the points of a study's or baseline's folder.
func ReadPoints(dir string) ([]Point, error) {
	path := filepath.Join(dir, PointsName)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	points, _, err := readPoints(f, path)
	return points, err
}

// readPoints returns the points and the bytes of whole lines.
func readPoints(f io.Reader, path string) (points []Point, whole int64, err error) {
	r := bufio.NewReader(f)
	for line := 1; ; line++ {
		b, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return points, whole, nil
		}
		if err != nil {
			return points, whole, fmt.Errorf("%s: %w", path, err)
		}
		x := NewPoint()
		d := json.NewDecoder(bytes.NewReader(b))
		if err := d.Decode(&x); err != nil {
			return points, whole, fmt.Errorf("%s:%d: %w: repair or remove the line", path, line, err)
		}
		points = append(points, x)
		whole += int64(len(b))
	}
}

// median is stats.Median as a figure.
func median(v []float64) Number { return Number(stats.Median(v)) }
