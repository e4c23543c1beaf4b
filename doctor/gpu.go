package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const nvidia = "0x10de" // PCI vendor

var (
	driverVersion = regexp.MustCompile(`Kernel Module[^0-9]*([0-9]+(?:\.[0-9]+)+)`)
	gpuLine       = regexp.MustCompile(`(?m)^GPU (\d+): (.*) \(UUID: (\S+)\)`)
)

// pciGPUs counts NVIDIA's display and 3D controllers on the bus.
func pciGPUs(h *Host) int {
	vendors, _ := filepath.Glob(h.path("/sys/bus/pci/devices/*/vendor"))
	n := 0
	for _, v := range vendors {
		b, _ := os.ReadFile(v)
		class, _ := os.ReadFile(filepath.Join(filepath.Dir(v), "class"))
		if strings.TrimSpace(string(b)) == nvidia && strings.HasPrefix(string(class), "0x03") {
			n++
		}
	}
	return n
}

// checkGPUs looks for cards, the kernel's driver, its library and what is visible.
func checkGPUs(ctx context.Context, h *Host) []Finding {
	cards := pciGPUs(h)
	driver := ""
	if m := driverVersion.FindStringSubmatch(h.read("/proc/driver/nvidia/version")); m != nil {
		driver = m[1]
	}
	nodes, _ := filepath.Glob(h.path("/dev/nvidia[0-9]*"))
	lib := libraries(h, "libcuda.so.1")
	wanted := h.Job != nil && (h.Job.Device.Kind == "cuda" || h.Job.Slurm.GPUsPerNode > 0)
	bad := func(fix, format string, args ...any) []Finding {
		if wanted {
			return []Finding{fails(fix, format+"; the job asks for GPUs", args...)}
		}
		return []Finding{warn(fix, format, args...)}
	}
	if cards == 0 && len(nodes) == 0 && driver == "" {
		if wanted {
			return bad("set device.kind = \"cpu\", or run where the GPUs are", "no NVIDIA GPU here")
		}
		return []Finding{ok("none: jobs run on the CPU")}
	}
	if driver == "" {
		return bad("load the kernel's driver (modprobe nvidia), or install it", "%d NVIDIA GPUs on the bus, but no driver in the kernel", cards)
	}
	if len(nodes) == 0 {
		return bad("give the job or the container its GPUs (Slurm: --gpus-per-node; containers: --gpus all)", "driver %s, but no /dev/nvidia* here: the GPUs are not given to this process", driver)
	}
	if len(lib) == 0 {
		return bad("install the driver's library (Debian: libcuda1) of version "+driver, "driver %s and %d devices, but no libcuda.so.1 in the loader's folders", driver, len(nodes))
	}
	all := []Finding{ok("%d devices, driver %s, %s", len(nodes), driver, lib[0]).with("devices", nodes).with("driver", driver)}
	all = append(all, visibleGPUs(h)...)
	if smi := h.look("nvidia-smi"); smi != "" {
		out, err := h.command(ctx, 10*time.Second, nil, smi, "-L")
		if err != nil {
			return append(all, warn("see dmesg for lines of NVRM; a card that fell off the bus needs a restart", "nvidia-smi -L: %s", because(out, err)))
		}
		var names []string
		seen := map[string]string{}
		for _, m := range gpuLine.FindAllStringSubmatch(out, -1) {
			if first, twice := seen[m[3]]; twice {
				all = append(all, fails("report it to whoever runs the machine", "GPUs %s and %s have one UUID", first, m[1]))
			}
			seen[m[3]] = m[1]
			names = append(names, m[2])
		}
		slices.Sort(names)
		all[0].Found += ": " + strings.Join(slices.Compact(names), ", ")
	}
	return all
}

// visibleGPUs finds mistakes in CUDA_VISIBLE_DEVICES.
func visibleGPUs(h *Host) []Finding {
	set := false
	for _, e := range h.Env {
		set = set || strings.HasPrefix(e, "CUDA_VISIBLE_DEVICES=")
	}
	if !set {
		return nil
	}
	value := h.env("CUDA_VISIBLE_DEVICES")
	if value == "" || value == "-1" || value == "NoDevFiles" {
		return []Finding{warn("unset CUDA_VISIBLE_DEVICES, or ask Slurm for GPUs", "CUDA_VISIBLE_DEVICES=%q hides every GPU", value)}
	}
	list := strings.Split(value, ",")
	sorted := slices.Sorted(slices.Values(list))
	if len(slices.Compact(sorted)) < len(list) {
		return []Finding{fails("name each GPU once", "CUDA_VISIBLE_DEVICES=%s names a GPU twice: CUDA then shows none", value)}
	}
	if order := h.env("CUDA_DEVICE_ORDER"); order != "PCI_BUS_ID" && len(list) > 1 {
		return []Finding{ok("CUDA_VISIBLE_DEVICES=%s; CUDA_DEVICE_ORDER=%q, set PCI_BUS_ID to count as nvidia-smi does", value, order)}
	}
	return []Finding{ok("%s", fmt.Sprintf("CUDA_VISIBLE_DEVICES=%s", value))}
}
