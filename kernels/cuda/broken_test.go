package cuda_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/kernels/cuda"
	"github.com/pipetrain/pipetrain/kernels/cuda/emulation/emutest"
	"github.com/pipetrain/pipetrain/kernels/kerneltest"
)

// mistakes are made in copies of the kernels' sources, each in another file.
var mistakes = []struct{ what, file, old, new, foundBy string }{
	{"a barrier missing", "gemm.cu", "barrier();  // the tile may be overwritten", "", "Gemm/Small"},
	{"a wrong index", "embedding.cu", "const T* from = table + (long)(bad ? 0 : id) * dim;", "const T* from = table + (long)(bad ? 0 : id / 2) * dim;", "Embedding/Forward"},
	{"an unwritten output", "rmsnorm.cu", "if (thread() == 0) rstd[block_x()] = r;", "", "RMSNorm/Forward"},
	{"a part of an output not written", "swiglu.cu", "store<N>(du + c, d, left, fast);", "if (c > 0) store<N>(du + c, d, left, fast);", "SwiGLU/Backward"},
}

// The suite finds broken kernels, and a binding that forgets to wait for events, by the
// numbers alone: the emulation's own checks are left out.
func TestMistakesFound(t *testing.T) {
	if testing.Short() {
		t.Skip("the mistakes are no data races of Go's")
	}
	folder := t.TempDir()
	files, _ := filepath.Glob(filepath.Join(emutest.Root(), "src", "*"))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		for _, m := range mistakes {
			if m.file != filepath.Base(f) {
				continue
			}
			if n := strings.Count(text, m.old); n != 1 {
				t.Fatalf("%s: %q occurs %d times in %s", m.what, m.old, n, m.file)
			}
			text = strings.Replace(text, m.old, m.new, 1)
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(f)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	libcuda, _ := emulated(t, emutest.Options{Fast: true, Sources: folder, Flags: []string{"-DPIPETRAIN_FORGETS_WAITS"}})
	broken := maker(cuda.Options{Driver: libcuda, CublasLt: "none"})
	cases := map[string]kerneltest.Case{}
	for _, c := range kerneltest.Cases() {
		cases[c.Name] = c
	}
	for _, m := range mistakes {
		c, ok := cases[m.foundBy]
		if !ok {
			t.Fatalf("there is no case %s", m.foundBy)
		}
		if err := c.Check(broken); err == nil {
			t.Errorf("%s passes with %s", m.foundBy, m.what)
		} else {
			t.Log(err)
		}
	}
	if err := cases["SwiGLU/Forward"].Check(broken); err != nil {
		t.Errorf("what is not broken fails: %v", err)
	}
	if err := kerneltest.CheckAbilities(broken); err == nil {
		t.Error("the abilities pass with a binding that waits for no event")
	} else {
		t.Log(err)
	}
}
