package costs

import (
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/schedule"
	"github.com/pipetrain/pipetrain/stats"
)

// profileCosts are a profile's times for some cut.
type profileCosts struct {
	schedule.StageCosts
	overhead float64
}

// StageUpdate shares the overhead of a step out over the stages of a rank.
func (c profileCosts) StageUpdate(int) float64 { return c.overhead }

// Of implements Source.
func (p *Profile) Of(w Work) Costs {
	c := profileCosts{overhead: p.Overhead / float64(w.Chunks)}
	own := p.shape()
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
				whole += float64(w.Model.FLOPsOf(model.Range{First: s.First, End: s.End}, q, own))
				part += float64(w.Model.FLOPsOf(model.Range{First: from, End: to}, q, w.Shape))
			}
			if whole > 0 {
				total += time(s) * part / whole
			}
		}
		return total
	}
	rows := float64(w.Shape.Rows()) / float64(own.Rows())
	sendF, sendB := p.transfers()
	for i, r := range w.Cut {
		add := func(list *[]float64, x float64) { *list = append(*list, x) }
		add(&c.F, share(r, func(s ProfileStage) float64 { return s.F }, model.PassForward))
		add(&c.I, share(r, func(s ProfileStage) float64 { half, _ := s.halves(w.Model, own); return half }, model.PassInput))
		add(&c.W, share(r, func(s ProfileStage) float64 { _, half := s.halves(w.Model, own); return half }, model.PassWeight))
		add(&c.B, share(r, ProfileStage.whole, model.PassInput, model.PassWeight))
		add(&c.WExtra, share(r, func(s ProfileStage) float64 {
			if s.More > 0 {
				return s.More
			}
			_, half := s.halves(w.Model, own)
			return half
		}, model.PassWeight))
		f, b := sendF, sendB
		if len(w.Cut) == len(p.Stages) {
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
	return stats.MedianOr(fs, 0), stats.MedianOr(bs, 0)
}
