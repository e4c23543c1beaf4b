package cpu

import (
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/kerneltest"
)

// found opens every BLAS of this machine, by name.
func found(t testing.TB) []string {
	var names []string
	for _, l := range blasLibraries {
		if _, err := openLibrary(l, l.places()); err != nil {
			t.Logf("%s is not here", l.name)
			continue
		}
		names = append(names, l.name)
	}
	return names
}

// TestLibraries runs the product on each BLAS of this machine.
func TestLibraries(t *testing.T) {
	for _, name := range found(t) {
		t.Run(name, func(t *testing.T) {
			maker := func(threads int) (kernels.Device, error) {
				return New(Options{Threads: threads, BLAS: name})
			}
			d, err := maker(1)
			if err != nil {
				t.Fatal(err)
			}
			info := d.Info()
			if info["blas"] != name || info["blas_path"] == "" || info["blas_version"] == "" {
				t.Errorf("Info says %v", info)
			}
			t.Logf("%s: %s, %s", info["blas"], info["blas_path"], info["blas_version"])
			for _, c := range kerneltest.Cases() {
				if strings.HasPrefix(c.Name, "Gemm") {
					if err := c.Check(maker); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

func TestUnknownBLAS(t *testing.T) {
	for _, c := range []struct{ blas, want string }{
		{"atlas", "openblas"},
		{"/nowhere/libblas.so", "/nowhere/libblas.so"},
	} {
		_, err := New(Options{BLAS: c.blas})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("BLAS %q: got error %v, want one with %q", c.blas, err, c.want)
		}
	}
	l := blasLibraries[1]
	_, err := openLibrary(l, []string{"libmissing1.so", "/nowhere/libmissing2.so"})
	if err == nil || !strings.Contains(err.Error(), "libmissing1.so") || !strings.Contains(err.Error(), "/nowhere/libmissing2.so") {
		t.Errorf("got error %v, want one that lists both paths", err)
	}
}

// TestAttentionThroughLibrary: where the own kernels are plain Go, attention multiplies
// through the library.
func TestAttentionThroughLibrary(t *testing.T) {
	names := found(t)
	if len(names) == 0 {
		t.Skip("no BLAS is installed")
	}
	for _, c := range kerneltest.Cases() {
		if strings.HasPrefix(c.Name, "Attention") {
			if err := c.Check(func(threads int) (kernels.Device, error) {
				return New(Options{Threads: threads, BLAS: names[0], ISA: "go"})
			}); err != nil {
				t.Error(err)
			}
		}
	}
}
