package rank

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pipetrain/pipetrain/checkpoint"
)

// Where a manifest holds what its run was besides the model.
const (
	settingsKey = "settings"    // the job's keys that decide the results, see jobs.Lasting
	dataKey     = "data"        // the fingerprint of the data
	digestKey   = "data_digest" // the checksum of all of the data, once it was known
	updatesKey  = "updates"     // the optimizer's updates, where they are not as many as the steps
)

// sameRun refuses a checkpoint after which the run would not go on as it began. All mistakes are told at once.
func (tr *Trainer) sameRun(c *checkpoint.Checkpoint) error {
	m := c.Manifest
	var wrong []string
	differ := func(what string, was, is any) {
		wrong = append(wrong, fmt.Sprintf("%s was %v and is %v", what, was, is))
	}
	now := tr.spec.Lasting()
	settings := map[string]string{}
	if raw, ok := m.Extra[settingsKey]; ok {
		if err := json.Unmarshal(raw, &settings); err != nil {
			return fmt.Errorf("the checkpoint of step %d: its %s: %w", m.Step, settingsKey, err)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if was, ok := settings[key]; ok && was != now[key] {
			differ(key, was, now[key])
		}
	}
	if m.Seed != tr.spec.Seed && settings["seed"] == "" {
		differ("seed", m.Seed, tr.spec.Seed)
	}
	if want := tr.position(m.Step); m.DataPosition != want && settings["train.batch"] == "" {
		wrong = append(wrong, fmt.Sprintf("the checkpoint ends before sequence %d, %d steps of train.batch = %d before sequence %d", m.DataPosition, m.Step, tr.spec.Train.Batch, want))
	}
	if len(wrong) == 0 { // else these say the same in other words
		if err := tr.sameModel(c, differ); err != nil {
			return fmt.Errorf("the checkpoint of step %d: %w", m.Step, err)
		}
	}
	var was string
	if raw, ok := m.Extra[dataKey]; ok && len(wrong) == 0 {
		if err := json.Unmarshal(raw, &was); err != nil {
			return fmt.Errorf("the checkpoint of step %d: its %s: %w", m.Step, dataKey, err)
		}
		if is := tr.samples.source.Fingerprint(); was != is {
			differ("the data", was, is)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("the checkpoint of step %d is of another run: %s; a resumed run must go on as it began: set that back, or start a new run in another folder with --out", m.Step, strings.Join(wrong, ", "))
}

// position is the sequence of the run that the step after this one begins with.
func (tr *Trainer) position(step int) int64 { return int64(step) * int64(tr.spec.Train.Batch) }

// sameModel judges what the checkpoint says of its model itself: config.json, and tensors that the job's model has not.
// Those that are missing, or have another shape, are found where they are read.
func (tr *Trainer) sameModel(c *checkpoint.Checkpoint, differ func(what string, was, is any)) error {
	if c.Config != nil {
		now, err := json.Marshal(tr.work.Model.HFConfig())
		if err != nil {
			return err
		}
		var was, is map[string]any
		if err := json.Unmarshal(c.Config, &was); err != nil {
			return fmt.Errorf("%s: %w", checkpoint.ConfigName, err)
		}
		if err := json.Unmarshal(now, &is); err != nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(is)) {
			if old, ok := was[key]; ok && fmt.Sprint(old) != fmt.Sprint(is[key]) { // another version may write other keys
				differ(checkpoint.ConfigName+"'s "+key, old, is[key])
			}
		}
	}
	weights, states := map[string]bool{}, map[string]bool{}
	refs := tr.work.Model.Params()
	for _, p := range refs {
		for _, part := range savedParts(p.Param, refs[p.Owner].Param, 0) {
			weights[part.name] = true
			for _, name := range tr.work.Optim.States() {
				states[part.name+"."+name] = true
			}
		}
	}
	left := slices.DeleteFunc(c.Model.Names(), func(name string) bool { return weights[name] })
	left = append(left, slices.DeleteFunc(c.Optimizer.Names(), func(name string) bool { return states[name] })...)
	if len(left) > 0 {
		return fmt.Errorf("it has tensors that the job's model has not (%s): it is of another model; set that back, or start a new run", few(left))
	}
	return nil
}

// few lists the first of many.
func few(names []string) string {
	if n := len(names); n > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), n-3)
	}
	return strings.Join(names, ", ")
}

func updatesOf(m checkpoint.Manifest) int {
	n := m.Step
	if raw, ok := m.Extra[updatesKey]; ok {
		_ = json.Unmarshal(raw, &n)
	}
	return n
}
