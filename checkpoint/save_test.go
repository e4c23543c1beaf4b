package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// value is what element i of a tensor has at a step.
func value(step int, name string, i int) float32 {
	return float32(step) + float32(len(name))/16 + float32(i)/1024
}

func testTensor(step int, name string, shape ...int) Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = value(step, name, i)
	}
	return f32(name, shape, v...)
}

const testLayers = 4

// shardOf returns the tensors of one of the shards of a model of testLayers layers.
func shardOf(step, shard, shards int) (model, optimizer []Tensor) {
	for l := range testLayers {
		if l*shards/testLayers != shard {
			continue
		}
		name := fmt.Sprintf("model.layers.%d.weight", l)
		model = append(model, testTensor(step, name, 8, 16))
		optimizer = append(optimizer, testTensor(step, name+".exp_avg", 8, 16), testTensor(step, name+".exp_avg_sq", 8, 16))
	}
	return model, optimizer
}

var testMeta = Meta{Job: "test", Seed: 7, DataPosition: 640, Config: []byte(`{"model_type": "llama"}`),
	Program: "pipetrain test", Extra: map[string]any{"stages": 2, "loss": 2.5}}

// saveAll saves a step from several ranks and returns each one's result.
func saveAll(ctx context.Context, c SaveConfig, ranks int, each func(rank int, c *SaveConfig)) []error {
	h := newHub(ranks)
	errs := make([]error, ranks)
	var wg sync.WaitGroup
	for rank := range ranks {
		c := c
		c.Group = member{h, rank}
		c.Shard = rank
		if rank >= c.Shards {
			c.Shard = -1
		}
		if each != nil {
			each(rank, &c)
		}
		wg.Go(func() {
			model, optimizer := shardOf(c.Step, c.Shard, c.Shards)
			errs[rank] = Save(ctx, c, model, optimizer, testMeta)
		})
	}
	wg.Wait()
	return errs
}

// mustSave saves a step or ends the test.
func mustSave(t *testing.T, dir string, step, shards int, more ...func(*SaveConfig)) {
	t.Helper()
	c := SaveConfig{Dir: dir, Step: step, Shards: shards}
	for _, f := range more {
		f(&c)
	}
	if err := errors.Join(saveAll(t.Context(), c, shards, nil)...); err != nil {
		t.Fatal(err)
	}
}

// mustOpen opens a checkpoint and checks every value in it.
func mustOpen(t *testing.T, dir string, want Want, step int) []Skipped {
	t.Helper()
	c, skipped, err := Open(dir, want)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Manifest.Step != step {
		t.Fatalf("opened step %d, want %d (skipped %v)", c.Manifest.Step, step, skipped)
	}
	checkValues(t, c)
	return skipped
}

func checkValues(t *testing.T, c *Checkpoint) {
	t.Helper()
	model, optimizer := shardOf(c.Manifest.Step, 0, 1)
	check := func(tensors []Tensor, read func(string) ([]float32, []int, error)) {
		for _, x := range tensors {
			got, shape, err := read(x.Name)
			if err != nil || !slices.Equal(shape, x.Shape) {
				t.Fatalf("%s: shape %v, error %v", x.Name, shape, err)
			}
			for i, v := range got {
				if v != value(c.Manifest.Step, x.Name, i) {
					t.Fatalf("%s[%d] = %v", x.Name, i, v)
				}
			}
		}
	}
	check(model, c.Tensor)
	check(optimizer, c.OptimizerTensor)
	if len(c.Model.Names()) != len(model) || len(c.Optimizer.Names()) != len(optimizer) {
		t.Fatalf("names %v, %v", c.Model.Names(), c.Optimizer.Names())
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestSaveAndOpen(t *testing.T) {
	for _, shards := range []int{1, 2, 4} {
		for _, extra := range []int{0, 2} {
			t.Run(fmt.Sprintf("%d shards, %d ranks more", shards, extra), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "deep", "checkpoints")
				if err := errors.Join(saveAll(t.Context(), SaveConfig{Dir: dir, Step: 100, Shards: shards}, shards+extra, nil)...); err != nil {
					t.Fatal(err)
				}
				if s := mustOpen(t, dir, Want{}, 100); len(s) > 0 {
					t.Error(s)
				}
				mustOpen(t, dir, AtStep(100), 100)
				mustOpen(t, dir, Want{Quick: true}, 100)
				want := []string{"config.json", "manifest.json", "model.safetensors", "optimizer.safetensors"}
				if shards > 1 {
					want = []string{"config.json", "manifest.json", IndexName}
					for i := range shards {
						want = append(want, fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, shards),
							fmt.Sprintf("optimizer-%05d-of-%05d.safetensors", i+1, shards))
					}
				}
				slices.Sort(want)
				if got := names(t, filepath.Join(dir, "step-00000100")); !slices.Equal(got, want) {
					t.Errorf("files %v, want %v", got, want)
				}
				// As Hugging Face tools find it, without our manifest.
				s, err := OpenWeights(filepath.Join(dir, "step-00000100"))
				if err != nil || len(s.Names()) != testLayers {
					t.Fatal(err)
				}
				s.Close()
			})
		}
	}
}

