package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/pipetrain/pipetrain/doctor"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cuda"
	"github.com/pipetrain/pipetrain/kernels/cuda/cublaslt"
	"github.com/pipetrain/pipetrain/kernels/cuda/nvtx"
	"github.com/pipetrain/pipetrain/launcher"
)

// gpuOf chooses a rank's card among those that it sees: by its number on the host. A
// rank that sees one card has been given it.
func gpuOf(w launcher.World, count int) int {
	if w.LocalRank == launcher.Unknown || count < 1 {
		return 0
	}
	return w.LocalRank % count
}

// wantsGPU says whether the job's ranks compute on GPUs here: "auto" takes them where
// each rank of the host has one.
func wantsGPU(spec *jobs.Spec, w launcher.World) bool {
	if spec.Device.Kind != "auto" {
		return spec.Device.Kind == "cuda"
	}
	cards, err := cuda.Cards(spec.Device.LibCUDA)
	if err != nil || len(cards) == 0 || w.LocalSize > len(cards) && !spec.Device.Share {
		return false
	}
	return cards[gpuOf(w, len(cards))].Usable() == nil
}

// openGPU opens the rank's card.
func openGPU(spec *jobs.Spec, w launcher.World) (kernels.Device, error) {
	cards, err := cuda.Cards(spec.Device.LibCUDA)
	if err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	o := cuda.Options{Driver: spec.Device.LibCUDA, GPU: gpuOf(w, len(cards)), TF32: spec.Train.Precision == "tf32"}
	if spec.Device.CublasLt != "auto" {
		o.CublasLt = spec.Device.CublasLt
	}
	d, err := cuda.New(o)
	if err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	return d, nil
}

// checkGPUs refuses, before anything starts, a host whose GPUs no rank could use.
func checkGPUs(spec *jobs.Spec, w launcher.World) error {
	cards, err := cuda.Cards(spec.Device.LibCUDA)
	if err == nil && len(cards) == 0 {
		err = fmt.Errorf("cuda: no GPU here (CUDA_VISIBLE_DEVICES)")
	}
	if err == nil {
		err = cards[gpuOf(w, len(cards))].Usable()
	}
	// The embedded launcher puts all ranks on this host.
	if ranks := spec.World(); err == nil && !w.IsRank() && ranks > len(cards) && !spec.Device.Share {
		err = fmt.Errorf("cuda: the job has %d ranks and this host %d GPUs: device.share = true lets ranks use one together", ranks, len(cards))
	}
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	return nil
}

// mpsRuns says whether NVIDIA's MPS serves this user: it lets processes compute on one
// card at once, which else take turns.
func mpsRuns(env func(string) string) bool {
	dir := env("CUDA_MPS_PIPE_DIRECTORY")
	if dir == "" {
		dir = "/tmp/nvidia-mps"
	}
	_, err := os.Stat(filepath.Join(dir, "control"))
	return err == nil
}

// cardOf names a device's GPU, "" for another device.
func cardOf(d kernels.Device) string {
	if g, ok := d.(*cuda.Device); ok {
		return g.Card().UUID
	}
	return ""
}

// sharingText says how ranks share a card.
func sharingText(ranks int, card cuda.Card, mps bool) string {
	how := "they take turns: NVIDIA's MPS, which lets them compute at once, does not run (nvidia-cuda-mps-control -d)"
	if mps {
		how = "at once, through MPS"
	}
	return fmt.Sprintf("%d ranks share GPU %d (%s), %s", ranks, card.Number, card.Name, how)
}

// describeCUDA is what the doctor shows.
func describeCUDA(job *jobs.Spec) (doctor.CUDA, error) {
	spec := jobs.Default()
	if job != nil {
		spec = *job
	}
	cards, err := cuda.Cards(spec.Device.LibCUDA)
	if err != nil {
		return doctor.CUDA{}, err
	}
	c := doctor.CUDA{MPS: mpsRuns(os.Getenv)}
	for _, card := range cards {
		g := doctor.GPU{Name: card.Name, UUID: card.UUID, Capability: fmt.Sprintf("%d.%d", card.Capability/10, card.Capability%10), MemoryBytes: card.Memory, Reaches: card.Reaches}
		if err := card.Usable(); err != nil {
			g.Problem = err.Error()
		}
		c.Driver = card.Driver
		c.GPUs = append(c.GPUs, g)
	}
	lt := doctor.CUDALib{Name: "cublasLt", Needed: true, Without: "the program's own kernels multiply, several times slower"}
	if path := spec.Device.CublasLt; path != "none" {
		if path == "auto" {
			path = ""
		}
		if l, err := cublaslt.Find(path); err == nil {
			lt.Found = fmt.Sprintf("%s (%s)", l.Version(), l.Path())
		}
	}
	names := doctor.CUDALib{Name: "nvToolsExt", Without: "profilers show no names of ops"}
	if l, err := nvtx.Open(""); err == nil {
		names.Found = "(" + l.Path() + ")"
	}
	c.Libs = []doctor.CUDALib{lt, names}
	return c, nil
}
