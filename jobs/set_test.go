package jobs

import (
	"strings"
	"testing"
	"time"
)

func TestSet(t *testing.T) {
	for _, c := range []struct {
		set string
		got func(*Spec) any
		is  any
	}{
		{"optimizer.lr=1e-3", func(s *Spec) any { return s.Optimizer.LR }, 1e-3},
		{"optimizer.lr=1", func(s *Spec) any { return s.Optimizer.LR }, 1.0},
		{" optimizer.lr = 0.5 ", func(s *Spec) any { return s.Optimizer.LR }, 0.5},
		{"model.tied=true", func(s *Spec) any { return s.Model.Tied }, true},
		{"seed=-9223372036854775808", func(s *Spec) any { return s.Seed }, int64(-1 << 63)},
		{"seed=0x10", func(s *Spec) any { return s.Seed }, int64(16)},
		{"schedule.kind=gpipe", func(s *Spec) any { return s.Schedule.Kind }, "gpipe"},
		{`schedule.kind="gpipe"`, func(s *Spec) any { return s.Schedule.Kind }, "gpipe"},
		{"schedule.concat=all", func(s *Spec) any { return s.Schedule.Concat }, Concat(0)},
		{"schedule.memory_limit=1.5KiB", func(s *Spec) any { return s.Schedule.MemoryLimit }, Bytes(1536)},
		{"schedule.memory_limit=123456", func(s *Spec) any { return s.Schedule.MemoryLimit }, Bytes(123456)},
		{"schedule.memory_limit=", func(s *Spec) any { return s.Schedule.MemoryLimit }, Bytes(0)},
		{"run.start_timeout=90", func(s *Spec) any { return s.Run.StartTimeout }, 90 * time.Second},
		{"run.start_timeout=1m30s", func(s *Spec) any { return s.Run.StartTimeout }, 90 * time.Second},
		{"run.start_timeout=0.5", func(s *Spec) any { return s.Run.StartTimeout }, time.Second / 2},
		// Texts that TOML takes for a time of day, a number, a truth.
		{"slurm.time=04:00:00", func(s *Spec) any { return s.Slurm.Time }, "04:00:00"},
		{"slurm.time=30", func(s *Spec) any { return s.Slurm.Time }, "30"},
		{"name=2026", func(s *Spec) any { return s.Name }, "2026"},
		{"name=true", func(s *Spec) any { return s.Name }, "true"},
		{"name=1979-05-27", func(s *Spec) any { return s.Name }, "1979-05-27"},
	} {
		s := parse(t, minimal, c.set)
		if got := c.got(s); got != c.is {
			t.Errorf("--set %s gives %v (%T), want %v", c.set, got, got, c.is)
		}
	}
	if s := parse(t, minimal, "seed=2", "seed=3"); s.Seed != 3 {
		t.Errorf("the last of two does not win: %d", s.Seed)
	}
	if s := parse(t, strings.Replace(minimal, "batch = 8", "batch = nan", 1), "train.batch=16"); s.Train.Batch != 16 {
		t.Errorf("batch %d", s.Train.Batch)
	}
	// A required key may come from --set alone.
	if s := parse(t, strings.Replace(minimal, "batch = 8", "", 1), "train.batch=4"); s.Train.Batch != 4 {
		t.Errorf("batch %d", s.Train.Batch)
	}
}

func TestSetErrors(t *testing.T) {
	for _, c := range []struct{ set, want string }{
		{"", `--set "": is not of the form key=value`},
		{"=3", "--set =3: is not of the form key=value"},
		{"model.heads", `--set model.heads: is not of the form key=value (e.g. --set train.steps=100; did you mean "model.heads"?)`},
		{"batchs=3", `--set batchs=3: batchs: no such key (did you mean "train.batch"?)`},
		{"kind=3", "--set kind=3: kind: no such key"},
		{"zzz.yyy=3", "--set zzz.yyy=3: zzz.yyy: no such key"},
		{"model=3", "--set model=3: model: is a table (set a key of it, e.g. --set model.kind=…)"},
		{"model.layers=2.5", "--set model.layers=2.5: model.layers: is the number 2.5, not an integer"},
		{"model.layers=lots", `model.layers: is the text "lots", not an integer`},
		{"model.layers=", `model.layers: is the text "", not an integer`},
		{"model.layers=-1", "model.layers: is -1 (at least 1, at most 4096)"},
		{"model.heads=7", "--set model.heads=7: model.heads: 7 does not divide model.dim = 64 (one of 2, 4, 8, 16, 32)"},
		{"optimizer.lr=1e400", "optimizer.lr: "},
		{"optimizer.lr=-inf", "optimizer.lr: is -Inf, which no run can use"},
		{"optimizer.lr=[1", "optimizer.lr: is no TOML value"},
		{"model.tied=yes", `model.tied: is the text "yes", not true or false (write tied = true)`},
		{"name=\"a\\u001Bb\"", "name: has control characters"},
		{"name=a\nseed=3", "name: a value has one line"},
		{"seed=1\nv = 3", "seed: a value has one line"},
		{"name=\xff", "name: has control characters or is no UTF-8"},
		{"name=" + strings.Repeat("x", 5000), "name: has 5000 bytes (at most 4096)"},
		{"seed=" + strings.Repeat("[", 200_000), "seed: is no TOML value"},
		{"seed=99999999999999999999", `seed: is the text "99999999999999999999", not an integer`},
	} {
		_, err := Parse("job.toml", []byte(minimal), []string{c.set}, ".")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("--set %.60s:\n%.300v\nwant %q in it", c.set, err, c.want)
		} else if strings.Count(err.Error(), "\n") > 0 || !strings.HasPrefix(err.Error(), "--set") {
			t.Errorf("--set %.60s: not one line that names it: %q", c.set, err)
		}
	}
}
