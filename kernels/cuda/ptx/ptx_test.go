package ptx

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The committed PTX is of the sources as they are, whether or not a compiler is there to try.
func TestNotStale(t *testing.T) {
	sources, _ := filepath.Glob("../src/*.cu")
	headers, _ := filepath.Glob("../src/*.h")
	text, err := files.ReadFile("sources.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && len(f[0]) == 64 {
			listed[f[1]] = f[0]
		}
	}
	for _, path := range append(sources, headers...) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		if got := fmt.Sprintf("%x", sha256.Sum256(b)); got != listed[name] {
			t.Errorf("%s is not what the PTX was compiled from: make ptx", name)
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("the PTX was compiled from %s, which is gone: make ptx", name)
	}
}

var entry = regexp.MustCompile(`(?m)^\.visible \.entry (\w+)\(`)

func TestModules(t *testing.T) {
	seen := 0
	sources, _ := filepath.Glob("../src/*.cu")
	for _, path := range sources {
		name := strings.TrimSuffix(filepath.Base(path), ".cu")
		text, err := Module(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if !bytes.Contains(text, []byte(fmt.Sprintf(".target sm_%d", Target))) || text[len(text)-1] != 0 {
			t.Errorf("%s: not PTX for sm_%d that ends in a zero byte", name, Target)
		}
		// An array that is indexed by what is not known when compiling lies in device memory, which is
		// a hundred times slower than the registers it is meant for.
		if bytes.Contains(text, []byte("__local_depot")) {
			t.Errorf("%s: a kernel keeps a local array in memory", name)
		}
		for _, m := range entry.FindAllSubmatch(text, -1) {
			seen++
			if k, ok := Find(string(m[1])); !ok || k.Module != name || k.MaxThreads < 32 || len(k.Params) == 0 {
				t.Errorf("%s: kernels.txt says of %s: %+v", name, m[1], k)
			}
		}
	}
	if seen == 0 || seen != len(Kernels()) {
		t.Errorf("%d kernels in the modules, %d in kernels.txt", seen, len(Kernels()))
	}
	if _, err := Module("nothing"); err == nil {
		t.Error("a module that does not exist was found")
	}
}
