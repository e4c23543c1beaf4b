package costs

import (
	"encoding/json"
	"fmt"
	"math"
	"os"

	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/schedule"
	"github.com/pipetrain/pipetrain/stats"
)

// ProfileVersion is the version of profile files that this program writes and reads. Version 1 knew
// the model by its number of blocks; version 2 knows its layers.
const ProfileVersion = 2

const profileMagic = "pipetrain-profile"

// Profile is what ops of a job took, measured. It serves other schedules of the job too: where the
// model is cut otherwise, a layer's pass takes its share of the measured stage's time by operations.
type Profile struct {
	Format    string `json:"format"`
	Version   int    `json:"version"`
	Name      string `json:"name"`   // of the job
	Device    string `json:"device"` // of the run
	Precision string `json:"precision"`
	Batch     int    `json:"batch"` // sequences of a micro-batch
	Seq       int    `json:"seq"`
	// Layers are the model's, first to last.
	Layers []ProfileLayer `json:"layers"`
	Stages []ProfileStage `json:"stages"`
	// Overhead is what a step takes besides its makespan, in seconds: optimizer, loss.
	Overhead float64 `json:"overhead"`
	Steps    int     `json:"steps"` // measured
}

// ProfileLayer says which layer was measured: another one of the same name is known by its work.
type ProfileLayer struct {
	Name   string   `json:"name"`
	Params int64    `json:"params"` // elements
	FLOPs  [3]int64 `json:"flops"`  // of F, I and W of a micro-batch
}

// layersOf describes a model's layers for micro-batches of a shape.
func layersOf(m *model.Model, shape model.Shape) []ProfileLayer {
	var list []ProfileLayer
	for _, l := range m.Layers {
		p := ProfileLayer{Name: l.Name()}
		for _, q := range l.Params() {
			p.Params += q.Len()
		}
		for i, pass := range []model.Pass{model.PassForward, model.PassInput, model.PassWeight} {
			p.FLOPs[i] = l.FLOPs(pass, shape)
		}
		list = append(list, p)
	}
	return list
}

// ProfileStage has the median times of one stage in seconds. 0: not seen.
type ProfileStage struct {
	First  int     `json:"first"` // layers [First, End)
	End    int     `json:"end"`
	F      float64 `json:"f"`
	I      float64 `json:"i"`
	W      float64 `json:"w"` // of one micro-batch
	B      float64 `json:"b"`
	More   float64 `json:"more"` // of each further micro-batch that a W joins
	SendF  float64 `json:"send_f"`
	SendB  float64 `json:"send_b"`
	Reduce float64 `json:"reduce"`
}

// NewProfile makes a profile of the ops of one or several runs of a job with the same cut.
// overheads are the steps' times besides their makespans.
func NewProfile(spec *jobs.Spec, stages int, device string, runs [][]Sample, overheads []float64) (*Profile, error) {
	m, err := model.New(spec.ModelConfig())
	if err != nil {
		return nil, err
	}
	cut, err := m.Cut(stages)
	if err != nil {
		return nil, err
	}
	measured, err := Measure(stages, runs...)
	if err != nil {
		return nil, err
	}
	p := &Profile{Format: profileMagic, Version: ProfileVersion, Name: spec.Name, Device: device, Precision: spec.Train.Precision,
		Batch: spec.MicrobatchSize(), Seq: spec.Model.Seq, Overhead: stats.MedianOr(overheads, 0), Steps: measured.steps}
	p.Layers = layersOf(m, p.shape())
	for i, r := range cut {
		p.Stages = append(p.Stages, measured.stage(i, r))
	}
	return p, p.check()
}

// shape is that of the micro-batches that were measured.
func (p *Profile) shape() model.Shape { return model.Shape{Batch: p.Batch, Seq: p.Seq} }

