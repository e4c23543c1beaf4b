package checkpoint

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func openPath(t *testing.T, path string) *Checkpoint {
	t.Helper()
	c, err := OpenPath(t.Context(), path, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func same(t *testing.T, a, b *Set) {
	t.Helper()
	d, err := Diff(t.Context(), a, b)
	if err != nil || len(d) > 0 {
		t.Errorf("%v, %v", d, err)
	}
}

// Saved in two shards, converted to one, three and four and back: the same bits, and a checkpoint each time.
func TestConvertShards(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 5, 2)
	first := openPath(t, filepath.Join(dir, StepDir(5)))
	c := first
	for i, shards := range []int{1, 3, 4, 2} {
		out := filepath.Join(t.TempDir(), StepDir(5))
		if err := Convert(t.Context(), c, out, ConvertConfig{Shards: shards}); err != nil {
			t.Fatal(err)
		}
		if faults, err := Verify(t.Context(), out); err != nil || len(faults) > 0 {
			t.Fatalf("%v, %v", faults, err)
		}
		c = openPath(t, out)
		checkValues(t, c)
		same(t, c.Model, first.Model)
		same(t, c.Optimizer, first.Optimizer)
		if c.Manifest.Shards != shards || c.Manifest.DataPosition != 640 || string(c.Config) != string(first.Config) || string(c.Manifest.Extra["loss"]) != "2.5" {
			t.Errorf("%d: %+v", i, c.Manifest)
		}
		hf, err := OpenWeights(out)
		if err != nil {
			t.Fatal(err)
		}
		same(t, hf, first.Model)
		hf.Close()
	}
}

func TestConvertDType(t *testing.T) {
	dir := t.TempDir()
	values := []float32{1, -0, 1.00390625, 1.01171875, 3.4e38, float32(math.Inf(-1)), float32(math.NaN()), 1e-40}
	// 1 + 1/256 lies in the middle of two bf16 numbers and goes to the even one below, 1 + 3/256 to the one above; the largest become infinite.
	want := []float32{1, -0, 1, 1.015625, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), math.Float32frombits(1 << 16)}
	if err := Save(t.Context(), SaveConfig{Dir: dir, Step: 1, Shards: 1}, []Tensor{f32("w", []int{8}, values...)}, []Tensor{f32("w.m", []int{1}, 0)}, testMeta); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "bf16")
	if err := Convert(t.Context(), openPath(t, filepath.Join(dir, StepDir(1))), out, ConvertConfig{DType: "BF16"}); err != nil {
		t.Fatal(err)
	}
	c := openPath(t, out)
	got, _, err := c.Tensor("w")
	if err != nil || !slices.EqualFunc(got, want, func(a, b float32) bool { return a == b || a != a && b != b }) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if !strings.Contains(string(c.Config), `"torch_dtype": "bfloat16"`) || !strings.Contains(string(c.Config), `"model_type": "llama"`) {
		t.Errorf("config %s", c.Config)
	}
	if got := names(t, out); !slices.Equal(got, []string{ConfigName, "model.safetensors"}) {
		t.Errorf("weights of another type come with %v", got)
	}
	back := filepath.Join(dir, "f32")
	if err := Convert(t.Context(), c, back, ConvertConfig{DType: "F32"}); err != nil {
		t.Fatal(err)
	}
	if got, _, err = openPath(t, back).Tensor("w"); err != nil || got[3] != want[3] {
		t.Errorf("%v, %v", got, err)
	}
}

func TestConvertRefuses(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 5, 1)
	c := openPath(t, filepath.Join(dir, StepDir(5)))
	for want, f := range map[string]func() error{
		"some would be empty": func() error { return Convert(t.Context(), c, filepath.Join(dir, "x"), ConvertConfig{Shards: 5}) },
		"is there already":    func() error { return Convert(t.Context(), c, dir, ConvertConfig{}) },
		"tensor \"model.layers.0.weight\" is F32": func() error {
			return Convert(t.Context(), c, filepath.Join(dir, "x"), ConvertConfig{DType: "F16"})
		},
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if got := names(t, dir); !slices.Equal(got, []string{StepDir(5)}) {
		t.Errorf("left behind: %v", got)
	}
}

