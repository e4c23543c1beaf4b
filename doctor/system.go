package doctor

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// hostName returns the host's own name, "unknown" when it has none.
func hostName(h *Host) string {
	if name := h.read("/proc/sys/kernel/hostname"); name != "" {
		return name
	}
	return "unknown"
}

// checkProgram says what this binary was built with and for.
func checkProgram(_ context.Context, h *Host) []Finding {
	f := ok("built with %s for %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if runtime.GOOS != "linux" {
		f = warn("run it on Linux; elsewhere only plan and schedule are of use", "%s", f.Found)
	}
	return []Finding{f}
}

func checkKernel(_ context.Context, h *Host) []Finding {
	release := h.read("/proc/sys/kernel/osrelease")
	if release == "" {
		return []Finding{warn("mount /proc; cores, memory and limits are read from it", "%s cannot be read", h.path("/proc/sys/kernel/osrelease"))}
	}
	name := strings.Trim(distribution(h.read("/etc/os-release")), `"`)
	var major, minor int
	fmt.Sscanf(release, "%d.%d", &major, &minor)
	// memfd_create is 3.17, process_vm_readv 3.2; what clusters still run is 3.10.
	if major > 0 && (major < 3 || major == 3 && minor < 17) {
		return []Finding{warn("use transport.kind = \"mpi\", or a newer kernel", "Linux %s (%s) has no memfd: the local transport cannot run", release, name)}
	}
	return []Finding{ok("Linux %s, %s", release, name)}
}

func distribution(release string) string {
	for line := range strings.Lines(release) {
		if v, found := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); found {
			return v
		}
	}
	return "unknown distribution"
}

var glibcVersion = regexp.MustCompile(`GNU C Library [^\n]*version ([0-9]+\.[0-9]+)`)

// checkGlibc finds the C library: libraries bound at run time need its loader.
func checkGlibc(_ context.Context, h *Host) []Finding {
	loader := map[string]string{"amd64": "/lib64/ld-linux-x86-64.so.2", "arm64": "/lib/ld-linux-aarch64.so.1"}[runtime.GOARCH]
	if loader == "" {
		return []Finding{warn("", "no check for %s", runtime.GOARCH)}
	}
	if _, err := os.Stat(h.path(loader)); err != nil {
		if musl, _ := filepath.Glob(h.path("/lib/ld-musl-*.so.1")); len(musl) > 0 {
			return []Finding{fails("run it on a glibc system (Debian, Ubuntu, Red Hat, SUSE …) or in a container of one", "this system has musl (%s): BLAS and MPI cannot be loaded", musl[0])}
		}
		return []Finding{fails("install glibc (Debian: libc6)", "glibc's loader %s is missing: BLAS and MPI cannot be loaded", h.path(loader))}
	}
	for _, path := range libraries(h, "libc.so.6") {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if m := glibcVersion.FindSubmatch(b); m != nil {
			return []Finding{ok("glibc %s (%s)", m[1], path)}
		}
	}
	return []Finding{ok("glibc's loader is there (%s), its version unknown", h.path(loader))}
}

// checkHostName resolves the host's own name: MPICH's launcher and Slurm start by doing that.
func checkHostName(ctx context.Context, h *Host) []Finding {
	name := hostName(h)
	addresses, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return []Finding{warn(fmt.Sprintf("add a line such as %q to /etc/hosts", "127.0.1.1 "+name), "the host's own name %s does not resolve (%v): launchers wait or fail", name, err)}
	}
	return []Finding{ok("%s is %s", name, strings.Join(addresses, ", "))}
}

// limit is a line of /proc/self/limits that matters, with the soft limit below
// which something breaks.
type limit struct {
	name string // as in the file
	unit string
	want int64
	why  string
	set  string // the shell's way to raise it
}

