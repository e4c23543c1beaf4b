// Package costs is the one place that knows how long a job's ops take: in units, on an assumed
// device, or as measured. The planner, a rehearsal, the search for a schedule and the
// prediction that a run prints all take their times from here, so that they agree.
package costs

import (
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/schedule"
)

// Costs are the times of a step's ops and of the optimizer after it, in the source's unit.
type Costs interface {
	schedule.Costs
	// StageUpdate returns the time of the optimizer's step of a stage.
	StageUpdate(stage int) float64
}

// Source is where op times come from: Units, a Device, a *Profile or a Linked one.
type Source interface {
	// String says it in a line.
	String() string
	// Unit is what times are given in: "s", or "units".
	Unit() string
	// Fits says why the source cannot serve a job: a profile is of one model.
	Fits(spec *jobs.Spec) error
	// Of returns the times of a model cut into stages.
	Of(w Work) Costs
}

// Work is a job's model cut into stages, with what else op times depend on.
type Work struct {
	Model  *model.Model
	Cut    []model.Range
	Shape  model.Shape // of a micro-batch
	States int         // of the optimizer, each as large as the weights
	Copies int         // of a stage, whose gradients are added: over replicas, and over the ranks of one that hold it
	Chunks int         // stages of a rank
}

// WorkOf returns the work of a job's model, cut into stages of which each rank has `chunks` and
// each is held by `holders` ranks of a replica.
func WorkOf(spec *jobs.Spec, m *model.Model, cut []model.Range, optim model.Optimizer, chunks, holders int) Work {
	return Work{
		Model: m, Cut: cut, Shape: m.Shape(spec.MicrobatchSize()), States: len(optim.States()),
		Copies: spec.Parallel.Replicas * holders, Chunks: chunks,
	}
}

// Named returns the source that a job itself names: its profile, else the assumed device with
// nodes as the batch system has them.
func Named(spec *jobs.Spec) (Source, error) {
	if path := spec.Schedule.Profile; path != "" {
		return ReadProfile(path)
	}
	d := DefaultDevice()
	d.NodeRanks = spec.Slurm.GPUsPerNode
	return d, nil
}