func TestDiff(t *testing.T) {
	dir := t.TempDir()
	save := func(step int, tensors ...Tensor) *Set {
		if err := Save(t.Context(), SaveConfig{Dir: dir, Step: step, Shards: 1}, tensors, nil, testMeta); err != nil {
			t.Fatal(err)
		}
		return openPath(t, filepath.Join(dir, StepDir(step))).Model
	}
	a := save(1, f32("a", []int{2, 2}, 1, 2, 3, 4), f32("gone", []int{1}, 1), f32("shape", []int{2}, 1, 1), f32("equal", []int{1}, 7))
	b := save(2, f32("a", []int{2, 2}, 1, 2.5, 3, 2), f32("new", []int{1}, 1), f32("shape", []int{2, 1}, 1, 1), f32("equal", []int{1}, 7))
	got, err := Diff(t.Context(), a, b)
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, d := range got {
		text = append(text, d.String())
	}
	want := []string{"a: 2 of 4 values differ, the first at 1 (2 and 2.5), by 2 at most", "gone: only in the first", "new: only in the second", "shape: F32 [2] and F32 [2 1]"}
	if !slices.Equal(text, want) {
		t.Errorf("got  %q\nwant %q", text, want)
	}
	nan := float32(math.NaN())
	if got, err = Diff(t.Context(), save(3, f32("a", []int{3}, nan, 1, 2)), save(4, f32("a", []int{3}, 1, 1, 5))); err != nil || len(got) != 1 || got[0].Count != 2 || !math.IsNaN(float64(got[0].Largest)) {
		t.Errorf("%v, %v", got, err)
	}
	if b, err := json.Marshal(got); err != nil || !strings.Contains(string(b), `"A":"NaN","B":1,"Largest":"NaN"`) {
		t.Errorf("%s, %v", b, err)
	}
	// A value far beyond the first part that is read.
	big := make([]float32, chunkBytes/2)
	x := save(5, f32("a", []int{len(big)}, big...))
	big[len(big)-3] = 1
	if got, err = Diff(t.Context(), x, save(6, f32("a", []int{len(big)}, big...))); err != nil || len(got) != 1 || got[0].First != int64(len(big)-3) || got[0].Of != int64(len(big)) {
		t.Errorf("%v, %v", got, err)
	}
}

// Each byte that is flipped in any file is found, and the file is named.
func TestVerifyEveryByte(t *testing.T) {
	dir := t.TempDir()
	if err := Save(t.Context(), SaveConfig{Dir: dir, Step: 3, Shards: 1}, []Tensor{f32("w", []int{2}, 1, 2)}, nil, testMeta); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, StepDir(3))
	for _, name := range names(t, path) {
		file := filepath.Join(path, name)
		good, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := range good {
			edit(t, file, flip(i))
			if faults, err := Verify(t.Context(), path); err != nil || len(faults) != 1 || faults[0].File != name {
				t.Fatalf("byte %d of %s: %v, %v", i, name, faults, err)
			}
			edit(t, file, func([]byte) []byte { return good })
		}
	}
}

func TestListShowsDamage(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 2, 2)
	mustSave(t, dir, 10, 1)
	edit(t, filepath.Join(dir, StepDir(2), "model-00001-of-00002.safetensors"), cut(1))
	if err := os.Mkdir(filepath.Join(dir, StepDir(11)+tmpSuffix), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := List(dir)
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	if !strings.Contains(got[0].Wrong, "its manifest says") || got[1].Step != 10 || got[1].Wrong != "" || got[1].Bytes == 0 || got[1].Shards != 1 || got[1].Saved.IsZero() || !strings.Contains(got[2].Wrong, "unfinished") {
		t.Errorf("%+v", got)
	}
	if _, err := Verify(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "is no checkpoint") {
		t.Error(err)
	}
}
