package doctor

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// meminfo returns a line of /proc/meminfo in bytes, 0 when it is not there.
func meminfo(text, name string) int64 {
	fields := strings.Fields(field(text, name))
	if len(fields) == 0 {
		return 0
	}
	n, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return 0
	}
	return n << 10 // kB
}

// memoryLimit returns the control group's limit in bytes, 0 for none.
func memoryLimit(h *Host) int64 {
	for _, p := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		// No limit is "max" in one version and a number near 2^63 in the other.
		if n, err := strconv.ParseInt(h.read(p), 10, 64); err == nil && n < 1<<60 {
			return n
		}
	}
	return 0
}

// checkMemory compares free memory with the control group's limit and the job's.
func checkMemory(_ context.Context, h *Host) []Finding {
	text := h.read("/proc/meminfo")
	total, available := meminfo(text, "MemTotal"), meminfo(text, "MemAvailable")
	if total == 0 {
		return []Finding{warn("mount /proc", "%s cannot be read", h.path("/proc/meminfo"))}
	}
	found := fmt.Sprintf("%s, %s available", size(total), size(available))
	usable := available
	if limit := memoryLimit(h); limit > 0 {
		found += fmt.Sprintf(", control group allows %s", size(limit))
		usable = min(usable, limit)
	}
	if h.Job != nil && h.Job.Schedule.MemoryLimit > 0 {
		need := int64(h.Job.Schedule.MemoryLimit) * int64(h.ranksHere())
		if need > usable {
			return []Finding{warn("lower schedule.memory_limit, or put fewer ranks on a host; `plan` says what the ranks need", "%s; the job allows its ranks here %s together", found, size(need))}
		}
	}
	if usable < 1<<30 {
		return []Finding{warn("free some: the kernel ends a rank when memory runs out", "%s: less than 1 GiB to work with", found)}
	}
	return []Finding{ok("%s", found).with("total_bytes", total).with("available_bytes", available).with("limit_bytes", memoryLimit(h))}
}

// checkHugePages reads whether large allocations get large pages.
func checkHugePages(_ context.Context, h *Host) []Finding {
	text := h.read("/sys/kernel/mm/transparent_hugepage/enabled")
	_, rest, found := strings.Cut(text, "[")
	mode, _, closed := strings.Cut(rest, "]")
	switch {
	case !found || !closed:
		return []Finding{ok("this kernel has no transparent huge pages")}
	case mode == "never":
		return []Finding{warn("as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled", "transparent huge pages are off: large matrices cost some percent more")}
	}
	return []Finding{ok("transparent huge pages: %s", mode)}
}

// minShm is what Open MPI and MPICH put into /dev/shm for a few ranks of one
// host; containers give 64 MiB unless told otherwise.
const minShm = 16 << 20

// checkShm measures /dev/shm, which MPI libraries use (the local transport does not).
func checkShm(_ context.Context, h *Host) []Finding {
	path := h.path("/dev/shm")
	fix := "mount it, or give the container more: --shm-size=1g; the local transport does not need it"
	st, err := statfs(path)
	if err != nil {
		return []Finding{warn(fix, "%s: %v: MPI ranks of one host cannot share memory", path, err)}
	}
	f, err := os.CreateTemp(path, "pipetrain-doctor-")
	if err != nil {
		return []Finding{warn("chmod 1777 /dev/shm; the local transport does not need it", "%v: MPI ranks of one host cannot share memory", err)}
	}
	f.Close()
	os.Remove(f.Name())
	total, free := int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize
	// 8 MiB a rank: Open MPI's vader and MPICH's cells both stay below.
	need := max(minShm, int64(h.ranksHere())*(8<<20))
	if free < need {
		return []Finding{warn(fix, "%s has %s free of %s; MPI ranks of one host may want %s and die with a bus error", path, size(free), size(total), size(need))}
	}
	return []Finding{ok("/dev/shm has %s free of %s", size(free), size(total)).with("free_bytes", free).with("total_bytes", total)}
}
