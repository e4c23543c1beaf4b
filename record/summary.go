package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
)

// Summary is summary.json: the run in figures. Floats that are not known are
// NaN, written "NaN"; zero means zero.
type Summary struct {
	Status   string `json:"status"` // as in the exit record: "finished", "stopped", "rank-lost", …
	ExitCode int    `json:"exit_code"`
	Error    string `json:"error,omitempty"` // rank, place and reason, when it failed
	Name     string `json:"name"`
	Version  string `json:"version"`
	Commit   string `json:"commit"`

	Precision string `json:"precision,omitempty"` // "fp32", "tf32", "bf16"

	Steps      int `json:"steps"` // optimizer steps done, resumed ones included
	ResumedAt  int `json:"resumed_at,omitempty"`
	StepsAsked int `json:"steps_asked"`

	LossFirst float64 `json:"loss_first"`
	LossLast  float64 `json:"loss_last"`

	TokensPerSecond   float64 `json:"tokens_per_second"`
	StepSecondsMedian float64 `json:"step_seconds_median"`
	SecondsTotal      float64 `json:"seconds_total"`

	// Bubbles are idle time over ranks × makespan.
	BubblePredicted          float64 `json:"bubble_predicted"`
	BubbleMeasured           float64 `json:"bubble_measured"`
	MakespanPredictedSeconds float64 `json:"makespan_predicted_seconds"`
	MakespanMeasuredSeconds  float64 `json:"makespan_measured_seconds"` // median over the steps

	// Bytes a rank, by world rank. Measured is the planned part's high water.
	PeakBytesPredicted []int64 `json:"peak_bytes_predicted"`
	PeakBytesMeasured  []int64 `json:"peak_bytes_measured"`
	// PeakBytesByCategory is what the measured bytes were for, at the high water.
	PeakBytesByCategory []map[string]int64 `json:"peak_bytes_by_category"`

	// TFLOP/s a rank, by world rank, of the operations that the layers count: over the whole
	// step, and over the time in which the rank computed. Empty where too few steps were timed.
	TFLOPS     []float64 `json:"tflops"`
	TFLOPSBusy []float64 `json:"tflops_busy"`
	// MFU is TFLOPS over MatrixTFLOPS, what a large matrix product reached on the rank's device
	// after the last step, all ranks at it at once. Empty for runs of less than two seconds.
	MatrixTFLOPS []float64 `json:"matrix_tflops,omitempty"`
	MFU          []float64 `json:"mfu,omitempty"`

	Transport string `json:"transport"`
	// Transfers are the ways in which messages reached the devices' memory, by world rank: "staged",
	// "ipc and direct"; empty where devices compute in host memory.
	Transfers    []string `json:"transfers,omitempty"`
	Device       string   `json:"device"`
	Ranks        int      `json:"ranks"`
	Replicas     int      `json:"replicas"`
	Stages       int      `json:"stages"`
	Schedule     string   `json:"schedule"`
	BackwardP2   string   `json:"backward_p2"`
	Concat       string   `json:"concat"` // "1", "4", "all"
	Microbatches int      `json:"microbatches"`
	Parameters   int64    `json:"parameters"`

	FinalCheckpoint string `json:"final_checkpoint"` // path within the run folder; "" when there is none
}

// MarshalJSON writes floats so that they read back to the same bits; NaN and
// the infinities are the strings "NaN", "Infinity" and "-Infinity".
func (s Summary) MarshalJSON() ([]byte, error) {
	// A list is a list, even of nothing.
	if s.PeakBytesPredicted == nil {
		s.PeakBytesPredicted = []int64{}
	}
	if s.PeakBytesMeasured == nil {
		s.PeakBytesMeasured = []int64{}
	}
	return appendObject(nil, reflect.ValueOf(s))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Summary) UnmarshalJSON(b []byte) error {
	*s = Summary{}
	return readObject(b, reflect.ValueOf(s).Elem())
}

// WriteSummary writes summary.json.
func (f *Folder) WriteSummary(s Summary) error { return f.writeJSON(SummaryName, s) }

// ReadSummary reads a summary.json.
func ReadSummary(path string) (Summary, error) {
	var s Summary
	b, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	if err := s.UnmarshalJSON(b); err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// writeJSON replaces a file of the folder by v, indented for people.
func (f *Folder) writeJSON(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	var out bytes.Buffer
	// Indent keeps the digits as they are, where a second encoding need not.
	if err := json.Indent(&out, b, "", "  "); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	out.WriteByte('\n')
	return f.write(name, out.Bytes())
}