// stage sums up what was measured of a stage. The largest joined W gives what each further
// micro-batch of a W takes.
func (m *Measured) stage(i int, r model.Range) ProfileStage {
	of := func(kind schedule.Kind, n int) float64 { return m.times[opKey{i, n, kind}] }
	st := ProfileStage{First: r.First, End: r.End, F: of(schedule.Forward, 1), I: of(schedule.BackwardInput, 1), W: of(schedule.BackwardWeight, 1),
		B: of(schedule.Backward, 1), SendF: of(schedule.SendF, 1), SendB: of(schedule.SendB, 1), Reduce: of(schedule.ReduceGrad, 0)}
	if most := m.joined[i]; most > 1 {
		joined := of(schedule.BackwardWeight, most)
		if st.W == 0 {
			st.W = joined / float64(most)
		}
		st.More = max(0, joined-st.W) / float64(most-1)
	}
	return st
}

// check says what is missing or absurd.
func (p *Profile) check() error {
	switch {
	case p.Format != profileMagic:
		return fmt.Errorf("profile: it is no profile of pipetrain (format %q)", p.Format)
	case p.Version != ProfileVersion:
		return fmt.Errorf("profile: it is of version %d, this program reads version %d: measure again with pipetrain profile", p.Version, ProfileVersion)
	case len(p.Stages) == 0 || len(p.Layers) == 0 || p.Batch < 1 || p.Seq < 1:
		return fmt.Errorf("profile: it has no stages, layers or micro-batch")
	}
	at := 0
	for i, s := range p.Stages {
		if s.First != at || s.End <= s.First {
			return fmt.Errorf("profile: stage %d has layers %d to %d; stage %d ended before %d", i, s.First, s.End, i-1, at)
		}
		at = s.End
		for _, x := range []float64{s.F, s.I, s.W, s.B, s.More, s.SendF, s.SendB, s.Reduce, p.Overhead} {
			if !(x >= 0) || math.IsInf(x, 0) {
				return fmt.Errorf("profile: stage %d has the time %v", i, x)
			}
		}
		if s.F == 0 || s.B == 0 && (s.I == 0 || s.W == 0) {
			return fmt.Errorf("profile: stage %d was not seen performing F and either B or I and W; let the run take more steps", i)
		}
	}
	if at != len(p.Layers) {
		return fmt.Errorf("profile: stages end at layer %d of %d", at, len(p.Layers))
	}
	return nil
}

// ReadProfile reads a profile's file.
func ReadProfile(path string) (*Profile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	p := &Profile{}
	// A file of another version may have other fields: its version is what is wrong with it.
	err = json.Unmarshal(text, p)
	if err != nil && (p.Format != profileMagic || p.Version == ProfileVersion) {
		return nil, fmt.Errorf("profile: %s: %w", path, err)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// Fits says whether the profile is of a job's model, or why not.
func (p *Profile) Fits(spec *jobs.Spec) error {
	if p.Precision != spec.Train.Precision {
		return fmt.Errorf("profile: it is of train.precision = %q, the job has %q: measure again with pipetrain profile", p.Precision, spec.Train.Precision)
	}
	if p.Seq != spec.Model.Seq {
		return fmt.Errorf("profile: it is of sequences of %d, the job has %d: measure again with pipetrain profile", p.Seq, spec.Model.Seq)
	}
	m, err := model.New(spec.ModelConfig())
	if err != nil {
		return err
	}
	own := layersOf(m, p.shape())
	if len(own) != len(p.Layers) {
		return fmt.Errorf("profile: it is of %d layers, the job's model has %d (embedding and head included): measure again with pipetrain profile", len(p.Layers), len(own))
	}
	for i, l := range own {
		if was := p.Layers[i]; was != l {
			return fmt.Errorf("profile: it is of another model: layer %d was %s with %d parameters and %d operations forward, the job's is %s with %d and %d: measure again with pipetrain profile",
				i, was.Name, was.Params, was.FLOPs[0], l.Name, l.Params, l.FLOPs[0])
		}
	}
	return nil
}

// String implements Source.
func (p *Profile) String() string {
	return fmt.Sprintf("a profile of %s on %s in %s: %d stages, %d steps, micro-batches of %d", p.Name, p.Device, p.Precision, len(p.Stages), p.Steps, p.Batch)
}

// Unit implements Source.
func (p *Profile) Unit() string { return "s" }
