package doctor

import (
	"errors"
	"testing"

	"github.com/pipetrain/pipetrain/jobs"
)

func TestCUDA(t *testing.T) {
	expect(t, &Host{}, checkCUDA, OK, "not checked")
	h := host(t, nil)
	h.CUDA = func(*jobs.Spec) (CUDA, error) { return CUDA{}, errors.New("cuda: no NVIDIA driver here") }
	expect(t, h, checkCUDA, OK, "not usable: no NVIDIA driver")
	h.Job = job(1)
	h.Job.Device.Kind = "cuda"
	expect(t, h, checkCUDA, Fails, "no NVIDIA driver here", "device.kind")
	c := CUDA{Driver: "12.4", GPUs: []GPU{{Name: "NVIDIA H200", MemoryBytes: 141 << 30, Capability: "9.0"}},
		Libs: []CUDALib{{Name: "cublasLt", Found: "12.4.5 (libcublasLt.so.12)", Needed: true}, {Name: "nvToolsExt", Without: "profilers show no names"}}}
	h.CUDA = func(*jobs.Spec) (CUDA, error) { return c, nil }
	expect(t, h, checkCUDA, OK, "GPU 0: NVIDIA H200, 141.0 GiB", "driver for CUDA 12.4", "cublasLt 12.4.5", "no nvToolsExt here", "MPS does not run")
	c.Libs[0] = CUDALib{Name: "cublasLt", Needed: true, Without: "slower"}
	expect(t, h, checkCUDA, Warning, "no cublasLt here: slower", "device.cublaslt")
	c.Libs, c.MPS = nil, true
	c.GPUs[0].Problem = "cuda: too old"
	expect(t, h, checkCUDA, Warning, "too old", "CUDA_VISIBLE_DEVICES", "MPS runs")
}
