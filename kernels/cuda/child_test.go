package cuda_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cuda"
	"github.com/pipetrain/pipetrain/kernels/cuda/driver"
	"github.com/pipetrain/pipetrain/kernels/cuda/emulation/emutest"
)

// The stand-in reads the environment that the process was started with, and memory is
// shared between processes: these tests start this binary again.
const childEnv = "PIPETRAIN_CUDA_CHILD"

func TestMain(m *testing.M) {
	task, rest, _ := strings.Cut(os.Getenv(childEnv), " ")
	if task == "" {
		os.Exit(m.Run())
	}
	if err := map[string]func(string) error{"open": childOpen, "share": childShare, "multiply": childMultiply, "scatter": childScatter, "counted": childCounted, "uuids": childUUIDs, "add": childAdd}[task](rest); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func child(t *testing.T, task string, env ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childEnv+"="+task), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return strings.TrimSpace(out.String()), err
}

// childOpen opens a GPU and allocates.
func childOpen(args string) error {
	f := strings.Fields(args)
	d, err := cuda.New(cuda.Options{Driver: f[0], CublasLt: f[1]})
	if err != nil {
		return err
	}
	if _, err := d.Alloc(1 << 29); err != nil {
		return err
	}
	return d.Close()
}

// What a user can meet is told in one line with what to do.
func TestOpenRefused(t *testing.T) {
	libcuda, _ := emulated(t, emutest.Options{Fast: true})
	for _, c := range []struct {
		name, driver, cublasLt string
		env                    []string
		want                   []string
	}{
		{"fine", libcuda, "none", nil, nil},
		{"no driver", "/no/libcuda.so.1", "none", nil, []string{"no NVIDIA driver here", "/no/libcuda.so.1", "device.libcuda"}},
		{"another library", "libm.so.6", "none", nil, []string{"libm.so.6 has no cu", "no CUDA driver"}},
		{"no GPU", libcuda, "none", []string{"PIPETRAIN_EMULATION_GPUS=0"}, []string{"no GPU", "CUDA_ERROR_NO_DEVICE", "CUDA_VISIBLE_DEVICES"}},
		{"hidden", libcuda, "none", []string{"CUDA_VISIBLE_DEVICES="}, []string{"no GPU", "CUDA_VISIBLE_DEVICES"}},
		{"old driver", libcuda, "none", []string{"PIPETRAIN_EMULATION_DRIVER=11040"}, []string{"the driver is for CUDA 11.4", "12.0 or later", "update the driver"}},
		{"mismatch", libcuda, "none", []string{"PIPETRAIN_EMULATION_MISMATCH=1"}, []string{"different versions", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}},
		{"old card", libcuda, "none", []string{"PIPETRAIN_EMULATION_CAPABILITY=75"}, []string{"compute capability 7.5", "8.0 or later"}},
		{"in use", libcuda, "none", []string{"PIPETRAIN_EMULATION_BUSY=1"}, []string{"in use by another process", "CUDA_ERROR_DEVICE_UNAVAILABLE", "MPS"}},
		{"full", libcuda, "none", []string{"PIPETRAIN_EMULATION_TAKEN=1073741824"}, []string{"no memory left", "CUDA_ERROR_OUT_OF_MEMORY"}},
		{"too much", libcuda, "none", []string{"PIPETRAIN_EMULATION_MEMORY=500000000"}, []string{"CUDA_ERROR_OUT_OF_MEMORY", "asked for 536870912 bytes", "of 500000000 are free"}},
		{"no cublasLt", libcuda, "/no/libcublasLt.so", nil, []string{"device.cublaslt", "/no/libcublasLt.so"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := child(t, "open "+c.driver+" "+c.cublasLt, c.env...)
			if (err != nil) != (c.want != nil) || strings.Contains(out, "\n") {
				t.Fatalf("%v: %s", err, out)
			}
			for _, w := range c.want {
				if !strings.Contains(out, w) {
					t.Errorf("%q is not in: %s", w, out)
				}
			}
		})
	}
}

// childUUIDs prints those of all cards.
func childUUIDs(path string) error {
	cards, err := cuda.Cards(path)
	for _, c := range cards {
		fmt.Println(c.UUID)
	}
	return err
}

// Two parts of one card (MIG) are two devices, and named as nvidia-smi names them.
func TestUUIDs(t *testing.T) {
	libcuda, _ := emulated(t, emutest.Options{Fast: true})
	const rest = "e1e2e3-e4e5-e6e7-e8e9-eaebecedee"
	for mig, want := range map[string]string{
		"0": "GPU-e0" + rest + "00\nGPU-e0" + rest + "01",
		"1": "MIG-41" + rest + "00\nMIG-41" + rest + "01",
	} {
		out, err := child(t, "uuids "+libcuda, "PIPETRAIN_EMULATION_GPUS=2", "PIPETRAIN_EMULATION_MIG="+mig)
		if err != nil || out != want {
			t.Errorf("mig %s: %v: %s, want %s", mig, err, out, want)
		}
	}
}

// childAdd performs one kernel.
func childAdd(path string) error {
	d, err := cuda.New(cuda.Options{Driver: path, CublasLt: "none"})
	if err != nil {
		return err
	}
	b, err := d.Alloc(256)
	if err != nil {
		return err
	}
	d.Add(b.As(kernels.F32), b.As(kernels.F32), b.As(kernels.F32))
	return d.Sync()
}