func TestManifestSays(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 12, 2)
	c, _, err := Open(dir, Want{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := c.Manifest
	if m.Job != "test" || m.Seed != 7 || m.DataPosition != 640 || m.Shards != 2 || m.Program != "pipetrain test" ||
		string(m.Extra["stages"]) != "2" || string(m.Extra["loss"]) != "2.5" || string(c.Config) != string(testMeta.Config) {
		t.Errorf("%+v", m)
	}
	b, err := os.ReadFile(filepath.Join(c.Path, IndexName))
	if err != nil {
		t.Fatal(err)
	}
	var index struct {
		Metadata  struct{ Total_size int64 }
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &index); err != nil || index.Metadata.Total_size != testLayers*8*16*4 ||
		index.WeightMap["model.layers.3.weight"] != "model-00002-of-00002.safetensors" {
		t.Errorf("%+v, %v", index, err)
	}
}

func TestSaveRefuses(t *testing.T) {
	for _, c := range []struct {
		why  string
		each func(rank int, c *SaveConfig)
	}{
		{"no rank wrote shard 1 of 2", func(rank int, c *SaveConfig) { c.Shard = -min(rank, 1) }},
		{"file exists", func(_ int, c *SaveConfig) { c.Shard = 0 }},
		{"all hosts share", func(rank int, c *SaveConfig) { c.Step += rank }},
		{"all hosts share", func(rank int, c *SaveConfig) { c.Dir += strings.Repeat("x", rank) }},
		{"rank 1: saves step 5 in 3 shards, rank 0 saves step 5 in 2", func(rank int, c *SaveConfig) { c.Shards += rank }},
	} {
		dir := t.TempDir()
		for rank, err := range saveAll(t.Context(), SaveConfig{Dir: dir, Step: 5, Shards: 2}, 2, c.each) {
			if err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("rank %d: %v, want %q", rank, err, c.why)
			}
		}
		if left := names(t, dir); len(left) > 0 {
			t.Errorf("%s: left %v", c.why, left)
		}
	}
}

// TestSameShardTwice: two hosts with folders of their own, not shared, that write
// one shard each under the same name. No file tells, the reports do.
func TestSameShardTwice(t *testing.T) {
	s := saver{c: SaveConfig{Step: 1, Shards: 1}, tmp: t.TempDir()}
	r := report{Step: 1, Shards: 1}
	_, _, failed := s.collect([]report{r, {Step: 1, Shards: 1, Shard: -1}, r}, &Manifest{})
	if len(failed) != 1 || failed[0].Rank != 2 || !strings.Contains(failed[0].Reason, "shard 0, as rank 0 does") {
		t.Error(failed)
	}
}

