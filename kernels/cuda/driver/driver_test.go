package driver_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/kernels/cuda/driver"
	"github.com/pipetrain/pipetrain/kernels/cuda/emulation/emutest"
)

func context(t *testing.T) *driver.Context {
	t.Helper()
	path, err := emutest.Build(emutest.Options{Fast: true})
	if errors.Is(err, emutest.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := driver.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	d, err := l.Device(0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.PrimaryContext()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Enter(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Leave()
		if err := c.Release(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Modules that the card or the driver cannot take are refused with the driver's words.
func TestModulesRefused(t *testing.T) {
	c := context(t)
	for _, m := range []struct {
		text string
		want driver.Result
		note string
	}{
		{"not PTX at all", driver.InvalidPTX, "no .version"},
		{".version 8.0\n.target sm_90a\n.address_size 64\n", driver.NoBinary, ""},
		{".version 9.9\n.target sm_80\n", driver.BadPTXVersion, "unsupported .version 9.9"},
	} {
		_, err := c.LoadPTX([]byte(m.text))
		if !errors.Is(err, m.want) || !strings.Contains(err.Error(), m.note) || !strings.Contains(err.Error(), "cuModuleLoadDataEx: CUDA_ERROR_") {
			t.Errorf("%q: %v", m.text, err)
		}
	}
	m, err := c.LoadPTX([]byte(".version 8.0\n.target sm_80\n.visible .entry add_f32(\n.param .u64 a\n)\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Function("nothing"); !errors.Is(err, driver.NotFound) || !strings.Contains(err.Error(), "kernel nothing") {
		t.Errorf("a kernel that is not there: %v", err)
	}
	if _, err := m.Function("add_f32"); !errors.Is(err, driver.InvalidPTX) {
		t.Errorf("a kernel with other parameters than its source: %v", err)
	}
	if err := m.Unload(); err != nil {
		t.Error(err)
	}
}

func TestMemory(t *testing.T) {
	c := context(t)
	p, err := c.MemAlloc(1000)
	if err != nil {
		t.Fatal(err)
	}
	if free, total, err := c.MemGetInfo(); err != nil || total-free != 1000 {
		t.Errorf("%d of %d bytes free after an allocation of 1000: %v", free, total, err)
	}
	if err := c.MemFree(p); err != nil {
		t.Error(err)
	}
	if err := c.MemFree(p); !errors.Is(err, driver.InvalidValue) {
		t.Errorf("freed twice: %v", err)
	}
	if _, err := c.MemAlloc(1 << 40); !errors.Is(err, driver.OutOfMemory) || !strings.Contains(err.Error(), "asked for 1099511627776 bytes") {
		t.Errorf("more than there is: %v", err)
	}
}

// Nothing may wait for a stream whose work is being recorded.
func TestCaptureRefusesWaiting(t *testing.T) {
	c := context(t)
	s, err := c.NewStream(0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Destroy()
	if err := s.BeginCapture(); err != nil {
		t.Fatal(err)
	}
	if err := s.Synchronize(); err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED") {
		t.Errorf("Synchronize: %v", err)
	}
	if _, err := s.EndCapture(); err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED") {
		t.Errorf("EndCapture: %v", err)
	}
}