// A card whose memory fails is told from a mistake of the program's.
func TestBrokenMemory(t *testing.T) {
	libcuda, _ := emulated(t, emutest.Options{Fast: true})
	out, err := child(t, "add "+libcuda, "PIPETRAIN_EMULATION_ECC=1")
	for _, w := range []string{"GPU 0", "CUDA_ERROR_ECC_UNCORRECTABLE", "leave out its node", "nvidia-smi"} {
		if err == nil || !strings.Contains(out, w) || strings.Contains(out, "CUDA_LAUNCH_BLOCKING") {
			t.Errorf("%q is not in %v: %s", w, err, out)
		}
	}
	for code, want := range map[driver.Result]bool{driver.ECC: true, driver.NVLink: true, driver.IllegalAddress: true, driver.OutOfMemory: false} {
		if e := (&driver.Error{Code: code}); e.Asynchronous() != want || e.Hardware() != (code == driver.ECC || code == driver.NVLink) {
			t.Errorf("%d: asynchronous %v, hardware %v", code, e.Asynchronous(), e.Hardware())
		}
	}
}

const sharedBytes = 3 << 20

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7) + seed
	}
	return b
}

// childShare reads another process's memory, and writes to it.
func childShare(args string) error {
	f := strings.Fields(args)
	handle, err := hex.DecodeString(f[1])
	if err != nil {
		return err
	}
	d, err := cuda.New(cuda.Options{Driver: f[0], CublasLt: "none"})
	if err != nil {
		return err
	}
	far, err := d.Import(handle, sharedBytes)
	if err != nil {
		return err
	}
	own, err := d.Alloc(sharedBytes)
	if err != nil {
		return err
	}
	at := d.Move(own, far, 0)
	if err := d.Await(at); err != nil {
		return err
	}
	d.Drop(at)
	got := make([]byte, sharedBytes)
	d.CopyOut(got, own)
	if !bytes.Equal(got, pattern(sharedBytes, 1)) {
		return fmt.Errorf("what was read is not what was written")
	}
	d.CopyIn(own, pattern(sharedBytes, 2))
	at = d.Move(far, own, d.Mark())
	if err := d.Await(at); err != nil {
		return err
	}
	d.Release(far)
	return d.Close()
}

// Memory of one process, seen and written by another one.
func TestSharing(t *testing.T) {
	libcuda, _ := emulated(t, emutest.Options{Fast: true})
	d, err := cuda.New(cuda.Options{Driver: libcuda, CublasLt: "none"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	b, err := d.Alloc(sharedBytes)
	if err != nil {
		t.Fatal(err)
	}
	d.CopyIn(b, pattern(sharedBytes, 1))
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	handle, err := d.Export(b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Export(b.Slice(0, 256)); err == nil {
		t.Error("a part of an allocation was exported")
	}
	if _, err := d.Import(handle, sharedBytes); err == nil {
		t.Error("a process imported its own memory")
	}
	task := fmt.Sprintf("share %s %x", libcuda, handle)
	if out, err := child(t, task); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := make([]byte, sharedBytes)
	d.CopyOut(got, b)
	if !bytes.Equal(got, pattern(sharedBytes, 2)) {
		t.Error("what the other process wrote is not here")
	}
	// Another card, which this one does not reach.
	out, err := child(t, task, "PIPETRAIN_EMULATION_GPUS=2", "PIPETRAIN_EMULATION_PEERS=0", "CUDA_VISIBLE_DEVICES=1")
	if err == nil || !strings.Contains(out, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := child(t, task, "PIPETRAIN_EMULATION_GPUS=2", "CUDA_VISIBLE_DEVICES=1"); err == nil || !strings.Contains(out, "not what was written") {
		t.Errorf("%v: %s", err, out)
	}
}

// A failing kernel is told by the next call, with the emulation's words; after it
// nothing is performed, and the device can still be closed.
func TestFailureSticks(t *testing.T) {
	libcuda, _ := emulated(t, emutest.Options{})
	d, err := cuda.New(cuda.Options{Driver: libcuda, CublasLt: "none"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Alloc(256)
	if err != nil {
		t.Fatal(err)
	}
	wrong := kernels.Buffer{Addr: m.Addr, Len: 5000, Type: kernels.F32} // longer than it is
	d.Add(wrong, wrong, wrong)
	err = d.Sync()
	for _, w := range []string{"GPU 0: Sync", "CUDA_ERROR_ILLEGAL_ADDRESS", "add_f32", "past the start of an allocation of 256", "CUDA_LAUNCH_BLOCKING"} {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in: %v", w, err)
		}
	}
	d.Zero(m)
	if again := d.Sync(); again == nil || again.Error() != err.Error() {
		t.Errorf("the first failure did not stick: %v", again)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// The driver refuses what a mistake in the binding would do.
func TestDriverRefuses(t *testing.T) {
	libcuda, _ := emulated(t, emutest.Options{Fast: true})
	for name, do := range map[string]func(d *cuda.Device, b kernels.Buffer){
		"a copy out of bounds": func(d *cuda.Device, b kernels.Buffer) {
			b.Len += 4
			d.Zero(b)
		},
		"host memory that is not page-locked": func(d *cuda.Device, b kernels.Buffer) {
			d.Upload(b, make([]byte, b.Bytes()), 0)
		},
		"use after free": func(d *cuda.Device, b kernels.Buffer) {
			d.Free(b)
			d.Zero(b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := cuda.New(cuda.Options{Driver: libcuda, CublasLt: "none"})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			b, err := d.Alloc(1000)
			if err != nil {
				t.Fatal(err)
			}
			do(d, b)
			if err := d.Sync(); err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_INVALID_VALUE") {
				t.Errorf("Sync: %v", err)
			}
		})
	}
}
