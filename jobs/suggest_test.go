package jobs

import "testing"

func TestSuggestKey(t *testing.T) {
	for wrong, want := range map[string]string{
		"model.head":              "model.heads",
		"model.kvheads":           "model.kv_heads",
		"model.kv-heads":          "model.kv_heads",
		"model.Dim":               "model.dim",
		"model.dmi":               "model.dim",
		"train.lr":                "optimizer.lr",
		"lr":                      "optimizer.lr",
		"batchsize":               "",
		"train.batch_size":        "",
		"train.microbatches":      "schedule.microbatches",
		"schedule.micro_batches":  "schedule.microbatches",
		"schedule.micro-batches":  "schedule.microbatches",
		"slurm.gpusPerNode":       "slurm.gpus_per_node",
		"parallel.stage":          "parallel.stages",
		"stages":                  "parallel.stages",
		"optimiser":               "optimizer",
		"optimiser.lr":            "optimizer.lr",
		"sed":                     "seed",
		"x":                       "",
		"":                        "",
		"checkpoint.evry":         "checkpoint.every",
		"something.quite.foreign": "",
	} {
		if got := suggestKey(wrong); got != want {
			t.Errorf("%q: did you mean %q? want %q", wrong, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		d    int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "abc", 3}, {"heads", "heads", 0}, {"head", "heads", 1},
		{"haeds", "heads", 1}, {"kitten", "sitting", 3}, {"größe", "grösse", 2}, {"ca", "abc", 3},
	} {
		if d := distance(c.a, c.b); d != c.d {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, d, c.d)
		}
		if d := distance(c.b, c.a); d != c.d {
			t.Errorf("distance(%q, %q) = %d, want %d", c.b, c.a, d, c.d)
		}
	}
}
