package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(b), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte {
		b[(at+len(b))%len(b)] ^= 4
		return b
	}
}

func cut(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:len(b)-n] } }

func replace(old, new string) func([]byte) []byte {
	return func(b []byte) []byte {
		if !bytes.Contains(b, []byte(old)) {
			panic("no " + old)
		}
		return bytes.Replace(b, []byte(old), []byte(new), 1)
	}
}

// TestDamage damages the newest of two checkpoints in one way at a time: it must
// be passed over with the reason, before any weight is read, and the older loaded.
func TestDamage(t *testing.T) {
	const shard, optim = "model-00002-of-00002.safetensors", "optimizer-00001-of-00002.safetensors"
	at := func(name string, change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) { edit(t, filepath.Join(dir, name), change) }
	}
	do := func(f func(dir string) error) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := f(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name, why string
		quick     bool // found without reading the data, too
		damage    func(t *testing.T, dir string)
	}{
		{"bit flipped in a weight", shard + " is damaged", false, at(shard, flip(-1))},
		{"bit flipped in a header", shard + " is damaged", false, at(shard, flip(30))},
		{"bit flipped in the header's length", shard + " is damaged", true, at(shard, flip(0))},
		{"bit flipped in the optimizer", optim + " is damaged", false, at(optim, flip(-9))},
		{"bit flipped in the configuration", "config.json is damaged", false, at(ConfigName, flip(3))},
		{"bit flipped in the index", IndexName + " is damaged", false, at(IndexName, flip(40))},
		{"zeros where a page never reached the disk", shard + " is damaged", false, at(shard, func(b []byte) []byte {
			clear(b[len(b)-512:])
			return b
		})},
		{"shard cut by a byte", "bytes, its manifest says", true, at(shard, cut(1))},
		{"shard empty", "has 0 bytes", true, at(shard, func([]byte) []byte { return nil })},
		{"shard too long", "bytes, its manifest says", true, at(shard, func(b []byte) []byte { return append(b, 0) })},
		{"shard missing", shard + " is missing", true, do(func(dir string) error { return os.Remove(filepath.Join(dir, shard)) })},
		{"optimizer missing", optim + " is missing", true, do(func(dir string) error { return os.Remove(filepath.Join(dir, optim)) })},
		{"configuration missing", "config.json is missing", true, do(func(dir string) error { return os.Remove(filepath.Join(dir, ConfigName)) })},
		{"folder in place of a shard", "not a regular file", true, do(func(dir string) error {
			if err := os.Remove(filepath.Join(dir, shard)); err != nil {
				return err
			}
			return os.Mkdir(filepath.Join(dir, shard), 0o755)
		})},
		{"shards exchanged", "damaged", false, do(func(dir string) error {
			return exchange(filepath.Join(dir, shard), filepath.Join(dir, "model-00001-of-00002.safetensors"))
		})},
		{"extra shard", "model.safetensors is not in its manifest", true, do(func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "model.safetensors"), nil, 0o644)
		})},
		{"manifest missing", "manifest.json: no such file", true, do(func(dir string) error { return os.Remove(filepath.Join(dir, ManifestName)) })},
		{"manifest empty", "torn", true, at(ManifestName, func([]byte) []byte { return nil })},
		{"manifest torn", "torn", true, at(ManifestName, cut(200))},
		{"manifest without its last byte", "torn", true, at(ManifestName, cut(1))},
		{"manifest with more behind", "torn", true, at(ManifestName, func(b []byte) []byte { return append(b, ' ') })},
		{"a digit of the seed", "own checksum", true, at(ManifestName, replace(`"seed": 7`, `"seed": 3`))},
		{"a digit of the data position", "own checksum", true, at(ManifestName, replace(`"data_position": 640`, `"data_position": 641`))},
		{"manifest's own checksum", "own checksum", true, at(ManifestName, func(b []byte) []byte { b[len(b)-10] ^= 1; return b })},
		{"a newer version", "the program that wrote it", true, at(ManifestName, replace(`"version": 1`, `"version": 2`))},
		{"manifest of another step", "of step 1", true, do(func(dir string) error {
			b, err := os.ReadFile(filepath.Join(filepath.Dir(dir), StepDir(1), ManifestName))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, ManifestName), b, 0o644)
		})},
		{"manifest is a folder", "not a regular file", true, do(func(dir string) error {
			path := filepath.Join(dir, ManifestName)
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o755)
		})},
		{"manifest is a FIFO", "not a regular file", true, do(func(dir string) error {
			path := filepath.Join(dir, ManifestName)
			if err := os.Remove(path); err != nil {
				return err
			}
			return syscall.Mkfifo(path, 0o600)
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			mustSave(t, dir, 1, 2)
			mustSave(t, dir, 2, 2)
			bad := filepath.Join(dir, StepDir(2))
			c.damage(t, bad)
			skipped := mustOpen(t, dir, Want{}, 1)
			if len(skipped) != 1 || skipped[0].Path != bad || !strings.Contains(skipped[0].String(), c.why) {
				t.Fatalf("skipped %v, want %q", skipped, c.why)
			}
			_, _, err := Open(dir, AtStep(2))
			if !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), c.why) {
				t.Errorf("explicit step: %v", err)
			}
			if _, skipped, _ := Open(dir, Want{Quick: true}); c.quick != (len(skipped) == 1) {
				t.Errorf("quick: skipped %v", skipped)
			}
			// A run that goes on from step 1 reaches step 2 again and replaces it.
			mustSave(t, dir, 2, 2)
			if s := mustOpen(t, dir, Want{}, 2); len(s) > 0 {
				t.Error(s)
			}
		})
	}
}

