package cuda

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pipetrain/pipetrain/kernels/cuda/driver"
	"github.com/pipetrain/pipetrain/kernels/cuda/ptx"
)

// Card is what is known of a GPU.
type Card struct {
	Number          int    // among those that the process sees
	Name, UUID      string // the UUID as nvidia-smi writes it
	Capability      int    // 80 is 8.0
	Memory          int64  // bytes
	Multiprocessors int
	// Exclusive: the card takes one process at a time. Prohibited: none.
	Exclusive, Prohibited bool
	Driver                string // the CUDA that the driver is for, "12.4"

	// Reaches lists the other cards, by number, whose memory this one addresses by itself.
	Reaches []int

	device driver.Device
}

// oldestDriver is the first CUDA that knows the PTX of the kernels (PTX 8.0).
const oldestDriver = 12000

// load loads the driver, and says in a line why it cannot be used.
func load(path string) (*driver.Library, error) {
	lib, err := driver.Open(path)
	switch {
	case errors.Is(err, driver.ErrNoLibrary):
		return nil, fmt.Errorf("cuda: no NVIDIA driver here: %w; install the driver, or set device.libcuda to where its library lies", err)
	case errors.Is(err, driver.NoDevice):
		return nil, fmt.Errorf("cuda: no GPU: %w; is CUDA_VISIBLE_DEVICES right, and has the job or container been given a GPU?", err)
	case errors.Is(err, driver.SystemMismatch):
		return nil, fmt.Errorf("cuda: the kernel's driver module and %s are of different versions: %w; restart the machine, or load the module again", driver.DefaultPath, err)
	case err != nil:
		return nil, fmt.Errorf("cuda: the driver does not start: %w", err)
	case lib.Version() < oldestDriver:
		return nil, fmt.Errorf("cuda: the driver is for CUDA %s, and the kernels need %d.%d or later: update the driver", lib.VersionText(), oldestDriver/1000, oldestDriver%1000/10)
	}
	return lib, nil
}

// Cards lists the GPUs that this process sees, without using any of them.
func Cards(path string) ([]Card, error) {
	lib, err := load(path)
	if err != nil {
		return nil, err
	}
	n, err := lib.DeviceCount()
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	var all []Card
	for i := range n {
		c, err := describe(lib, i)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	for i := range all {
		for j := range all {
			if yes, err := all[i].device.CanAccess(all[j].device); i != j && err == nil && yes {
				all[i].Reaches = append(all[i].Reaches, j)
			}
		}
	}
	return all, nil
}

func choose(lib *driver.Library, gpu int) (Card, error) {
	n, err := lib.DeviceCount()
	if err != nil {
		return Card{}, fmt.Errorf("cuda: %w", err)
	}
	if gpu < 0 || gpu >= n {
		return Card{}, fmt.Errorf("cuda: GPU %d is not here: this process sees %d (CUDA_VISIBLE_DEVICES)", gpu, n)
	}
	c, err := describe(lib, gpu)
	if err != nil {
		return c, err
	}
	return c, c.Usable()
}

// Usable says why the kernels cannot run on the card, as far as its description tells.
func (c Card) Usable() error {
	if c.Prohibited {
		return fmt.Errorf("cuda: GPU %d (%s) is closed to computing: nvidia-smi -i %d -c DEFAULT opens it", c.Number, c.Name, c.Number)
	}
	if c.Capability < ptx.Target {
		return fmt.Errorf("cuda: GPU %d (%s) is of compute capability %s, and the kernels need %s or later (Ampere)", c.Number, c.Name, version(c.Capability), version(ptx.Target))
	}
	return nil
}

func version(capability int) string { return fmt.Sprintf("%d.%d", capability/10, capability%10) }

func describe(lib *driver.Library, i int) (c Card, err error) {
	wrap := func(err error) (Card, error) { return c, fmt.Errorf("cuda: GPU %d: %w", i, err) }
	c.Number, c.Driver = i, lib.VersionText()
	if c.device, err = lib.Device(i); err != nil {
		return wrap(err)
	}
	if c.Name, err = c.device.Name(); err != nil {
		return wrap(err)
	}
	if c.UUID, err = c.device.UUID(); err != nil {
		return wrap(err)
	}
	if c.Memory, err = c.device.TotalMem(); err != nil {
		return wrap(err)
	}
	var major, minor, mode int
	for _, a := range []struct {
		to   *int
		what driver.Attribute
	}{{&major, driver.CapabilityMajor}, {&minor, driver.CapabilityMinor}, {&mode, driver.ComputeMode},
		{&c.Multiprocessors, driver.MultiprocessorCount}} {
		if *a.to, err = c.device.Attribute(a.what); err != nil {
			return wrap(err)
		}
	}
	c.Capability = 10*major + minor
	c.Exclusive, c.Prohibited = mode == driver.ComputeModeExclusiveProcess, mode == driver.ComputeModeProhibited
	return c, nil
}

// refused explains why the card could not be opened.
func (c Card) refused(err error) error {
	who := fmt.Sprintf("cuda: GPU %d (%s)", c.Number, c.Name)
	switch {
	case errors.Is(err, driver.Unavailable):
		fix := "wait for it, choose another with CUDA_VISIBLE_DEVICES"
		if c.Exclusive {
			fix += ", or let several processes use it: MPS, or nvidia-smi -c DEFAULT"
		}
		return fmt.Errorf("%s is in use by another process: %w; %s", who, err, fix)
	case errors.Is(err, driver.OutOfMemory):
		return fmt.Errorf("%s has no memory left to begin with: %w; nvidia-smi shows which processes hold it", who, err)
	case errors.Is(err, driver.NoBinary), errors.Is(err, driver.InvalidPTX), errors.Is(err, driver.BadPTXVersion):
		return fmt.Errorf("%s with a driver for CUDA %s does not take the kernels, which are compiled for compute capability %s: %w; update the driver", who, c.Driver, version(ptx.Target), err)
	}
	return fmt.Errorf("%s: %w", who, err)
}

func (c Card) info() map[string]string {
	return map[string]string{
		"gpu": c.Name, "uuid": c.UUID, "number": text(c.Number), "capability": version(c.Capability),
		"memory": fmt.Sprintf("%.1f GiB", float64(c.Memory)/(1<<30)), "multiprocessors": text(c.Multiprocessors),
		"driver": "CUDA " + strings.TrimSpace(c.Driver),
	}
}
