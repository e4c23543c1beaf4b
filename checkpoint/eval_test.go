package checkpoint

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const evalScript = "../scripts/eval_safetensors.py"

// evalLoss runs the script that computes a checkpoint's loss, or skips the test.
func evalLoss(t *testing.T, dir, tokens, seq string) (loss float64, output string) {
	t.Helper()
	const python = "/usr/bin/python3"
	if err := exec.Command(python, "-c", "import numpy").Run(); err != nil {
		t.Skipf("needs %s with numpy (apt install python3-numpy): %v", python, err)
	}
	cmd := exec.Command(python, evalScript, dir, tokens, "--seq", seq)
	b, err := cmd.CombinedOutput()
	if err != nil {
		return math.NaN(), string(b)
	}
	var r struct{ Loss float64 }
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return r.Loss, string(b)
}

// TestEvalScript compares the script with the loss that Hugging Face's LLaMA has
// for the same weights and tokens (see testdata/llama-tiny/generate.py), and a
// checkpoint that we wrote with the files that Python wrote.
func TestEvalScript(t *testing.T) {
	tiny := filepath.Join("testdata", "llama-tiny")
	tokens := filepath.Join(tiny, "tokens.i32")
	var want struct{ Loss float64 }
	b, err := os.ReadFile(filepath.Join(tiny, "expected.json"))
	if err == nil {
		err = json.Unmarshal(b, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	// Flax computes the rotary angles' sines in float32.
	theirs, out := evalLoss(t, tiny, tokens, "12")
	if !(math.Abs(theirs-want.Loss) < 1e-6) {
		t.Fatalf("loss %v, Hugging Face's LLaMA has %v\n%s", theirs, want.Loss, out)
	}

	weights, err := OpenWeights(tiny)
	if err != nil {
		t.Fatal(err)
	}
	defer weights.Close()
	config, err := os.ReadFile(filepath.Join(tiny, ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	save := func(change func(*Tensor)) string {
		var model []Tensor
		for _, name := range weights.Names() {
			info, _ := weights.Info(name)
			raw, err := weights.Rows(name, 0, -1)
			if err != nil {
				t.Fatal(err)
			}
			x := Tensor{name, info.DType, info.Shape, raw}
			change(&x)
			if x.Name != "" {
				model = append(model, x)
			}
		}
		dir := t.TempDir()
		if err := Save(t.Context(), SaveConfig{Dir: dir, Step: 1, Shards: 1}, model, nil, Meta{Config: config}); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, StepDir(1))
	}
	if ours, out := evalLoss(t, save(func(*Tensor) {}), tokens, "12"); ours != theirs {
		t.Errorf("loss %v from our file, %v from Python's\n%s", ours, theirs, out)
	}
	// Tied, the head is the embedding: the same as a head with the embedding's values.
	embedding, err := weights.Rows("model.embed_tokens.weight", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	untied, _ := evalLoss(t, save(func(x *Tensor) {
		if x.Name == "lm_head.weight" {
			x.Bytes = embedding
		}
	}), tokens, "12")
	untiedConfig := config
	config = []byte(strings.Replace(string(config), `"tie_word_embeddings": false`, `"tie_word_embeddings": true`, 1))
	tied, out := evalLoss(t, save(func(x *Tensor) {
		if x.Name == "lm_head.weight" {
			x.Name = ""
		}
	}), tokens, "12")
	config = untiedConfig
	if tied != untied || tied == theirs {
		t.Errorf("tied %v, with a copy %v, before %v\n%s", tied, untied, theirs, out)
	}
	// It must notice what is wrong with the weights.
	if other, _ := evalLoss(t, save(func(x *Tensor) {
		if x.Name == "model.layers.1.self_attn.k_proj.weight" {
			x.Bytes[3] ^= 0x80 // the sign of one weight
		}
	}), tokens, "12"); !(math.Abs(other-theirs) > 1e-6) {
		t.Errorf("loss %v with one sign changed, %v without", other, theirs)
	}
	for why, change := range map[string]func(*Tensor){
		"the weights have no model.norm.weight": func(x *Tensor) {
			if x.Name == "model.norm.weight" {
				x.Name = ""
			}
		},
		"has shape": func(x *Tensor) {
			if x.Name == "lm_head.weight" {
				x.Shape = []int{16, 23}
			}
		},
	} {
		if _, out := evalLoss(t, save(change), tokens, "12"); !strings.Contains(out, why) || strings.Contains(out, "Traceback") {
			t.Errorf("%s\nwant %q", out, why)
		}
	}
	if _, out := evalLoss(t, tiny, tokens, "11"); !strings.Contains(out, "no whole number of rows") {
		t.Error(out)
	}
}
