package cpu

import (
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/kerneltest"
)

// TestConformance runs the suite for each instruction set that this processor has.
func TestConformance(t *testing.T) {
	for _, isa := range ISAs() {
		t.Run(isa, func(t *testing.T) {
			kerneltest.Run(t, func(threads int) (kernels.Device, error) {
				return New(Options{Threads: threads, ISA: isa, BLAS: "go"})
			})
		})
	}
}
