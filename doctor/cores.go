package doctor

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
)

// parseList counts the members of a list such as "0-3,8,10-11"; the text comes
// from the kernel, so anything else counts as nothing.
func parseList(list string) int {
	n := 0
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.Atoi(first)
		b, errB := strconv.Atoi(last)
		if errA != nil || errB != nil || b < a {
			return 0
		}
		n += b - a + 1
	}
	return n
}

// quota returns how many cores' time the control group allows, 0 for no limit.
func quota(h *Host) float64 {
	if v2 := strings.Fields(h.read("/sys/fs/cgroup/cpu.max")); len(v2) == 2 {
		return ratio(v2[0], v2[1])
	}
	return ratio(h.read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), h.read("/sys/fs/cgroup/cpu/cpu.cfs_period_us"))
}

func ratio(a, b string) float64 {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	if errX != nil || errY != nil || x <= 0 || y <= 0 {
		return 0 // "max", "-1", or not there
	}
	return x / y
}

// ranksHere returns how many ranks the job puts on this host, 0 when unknown.
func (h *Host) ranksHere() int {
	if h.Job == nil {
		return 0
	}
	ranks := h.Job.Grid().World()
	if n := h.Job.Slurm.Nodes; n > 1 {
		ranks = (ranks + n - 1) / n
	}
	return ranks
}

// checkCores compares the cores of the machine with those this process may use and those the job wants.
func checkCores(_ context.Context, h *Host) []Finding {
	online := parseList(h.read("/sys/devices/system/cpu/online"))
	allowed := parseList(field(h.read("/proc/self/status"), "Cpus_allowed_list"))
	if online == 0 || allowed == 0 {
		return []Finding{warn("mount /proc and /sys", "the number of cores cannot be read; Go sees %d", runtime.NumCPU())}
	}
	var all []Finding
	nodes := max(1, parseList(h.read("/sys/devices/system/node/online")))
	limit := quota(h)
	usable := float64(allowed)
	if limit > 0 && limit < usable {
		usable = limit
		all = append(all, warn("ask for as many cores as there are ranks × threads, or lower device.threads", "the control group allows %.1f cores' time of %d cores: ranks are paused in mid-op", limit, allowed))
	}
	switch {
	case allowed == 1 && online > 1:
		all = append(all, warn("mpirun.openmpi: --bind-to none; srun: --cpu-bind=none or --cpus-per-task", "this process may use 1 of %d cores (affinity %s)", online, field(h.read("/proc/self/status"), "Cpus_allowed_list")))
	case allowed < online:
		all = append(all, ok("%d of %d cores, as this process is bound (affinity %s), %d NUMA nodes", allowed, online, field(h.read("/proc/self/status"), "Cpus_allowed_list"), nodes))
	default:
		all = append(all, ok("%d cores, %d NUMA nodes", online, nodes))
	}
	all[len(all)-1] = all[len(all)-1].with("online", online).with("allowed", allowed).with("numa_nodes", nodes)
	if ranks := h.ranksHere(); ranks > 0 {
		threads := max(1, h.Job.Device.Threads)
		if need := ranks * threads; float64(need) > usable {
			all = append(all, warn("fewer ranks a host, or fewer threads (device.threads); the result stays right, measured idle shares do not mean much",
				"the job wants %d ranks × %d threads on %.4g cores: ranks take turns", ranks, threads, usable))
		}
	}
	return all
}

// checkInstructions says which vector instructions the kernels can use.
func checkInstructions(_ context.Context, h *Host) []Finding {
	model := field(h.read("/proc/cpuinfo"), "model name")
	if runtime.GOARCH != "amd64" {
		return []Finding{ok("%s; kernels run in plain Go and through BLAS", runtime.GOARCH)}
	}
	flags := instructions(h)
	if len(flags) == 0 {
		return []Finding{warn("mount /proc", "%s does not name the processor's features", h.path("/proc/cpuinfo"))}
	}
	var have []string
	for _, f := range []string{"avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16"} {
		if flags[f] {
			have = append(have, f)
		}
	}
	if !assembly(flags) {
		return []Finding{warn("use a processor from 2013 or later, or give the virtual machine its host's processor model", "%s lacks AVX2 or FMA: the program's kernels run in plain Go, many times slower", model)}
	}
	return []Finding{ok("%s: %s", model, strings.Join(have, " ")).with("instructions", have)}
}

// instructions are the processor's features as Linux names them.
func instructions(h *Host) map[string]bool {
	flags := map[string]bool{}
	for f := range strings.FieldsSeq(field(h.read("/proc/cpuinfo"), "flags")) {
		flags[f] = true
	}
	return flags
}

// assembly says whether the program's own kernels run in assembly on such a processor.
func assembly(flags map[string]bool) bool { return flags["avx2"] && flags["fma"] }

// checkLoad warns when others are using the cores.
func checkLoad(_ context.Context, h *Host) []Finding {
	fields := strings.Fields(h.read("/proc/loadavg"))
	cores := parseList(h.read("/sys/devices/system/cpu/online"))
	if len(fields) < 3 || cores == 0 {
		return []Finding{warn("mount /proc", "the load cannot be read")}
	}
	load, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return []Finding{warn("mount /proc", "the load %q cannot be read", fields[0])}
	}
	text := fmt.Sprintf("%.1f processes ready to run on %d cores (last minute)", load, cores)
	if load > 0.5*float64(cores) {
		return []Finding{warn("measure when the machine is quiet; timings and idle shares include the others' work", "%s: the machine is busy", text)}
	}
	return []Finding{ok("%s", text).with("load", load)}
}
