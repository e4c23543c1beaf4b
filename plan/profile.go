package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/schedule"
)

// ProfileVersion is the version of profile files that this program writes and reads.
const ProfileVersion = 1

const profileMagic = "pipetrain-profile"

// Profile is what ops of a job took, measured. It serves other schedules of the job too: where the
// model is cut otherwise, a layer's pass takes its share of the measured stage's time by operations.
type Profile struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Name    string `json:"name"`   // of the job
	Device  string `json:"device"` // of the run
	// The model and micro-batch that were measured.
	Layers int `json:"layers"`
	Dim    int `json:"dim"`
	Batch  int `json:"batch"` // sequences of a micro-batch
	Seq    int `json:"seq"`
	// Precision and the parts of a block; empty: fp32, rmsnorm, swiglu.
	Precision  string         `json:"precision,omitempty"`
	Norm       string         `json:"norm,omitempty"`
	Activation string         `json:"activation,omitempty"`
	Stages     []ProfileStage `json:"stages"`
	// Overhead is what a step takes besides its makespan, in seconds: optimizer, loss.
	Overhead float64 `json:"overhead"`
	Steps    int     `json:"steps"` // measured
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

// Sample is an op as a run measured it, on a pipeline rank of the first replica; times in seconds.
type Sample struct {
	Step       int
	Op         schedule.Op
	Start, End float64
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
	p := &Profile{Format: profileMagic, Version: ProfileVersion, Name: spec.Name, Device: device, Layers: spec.Model.Layers, Dim: spec.Model.Dim,
		Batch: spec.MicrobatchSize(), Seq: spec.Model.Seq, Overhead: median(overheads), Precision: spec.Train.Precision, Norm: spec.Model.Norm, Activation: spec.Model.Activation}
	type key struct {
		stage, n int
		kind     schedule.Kind
	}
	times, late := map[key][]float64{}, map[key][]float64{}
	steps := map[[2]int]bool{}
	for run, samples := range runs {
		type message struct {
			step int
			send schedule.Op
		}
		sent := map[message]float64{}
		for _, s := range samples {
			steps[[2]int{run, s.Step}] = true
			if s.Op.Stage >= stages {
				return nil, fmt.Errorf("profile: %s is of a stage that the job does not have", s.Op)
			}
			switch {
			case s.Op.Kind.IsSend():
				sent[message{s.Step, s.Op}] = s.Start
			case s.Op.Kind.IsCompute() || s.Op.Kind == schedule.ReduceGrad:
				k := key{s.Op.Stage, s.Op.Microbatches(), s.Op.Kind}
				times[k] = append(times[k], s.End-s.Start)
			}
		}
		for _, s := range samples {
			if !s.Op.Kind.IsRecv() {
				continue
			}
			send := s.Op
			send.Kind, send.Stage = schedule.SendF, s.Op.Stage-1
			if s.Op.Kind == schedule.RecvB {
				send.Kind, send.Stage = schedule.SendB, s.Op.Stage+1
			}
			at, ok := sent[message{s.Step, send}]
			k := key{send.Stage, 1, send.Kind}
			switch {
			case !ok:
			case s.Start <= at: // the receiver waited for all of it
				times[k] = append(times[k], max(0, s.End-at))
			default: // for the rest of it
				late[k] = append(late[k], max(0, s.End-s.Start))
			}
		}
	}
	p.Steps = len(steps)
	for i, r := range cut {
		of := func(kind schedule.Kind, n int) float64 {
			k := key{i, n, kind}
			if len(times[k]) == 0 {
				return median(late[k])
			}
			return median(times[k])
		}
		st := ProfileStage{First: r.First, End: r.End, F: of(schedule.Forward, 1), I: of(schedule.BackwardInput, 1), W: of(schedule.BackwardWeight, 1),
			B: of(schedule.Backward, 1), SendF: of(schedule.SendF, 1), SendB: of(schedule.SendB, 1), Reduce: of(schedule.ReduceGrad, 0)}
		// The largest joined W gives the slope.
		most := 1
		for k := range times {
			if k.stage == i && k.kind == schedule.BackwardWeight {
				most = max(most, k.n)
			}
		}
		if most > 1 {
			joined := of(schedule.BackwardWeight, most)
			if st.W == 0 {
				st.W = joined / float64(most)
			}
			st.More = max(0, joined-st.W) / float64(most-1)
		}
		p.Stages = append(p.Stages, st)
	}
	return p, p.check()
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	return (x[len(x)/2] + x[(len(x)-1)/2]) / 2
}