var limitsWanted = []limit{
	{"Max open files", "files", 1024, "every rank costs its launcher descriptors, and libraries open many", "ulimit -n 65536"},
	{"Max processes", "processes", 1024, "Go, BLAS and MPI start threads, which count", "ulimit -u 65536"},
	{"Max stack size", "bytes", 1 << 20, "C libraries run on stacks of this size", "ulimit -s 8192"},
	{"Max locked memory", "bytes", 8 << 20, "fast networks (InfiniBand) need memory that stays in place", "ulimit -l unlimited (root, /etc/security/limits.conf; Slurm: PropagateResourceLimitsExcept=MEMLOCK)"},
	{"Max address space", "bytes", 64 << 30, "memory is reserved as one arena, ahead of its use", "ulimit -v unlimited"},
	{"Max file size", "bytes", 1 << 30, "checkpoints are files of this size and more", "ulimit -f unlimited"},
}

// checkLimits compares the process's limits with what ranks need.
func checkLimits(_ context.Context, h *Host) []Finding {
	text := h.read("/proc/self/limits")
	if text == "" {
		return []Finding{warn("mount /proc", "%s cannot be read", h.path("/proc/self/limits"))}
	}
	_, fast := os.Stat(h.path("/sys/class/infiniband"))
	var bad []Finding
	values := map[string]any{}
	for _, l := range limitsWanted {
		soft, found := parseLimit(text, l.name)
		if !found {
			continue
		}
		values[strings.ReplaceAll(strings.ToLower(l.name), " ", "_")] = soft
		if soft < 0 || soft >= l.want || l.name == "Max locked memory" && fast != nil {
			continue
		}
		bad = append(bad, warn(l.set, "%s is %d %s, less than %d: %s", strings.ToLower(l.name), soft, l.unit, l.want, l.why))
	}
	if len(bad) > 0 {
		return bad
	}
	f := ok("open files, processes, stack, address space and file size suffice")
	f.Values = values
	return []Finding{f}
}

// parseLimit returns a soft limit from /proc/self/limits, -1 for unlimited.
func parseLimit(text, name string) (int64, bool) {
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(line, name)
		if !found {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			return 0, false
		}
		if fields[0] == "unlimited" {
			return -1, true
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		return n, err == nil
	}
	return 0, false
}

// maxEnvironment is the size from which starting programs gets in danger: the
// kernel gives arguments and environment together a quarter of the stack limit,
// one string 128 KiB, and launchers copy all of it to every rank.
const maxEnvironment = 1 << 20

// checkEnvironment looks at size and at variables that change how libraries behave.
func checkEnvironment(_ context.Context, h *Host) []Finding {
	total, largest, name := 0, 0, ""
	for _, e := range h.Env {
		total += len(e) + 1
		if len(e) > largest {
			largest = len(e)
			name, _, _ = strings.Cut(e, "=")
		}
	}
	var all []Finding
	if total > maxEnvironment || largest > 100<<10 {
		all = append(all, warn("unset what is not needed (exported shell functions of a module system are the usual cause)",
			"%d variables of %s, the largest %s with %s: starting ranks may fail with \"argument list too long\"", len(h.Env), size(int64(total)), name, size(int64(largest))))
	}
	for _, c := range []struct{ name, bad, why, fix string }{
		{"LD_PRELOAD", "*", "a library is loaded into every rank", "unset LD_PRELOAD unless it is meant"},
		{"CUDA_LAUNCH_BLOCKING", "1", "every kernel is waited for", "unset CUDA_LAUNCH_BLOCKING"},
		{"GODEBUG", "asyncpreemptoff=1", "the runtime cannot stop a busy goroutine", "unset GODEBUG"},
		{"GOGC", "off", "the Go heap only grows", "unset GOGC"},
		{"MKL_DEBUG_CPU_TYPE", "*", "MKL's choice of instructions is overridden", "unset MKL_DEBUG_CPU_TYPE"},
	} {
		if v := h.env(c.name); v != "" && (c.bad == "*" || strings.Contains(v, c.bad)) {
			all = append(all, warn(c.fix, "%s=%s: %s", c.name, v, c.why))
		}
	}
	if len(all) == 0 {
		all = append(all, ok("%d variables, %s", len(h.Env), size(int64(total))).with("bytes", total))
	}
	return all
}

// statfs returns the file system's numbers of a path of the host.
func statfs(path string) (st unix.Statfs_t, err error) {
	for {
		if err = unix.Statfs(path, &st); err != unix.EINTR {
			return st, err
		}
	}
}
