package doctor

import (
	"context"
	"fmt"
	"strings"
)

// CUDA is what the program finds of NVIDIA's by its own binding.
type CUDA struct {
	Driver string    `json:"driver"` // the CUDA that the driver is for: "12.4"
	GPUs   []GPU     `json:"gpus"`
	Libs   []CUDALib `json:"libraries"`
	MPS    bool      `json:"mps"` // processes may compute on one card at once
}

// GPU is one card that this process sees.
type GPU struct {
	Name        string `json:"name"`
	UUID        string `json:"uuid"`
	Capability  string `json:"capability"`
	MemoryBytes int64  `json:"memory_bytes"`
	Problem     string `json:"problem,omitempty"` // why the kernels cannot run on it
	Reaches     []int  `json:"reaches,omitempty"` // other cards whose memory it addresses
}

// CUDALib is a library that is used where it is there.
type CUDALib struct {
	Name    string `json:"name"`
	Found   string `json:"found,omitempty"`   // version and path; empty: not here
	Without string `json:"without,omitempty"` // what is different without it
	Needed  bool   `json:"needed,omitempty"`  // a job is much slower without it
}

// checkCUDA shows the GPUs as the program's own binding of the driver sees them.
func checkCUDA(_ context.Context, h *Host) []Finding {
	if h.CUDA == nil {
		return []Finding{ok("not checked: no binding was handed in")}
	}
	wanted := h.Job != nil && h.Job.Device.Kind == "cuda"
	c, err := h.CUDA(h.Job)
	if err != nil {
		why := strings.TrimPrefix(err.Error(), "cuda: ")
		if wanted {
			return []Finding{fails("fix what the message says, or set device.kind = \"cpu\"", "%s", why)}
		}
		return []Finding{ok("not usable: %s", why)}
	}
	var all []Finding
	for i, g := range c.GPUs {
		text := fmt.Sprintf("GPU %d: %s, %.1f GiB, compute capability %s, driver for CUDA %s", i, g.Name, float64(g.MemoryBytes)/(1<<30), g.Capability, c.Driver)
		f := ok("%s", text)
		if len(c.GPUs) > 1 {
			f.Found += fmt.Sprintf(", reaches the memory of %d of %d others", len(g.Reaches), len(c.GPUs)-1)
		}
		if g.Problem != "" {
			f = warn("leave it out with CUDA_VISIBLE_DEVICES", "%s: %s", text, strings.TrimPrefix(g.Problem, "cuda: "))
		}
		all = append(all, f.with("gpu", g))
	}
	for _, l := range c.Libs {
		switch {
		case l.Found != "":
			all = append(all, ok("%s %s", l.Name, l.Found))
		case l.Needed && wanted:
			all = append(all, warn("install it, or set device.cublaslt to where it lies", "no %s here: %s", l.Name, l.Without))
		default:
			all = append(all, ok("no %s here: %s", l.Name, l.Without))
		}
	}
	mps := "MPS does not run: ranks that share a GPU take turns"
	if c.MPS {
		mps = "MPS runs: ranks that share a GPU compute at once"
	}
	return append(all, ok("%s", mps).with("mps", c.MPS))
}