// check says what is missing or absurd.
func (p *Profile) check() error {
	switch {
	case p.Format != profileMagic:
		return fmt.Errorf("profile: it is no profile of pipetrain (format %q)", p.Format)
	case p.Version != ProfileVersion:
		return fmt.Errorf("profile: version %d is not known; this program reads version %d", p.Version, ProfileVersion)
	case len(p.Stages) == 0 || p.Layers < 1 || p.Batch < 1 || p.Seq < 1:
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
	if at != p.Layers+2 {
		return fmt.Errorf("profile: stages end at layer %d of %d", at, p.Layers+2)
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
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("profile: %s: %w", path, err)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// Fits says whether the profile is of a job's model, or why not.
func (p *Profile) Fits(spec *jobs.Spec) error {
	if spec.Model.Layers != p.Layers || spec.Model.Dim != p.Dim || spec.Model.Seq != p.Seq {
		return fmt.Errorf("profile: it is of %d layers of dim %d with sequences of %d; the job has %d, %d and %d: measure again with pipetrain profile",
			p.Layers, p.Dim, p.Seq, spec.Model.Layers, spec.Model.Dim, spec.Model.Seq)
	}
	for _, c := range []struct{ what, measured, was, is string }{
		{"train.precision", p.Precision, "fp32", spec.Train.Precision},
		{"model.norm", p.Norm, "rmsnorm", spec.Model.Norm},
		{"model.activation", p.Activation, "swiglu", spec.Model.Activation},
	} {
		if was := cmp.Or(c.measured, c.was); was != c.is {
			return fmt.Errorf("profile: it is of %s = %q, the job has %q: measure again with pipetrain profile", c.what, was, c.is)
		}
	}
	return nil
}

// String implements Source.
func (p *Profile) String() string {
	return fmt.Sprintf("a profile of %s on %s in %s: %d stages, %d steps, micro-batches of %d", p.Name, p.Device, cmp.Or(p.Precision, "fp32"), len(p.Stages), p.Steps, p.Batch)
}

func (p *Profile) unit() string { return "s" }

// profileCosts are a profile's times for some cut.
type profileCosts struct {
	schedule.StageCosts
	overhead float64
}

// stageUpdate shares the overhead of a step out over the stages of a rank.
func (c profileCosts) stageUpdate(int) float64 { return c.overhead }

func (p *Profile) costs(j *job, cut []model.Range, chunks int) costs {
	c := profileCosts{overhead: p.Overhead / float64(chunks)}
	own := model.Shape{Batch: p.Batch, Seq: p.Seq}
	// A layer's time is its share of the measured stage's by operations; another size of micro-batch scales it.
	share := func(r model.Range, time func(ProfileStage) float64, pass ...model.Pass) float64 {
		total := 0.0
		for _, s := range p.Stages {
			from, to := max(r.First, s.First), min(r.End, s.End)
			if from >= to {
				continue
			}
			whole, part := 0.0, 0.0
			for _, q := range pass {
				whole += float64(j.model.FLOPsOf(model.Range{First: s.First, End: s.End}, q, own))
				part += float64(j.model.FLOPsOf(model.Range{First: from, End: to}, q, j.shape))
			}
			if whole > 0 {
				total += time(s) * part / whole
			}
		}
		return total
	}
	rows := float64(j.shape.Rows()) / float64(own.Rows())
	sendF, sendB := p.transfers()
	for i, r := range cut {
		add := func(list *[]float64, x float64) { *list = append(*list, x) }
		add(&c.F, share(r, func(s ProfileStage) float64 { return s.F }, model.PassForward))
		add(&c.I, share(r, func(s ProfileStage) float64 { i, _ := s.halves(j.model, own); return i }, model.PassInput))
		add(&c.W, share(r, func(s ProfileStage) float64 { _, w := s.halves(j.model, own); return w }, model.PassWeight))
		add(&c.B, share(r, ProfileStage.whole, model.PassInput, model.PassWeight))
		add(&c.WExtra, share(r, func(s ProfileStage) float64 {
			if s.More > 0 {
				return s.More
			}
			_, w := s.halves(j.model, own)
			return w
		}, model.PassWeight))
		f, b := sendF, sendB
		if len(cut) == len(p.Stages) {
			f, b = p.Stages[i].SendF, p.Stages[i].SendB
		}
		add(&c.SendF, f*rows)
		add(&c.SendB, b*rows)
		add(&c.Reduce, share(r, func(s ProfileStage) float64 { return s.Reduce }, model.PassWeight)/rows)
	}
	return c
}

// halves returns the times of I and W; where only B was seen, its shares by operations.
func (s ProfileStage) halves(m *model.Model, shape model.Shape) (i, w float64) {
	if s.I > 0 && s.W > 0 {
		return s.I, s.W
	}
	r := model.Range{First: s.First, End: s.End}
	a, b := float64(m.FLOPsOf(r, model.PassInput, shape)), float64(m.FLOPsOf(r, model.PassWeight, shape))
	if a+b == 0 {
		return s.B / 2, s.B / 2
	}
	return s.B * a / (a + b), s.B * b / (a + b)
}

// whole returns the time of a fused backward.
func (s ProfileStage) whole() float64 {
	if s.B > 0 {
		return s.B
	}
	return s.I + s.W
}

// transfers returns the median times of transfers that were seen.
func (p *Profile) transfers() (f, b float64) {
	var fs, bs []float64
	for _, s := range p.Stages {
		if s.SendF > 0 {
			fs = append(fs, s.SendF)
		}
		if s.SendB > 0 {
			bs = append(bs, s.SendB)
		}
	}
	return median(fs), median(bs)
}
