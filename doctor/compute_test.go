package doctor

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cpu"
)

// otherELF is a library's header for another processor.
func otherELF() string {
	b := make([]byte, 64)
	copy(b, "\x7fELF\x02\x01\x01")
	binary.LittleEndian.PutUint16(b[16:], uint16(elf.ET_DYN))
	binary.LittleEndian.PutUint16(b[18:], uint16(elf.EM_PPC64))
	binary.LittleEndian.PutUint32(b[20:], 1)
	binary.LittleEndian.PutUint16(b[52:], 64)
	return string(b)
}

func TestBLAS(t *testing.T) {
	// Only a processor without assembly of ours needs a library.
	expect(t, host(t, nil), checkBLAS, Warning, "no BLAS library", "apt-get install")
	expect(t, host(t, map[string]string{"proc/cpuinfo": "flags\t\t: fpu avx avx2\n"}), checkBLAS, Warning, "10 to 20 times slower")
	expect(t, host(t, map[string]string{"proc/cpuinfo": "flags\t\t: fpu fma avx2\n"}), checkBLAS, OK, "none needed")
	h := host(t, map[string]string{
		"opt/lib/libopenblas.so.0": "not a library", "opt/lib/libdnnl.so.2": otherELF(), "opt/lib/libopenblas.so": "INPUT(-lx)",
		"etc/ld.so.conf": "# all\ninclude /etc/ld.so.conf.d/*.conf\n", "etc/ld.so.conf.d/a.conf": "/opt/lib # here\n",
	})
	expect(t, h, checkBLAS, Warning, "libopenblas.so.0 is no shared library", "libdnnl.so.2 is for EM_PPC64")
	h.Job = job(1)
	h.Job.Device.BLAS = "openblas"
	expect(t, h, checkBLAS, Fails, `device.blas = "openblas" is not here`)
	h.Job.Device.BLAS = "/no/such.so"
	expect(t, h, checkBLAS, Fails, "/no/such.so")
	// An ld.so.conf that includes itself ends.
	if dirs := libraryFolders(host(t, map[string]string{"etc/ld.so.conf": "include ld.so.conf\n/opt/x\n"})); !strings.HasSuffix(dirs[0], "/opt/x") {
		t.Errorf("folders %v", dirs)
	}
}

// TestBLASFound looks at the libraries that the tests install, in the real folders.
func TestBLASFound(t *testing.T) {
	folder := "/usr/lib/x86_64-linux-gnu"
	if m, _ := filepath.Glob(folder + "/libopenblas.so.0"); len(m) == 0 {
		t.Skip("OpenBLAS is not installed: scripts/install-test-deps.sh")
	}
	found := expect(t, real(), checkBLAS, OK, "OpenBLAS 0.", "libopenblas.so.0")
	paths := found[0].Values["paths"].(map[string]string)
	for name, path := range paths {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s at %s: %v", name, path, err)
		}
	}
	h := real()
	h.Job = job(1)
	h.Job.Device.BLAS = paths["OpenBLAS"]
	expect(t, h, checkBLAS, OK)
}

// wrong is a device that multiplies wrongly, loses data, or fails.
type wrong struct {
	kernels.Device
	gemm, copy bool
	sync       error
}

func (w wrong) Gemm(ta, tb bool, m, n, k int, alpha float32, a kernels.Buffer, lda int, b kernels.Buffer, ldb int, beta float32, c kernels.Buffer, ldc int) {
	if w.gemm {
		ta = !ta
	}
	w.Device.Gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

func (w wrong) Copy(dst, src kernels.Buffer) {
	if !w.copy {
		w.Device.Copy(dst, src)
	}
}

func (w wrong) Sync() error { return errors.Join(w.sync, w.Device.Sync()) }

func TestDevice(t *testing.T) {
	open := func(change func(*wrong)) func(string) (kernels.Device, error) {
		return func(kind string) (kernels.Device, error) {
			d, err := cpu.New(cpu.Options{Threads: 1})
			w := wrong{Device: d}
			change(&w)
			return w, err
		}
	}
	h := &Host{Backends: Backends{Device: open(func(*wrong) {})}}
	found := expect(t, h, checkDevice, OK, "products right", "GFLOP/s")
	if rate, measured := found[0].Values["flop_per_second"].(float64); !measured || rate < 1e6 {
		t.Errorf("rate %v", found[0].Values["flop_per_second"])
	}
	h.Device = open(func(w *wrong) { w.gemm = true })
	expect(t, h, checkDevice, Fails, "of a product is")
	h.Device = open(func(w *wrong) { w.copy = true })
	expect(t, h, checkDevice, Fails, "came back different")
	h.Device = open(func(w *wrong) { w.sync = errors.New("illegal address") })
	expect(t, h, checkDevice, Fails, "illegal address")
	h.Device = func(kind string) (kernels.Device, error) { return nil, errors.New("no " + kind) }
	h.Job = job(1)
	h.Job.Device.Kind = "cuda"
	expect(t, h, checkDevice, Fails, "no cuda")
	expect(t, &Host{}, checkDevice, OK, "not checked")
}

func TestGPUs(t *testing.T) {
	expect(t, host(t, nil), checkGPUs, OK, "none")
	h := host(t, nil)
	h.Job = job(1)
	h.Job.Device.Kind = "cuda"
	expect(t, h, checkGPUs, Fails, "no NVIDIA GPU here; the job asks")

	files := map[string]string{"sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n", "sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
		"sys/bus/pci/devices/0000:01:00.1/vendor": "0x10de\n", "sys/bus/pci/devices/0000:01:00.1/class": "0x040300\n"}
	expect(t, host(t, files), checkGPUs, Warning, "1 NVIDIA GPUs on the bus, but no driver", "modprobe")
	files["proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar\n"
	expect(t, host(t, files), checkGPUs, Warning, "driver 550.54.15, but no /dev/nvidia*")
	files["dev/nvidia0"] = ""
	expect(t, host(t, files), checkGPUs, Warning, "no libcuda.so.1", "libcuda1")
	files["usr/lib/libcuda.so.1"] = ""
	expect(t, host(t, files), checkGPUs, OK, "1 devices, driver 550.54.15")
	files["bin/nvidia-smi"] = "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'; echo 'GPU 1: NVIDIA H200 (UUID: GPU-1)'\n"
	expect(t, host(t, files), checkGPUs, Fails, ": NVIDIA H200", "GPUs 0 and 1 have one UUID")
	files["bin/nvidia-smi"] = "echo 'Unable to determine the device handle: GPU is lost'; exit 15\n"
	expect(t, host(t, files), checkGPUs, Warning, "GPU is lost")
	delete(files, "bin/nvidia-smi")
	for value, level := range map[string]Level{"": Warning, "-1": Warning, "0,0": Fails, "0,1": OK, "3": OK} {
		h := host(t, files)
		h.Env = append(h.Env, "CUDA_VISIBLE_DEVICES="+value)
		expect(t, h, checkGPUs, level, "CUDA_VISIBLE_DEVICES")
	}
}
