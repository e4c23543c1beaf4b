package cuda_test

import (
	"errors"
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cuda"
	"github.com/pipetrain/pipetrain/kernels/cuda/emulation/emutest"
	"github.com/pipetrain/pipetrain/kernels/kerneltest"
)

// emulated returns the stand-ins for the driver and for cublasLt.
func emulated(t *testing.T, o emutest.Options) (libcuda, cublasLt string) {
	t.Helper()
	libcuda, err := emutest.Build(o)
	if err == nil {
		cublasLt, err = emutest.BuildCublasLt()
	}
	if errors.Is(err, emutest.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return libcuda, cublasLt
}

func maker(o cuda.Options) kerneltest.Maker {
	return func(int) (kernels.Device, error) { return cuda.New(o) }
}

// The conformance suite over the emulation, which checks each access of the kernels.
func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for half a minute")
	}
	libcuda, _ := emulated(t, emutest.Options{})
	kerneltest.Run(t, maker(cuda.Options{Driver: libcuda, CublasLt: "none"}))
}

func TestAbilities(t *testing.T) {
	libcuda, _ := emulated(t, emutest.Options{})
	kerneltest.RunAbilities(t, maker(cuda.Options{Driver: libcuda, CublasLt: "none"}))
}

// Products through cublasLt.
func TestProducts(t *testing.T) {
	if testing.Short() {
		t.Skip("numbers, not races")
	}
	libcuda, cublasLt := emulated(t, emutest.Options{})
	for _, c := range kerneltest.Cases() {
		if c.ThreadsMayDiffer {
			t.Run(c.Name, func(t *testing.T) {
				if err := c.Check(maker(cuda.Options{Driver: libcuda, CublasLt: cublasLt})); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