// TestEveryByte flips a bit of every byte of a small checkpoint's files: none may load.
func TestEveryByte(t *testing.T) {
	dir := t.TempDir()
	if err := Save(t.Context(), SaveConfig{Dir: dir, Step: 3, Shards: 1}, []Tensor{f32("w", []int{2}, 1, 2)}, nil, testMeta); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, StepDir(3))
	tried := 0
	for _, name := range names(t, path) {
		file := filepath.Join(path, name)
		good, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := range good {
			edit(t, file, flip(i))
			if c, _, err := Open(dir, Want{}); err == nil {
				t.Errorf("%s: a flipped bit in byte %d was not found", name, i)
				c.Close()
			}
			edit(t, file, func([]byte) []byte { return good })
			tried++
		}
	}
	if c, _, err := Open(dir, Want{}); err != nil || tried < 500 {
		t.Fatalf("after %d flips and repairs: %v", tried, err)
	} else {
		c.Close()
	}
}

func TestNothingToLoad(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Join(dir, "none")} {
		if _, _, err := Open(d, Want{}); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), d) {
			t.Error(err)
		}
	}
	mustSave(t, dir, 10, 1)
	mustSave(t, dir, 20, 1)
	if _, _, err := Open(dir, AtStep(15)); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "20 10") {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(filepath.Join(dir, "file"), Want{}); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// Interrupted is not damaged: nothing may be passed over.
	if _, skipped, err := OpenContext(ctx, dir, Want{}); !errors.Is(err, context.Canceled) || len(skipped) > 0 {
		t.Error(skipped, err)
	}
}

// TestOtherFiles: what people add to a checkpoint or its folder does no harm.
func TestOtherFiles(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 10, 1)
	for _, name := range []string{"step-00000010/tokenizer.json", "step-00000010/README.md", "notes.txt", "step-00000030", "latest"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"step-11", "step-0000000012", "step-x", ".tmp", "lost+found", "copy of step-00000010"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if s := mustOpen(t, dir, Want{}, 10); len(s) > 0 {
		t.Error(s)
	}
	if removed, err := Clean(dir); err != nil || len(removed) > 0 {
		t.Error(removed, err)
	}
	// A checkpoint moved to other storage and linked is found; pruning takes the link only.
	away := filepath.Join(t.TempDir(), "away")
	if err := os.Rename(filepath.Join(dir, StepDir(10)), away); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(away, filepath.Join(dir, StepDir(10))); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir, Want{}, 10)
	mustSave(t, dir, 40, 1, func(c *SaveConfig) { c.Keep = 1 })
	if _, err := os.Lstat(filepath.Join(dir, StepDir(10))); !errors.Is(err, os.ErrNotExist) {
		t.Error("the link was not pruned:", err)
	}
	if _, err := os.Stat(filepath.Join(away, ManifestName)); err != nil {
		t.Error("what the link named is gone:", err)
	}
}

