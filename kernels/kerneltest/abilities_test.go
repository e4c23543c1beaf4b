package kerneltest_test

import (
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/kerneltest"
)

var (
	_ kernels.Device   = (*kerneltest.Far)(nil)
	_ kernels.Queues   = (*kerneltest.Far)(nil)
	_ kernels.Recorder = (*kerneltest.Far)(nil)
	_ kernels.Sharer   = (*kerneltest.Far)(nil)
)

func far(flaw kerneltest.Flaw) kerneltest.Maker {
	return func(threads int) (kernels.Device, error) {
		return kerneltest.NewFar(func() (kernels.Device, error) { return sound(threads) }, nil, flaw)
	}
}

func TestFar(t *testing.T) {
	if !testing.Short() {
		kerneltest.Run(t, far(kerneltest.Sound))
	}
	kerneltest.RunAbilities(t, far(kerneltest.Sound))
}

// The suite tells every way of not waiting.
func TestFlawsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("the flaws are data races, and the race detector says so")
	}
	for _, flaw := range []kerneltest.Flaw{
		kerneltest.ForkTooEarly, kerneltest.WaitNotAtAll, kerneltest.CopyTooEarly, kerneltest.AfterNothing,
		kerneltest.AwaitNothing, kerneltest.RecordAndDo, kerneltest.ReplayForgets,
	} {
		if err := kerneltest.CheckAbilities(far(flaw)); err == nil {
			t.Errorf("a device passes though %s", flaw)
		}
	}
}