// TestSameTensorTwice: a tied parameter that two stages save is found by all.
func TestSameTensorTwice(t *testing.T) {
	for _, kind := range []string{"model", "optimizer"} {
		dir := t.TempDir()
		h := newHub(2)
		var errs [2]error
		var wg sync.WaitGroup
		for rank := range 2 {
			wg.Go(func() {
				x := []Tensor{testTensor(1, "embed", 2)}
				var model, optimizer []Tensor
				if kind == "model" {
					model = x
				} else {
					optimizer = x
				}
				errs[rank] = Save(t.Context(), SaveConfig{Dir: dir, Step: 1, Shard: rank, Shards: 2, Group: member{h, rank}}, model, optimizer, Meta{})
			})
		}
		wg.Wait()
		for _, err := range errs {
			var s *SaveError
			if !errors.As(err, &s) || s.Failed[0].Rank != 1 || !strings.Contains(err.Error(), `tensor "embed"`) {
				t.Errorf("%s: %v", kind, err)
			}
		}
	}
}

func TestSaveArguments(t *testing.T) {
	for _, c := range []SaveConfig{{Step: -1, Shards: 1}, {Shards: 0}, {Shard: 2, Shards: 2}} {
		c.Dir = t.TempDir()
		if err := Save(t.Context(), c, nil, nil, Meta{}); err == nil {
			t.Errorf("%+v was saved", c)
		}
	}
}

// TestLostRank: a member that dies within a save must not leave the others waiting.
func TestLostRank(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 1, 3)
	h := newHub(3)
	errs := make(chan error, 2)
	for _, rank := range []int{0, 2} {
		go func() {
			model, optimizer := shardOf(2, rank, 3)
			errs <- Save(t.Context(), SaveConfig{Dir: dir, Step: 2, Shard: rank, Shards: 3, Group: member{h, rank}}, model, optimizer, testMeta)
		}()
	}
	if _, err := (member{h, 1}).Broadcast(t.Context(), nil); err != nil { // it takes part until rank 0 prepared
		t.Fatal(err)
	}
	close(h.lost)
	for range 2 {
		if err := <-errs; !errors.Is(err, h.reason) {
			t.Error(err)
		}
	}
	if s := mustOpen(t, dir, Want{}, 1); len(s) != 1 {
		t.Error(s)
	}
}

func TestSaveInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	for _, err := range saveAll(ctx, SaveConfig{Dir: dir, Step: 1, Shards: 2}, 2, nil) {
		if err == nil {
			t.Error("saved though cancelled")
		}
	}
	if _, _, err := Open(dir, Want{}); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
}

func TestKeep(t *testing.T) {
	dir := t.TempDir()
	keep := func(n int, pruneStart bool) func(*SaveConfig) {
		return func(c *SaveConfig) { c.Keep, c.PruneStart = n, pruneStart }
	}
	expect := func(want ...int) {
		t.Helper()
		var dirs []string
		for _, n := range want {
			dirs = append(dirs, StepDir(n))
		}
		if got := names(t, dir); !slices.Equal(got, dirs) {
			t.Errorf("kept %v, want %v", got, dirs)
		}
	}
	for _, step := range []int{0, 10, 20, 30} {
		mustSave(t, dir, step, 1)
	}
	expect(0, 10, 20, 30)
	mustSave(t, dir, 40, 1, keep(2, false))
	expect(0, 30, 40)
	// A run that resumed at an older step: what it writes stays, however old.
	mustSave(t, dir, 25, 1, keep(1, false))
	expect(0, 25)
	mustSave(t, dir, 50, 1, keep(1, true))
	expect(50)
	mustSave(t, dir, 0, 1, keep(1, true))
	expect(0)
}

func TestPruneFails(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 1, 2)
	// A mount point cannot be renamed away, root or not.
	mountTmpfs(t, filepath.Join(dir, StepDir(1)), "64k")
	for _, err := range saveAll(t.Context(), SaveConfig{Dir: dir, Step: 2, Shards: 2, Keep: 1}, 2, nil) {
		if !errors.Is(err, ErrPrune) || !strings.Contains(err.Error(), "step 2 is saved") {
			t.Error(err)
		}
	}
	mustOpen(t, dir, AtStep(2), 2)
}
