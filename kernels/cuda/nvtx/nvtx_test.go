package nvtx

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/ebitengine/purego"
)

// A library that writes down what it is told.
const recorder = `
#include <stdio.h>
#include <string.h>
static char said[200];
static void add(const char* what, const char* name) { strcat(strcat(strcat(said, what), name), ";"); }
int nvtxRangePushA(const char* name) { add("push ", name); return 0; }
int nvtxRangePop(void) { add("pop", ""); return 0; }
unsigned long long nvtxRangeStartA(const char* name) { add("start ", name); return 7000000000ull; }
void nvtxRangeEnd(unsigned long long id) { add(id == 7000000000ull ? "end" : "other", ""); }
const char* told(void) { return said; }
`

func TestRanges(t *testing.T) {
	if _, err := Open("/no/libnvToolsExt.so.1"); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("no library: %v", err)
	}
	dir := t.TempDir()
	source, library := filepath.Join(dir, "nvtx.c"), filepath.Join(dir, "libnvToolsExt.so.1")
	if err := os.WriteFile(source, []byte(recorder), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed: scripts/install-test-deps.sh")
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	l, err := Open(library)
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l.Push("Gemm")
	id := l.Start("0F1")
	l.Pop()
	l.Push("Gemm")
	l.Pop()
	l.End(id)
	h, err := purego.Dlopen(library, purego.RTLD_NOW)
	if err != nil {
		t.Fatal(err)
	}
	var told func() string
	purego.RegisterLibFunc(&told, h, "told")
	if got, want := told(), "push Gemm;start 0F1;pop;push Gemm;pop;end;"; got != want {
		t.Errorf("the library was told %q, want %q", got, want)
	}
}
