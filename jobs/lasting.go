package jobs

import (
	"slices"
	"strings"
)

// changeable are the keys of the tables that decide a run's results which may change where it is
// resumed all the same: the name and the place of the data decide nothing, their content and form are judged by
// itself, and a run may go on for longer.
var changeable = []string{"name", "data.path", "data.format", "data.holdout", "train.steps"}

// Lasting returns, by name, the keys that decide what a run computes, with their values as in a resolved job.
// A run goes on as it began only where all are as they were. The others may change: how many ranks, which order
// of work, where it runs, how long, what is kept.
func (s *Spec) Lasting() map[string]string {
	out := map[string]string{}
	c := *s
	for i := range keyList {
		name := keyList[i].Name
		switch table := keyList[i].table(); {
		case slices.Contains(changeable, name):
		case table == "" || slices.Contains([]string{"model", "data", "train", "optimizer"}, table):
			out[name] = strings.Trim(tomlValue(field(&c, name).Interface()), `"`)
		}
	}
	return out
}