func TestClean(t *testing.T) {
	dir := t.TempDir()
	if removed, err := Clean(filepath.Join(dir, "none")); err != nil || len(removed) > 0 {
		t.Error(removed, err)
	}
	mustSave(t, dir, 1, 1)
	mustSave(t, dir, 2, 1)
	// Died between setting the old step 2 aside and giving the new one its name.
	if err := os.Rename(filepath.Join(dir, StepDir(2)), filepath.Join(dir, StepDir(2)+".old.tmp")); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{StepDir(3) + ".tmp", StepDir(1) + ".old.tmp", StepDir(0) + ".del.tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, d, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if s := mustOpen(t, dir, Want{}, 1); len(s) != 4 || !strings.Contains(s[0].String(), "unfinished") {
		t.Error(s)
	}
	removed, err := Clean(dir)
	if err != nil || len(removed) != 3 {
		t.Error(removed, err)
	}
	if s := mustOpen(t, dir, Want{}, 2); len(s) > 0 {
		t.Error(s)
	}
}

// TestOtherStages saves under four stages and reads rows as two tensor ranks would.
func TestOtherStages(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 9, 4)
	c, _, err := Open(dir, Want{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const name = "model.layers.3.weight"
	whole, err := c.Model.Rows(name, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	var joined []byte
	for _, r := range [][2]int{{0, 3}, {3, 8}} {
		part, err := c.Model.Rows(name, r[0], r[1])
		if err != nil {
			t.Fatal(err)
		}
		joined = append(joined, part...)
	}
	if !bytes.Equal(joined, whole) || len(whole) != 8*16*4 {
		t.Error("rows read apart are not the tensor")
	}
	if _, _, err := c.Tensor("model.layers.4.weight"); err == nil || !strings.Contains(err.Error(), "another model") {
		t.Error(err)
	}
}

func TestOpenWeightsRefuses(t *testing.T) {
	for _, c := range []struct{ why, index string }{
		{"neither", ""},
		{"file name", `{"weight_map":{"a":"../model.safetensors"}}`},
		{"no such file", `{"weight_map":{"a":"model-1.safetensors"}}`},
		{`names tensor "b"`, `{"weight_map":{"model.layers.0.weight":"x.safetensors","b":"x.safetensors"}}`},
		{"two files", `{"weight_map":{"model.layers.0.weight":"x.safetensors","b":"y.safetensors"}}`},
		{"unexpected end", `{`},
	} {
		dir := t.TempDir()
		if c.index != "" {
			if err := os.WriteFile(filepath.Join(dir, IndexName), []byte(c.index), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		model, _ := shardOf(1, 0, 1)
		var b bytes.Buffer
		if _, err := WriteSafetensors(&b, nil, model); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"x.safetensors", "y.safetensors"} {
			if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := OpenWeights(dir); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%q: %v, want %q", c.index, err, c.why)
		}
	}
}

// FuzzManifest: any change of a manifest's bytes is refused, and nothing panics.
func FuzzManifest(f *testing.F) {
	good, err := Manifest{Step: 3, Shards: 1, Files: []FileSum{{"model.safetensors", 8, zeroSum}}}.encode()
	if err != nil {
		f.Fatal(err)
	}
	if _, err := decodeManifest(good); err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"self_sha256": "` + zeroSum + "\"\n}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeManifest(b)
		if err == nil && (m.Step < 0 || m.Shards < 1) {
			t.Fatalf("%+v", m)
		}
	})
}

func TestManifestFileNames(t *testing.T) {
	for _, name := range []string{"", ".", "..", "../model.safetensors", "/etc/passwd", "a/b"} {
		b, err := Manifest{Shards: 1, Files: []FileSum{{Name: name}}}.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeManifest(b); err == nil || !strings.Contains(err.Error(), "file name") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
