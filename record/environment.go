package record

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Environment is environment.json: what is needed to judge or repeat a run.
type Environment struct {
	Version  string    `json:"version"`
	Commit   string    `json:"commit"`
	Modified bool      `json:"modified"` // built from a tree with changes not committed
	Go       string    `json:"go"`
	OS       string    `json:"os"`
	Arch     string    `json:"arch"`
	Started  time.Time `json:"started"`
	Command  []string  `json:"command"`
	// Nodes are the distinct hosts in the order of their first rank.
	Nodes []string `json:"nodes"`
	// Hosts is one entry a rank, by world rank.
	Hosts []Host `json:"hosts"`
	// Device and Transport are what rank 0's say of themselves: libraries, versions, paths.
	Device    map[string]string `json:"device"`
	Transport map[string]string `json:"transport"`
	Variables map[string]string `json:"variables"`
}

// Host describes where a rank runs. Each rank sends its own to rank 0.
type Host struct {
	Rank         int    `json:"rank"`
	Name         string `json:"name"`
	PID          int    `json:"pid"`
	Distribution string `json:"distribution"`
	Kernel       string `json:"kernel"`
	CPU          string `json:"cpu"`
	// Cores is how many this process may use; CoresHost how many the host has.
	Cores     int `json:"cores"`
	CoresHost int `json:"cores_host"`
	// Affinity lists the CPUs that this process may run on, as the kernel writes them: "0-3,8".
	Affinity    string `json:"affinity"`
	MemoryBytes int64  `json:"memory_bytes"`
	// MemoryLimitBytes is the control group's limit, 0 when it sets none.
	MemoryLimitBytes int64 `json:"memory_limit_bytes,omitempty"`
}

// ProbeHost describes the host of this process. What cannot be found stays empty.
func ProbeHost(rank int) Host {
	h := Host{Rank: rank, PID: os.Getpid(), Cores: runtime.NumCPU()}
	h.Name, _ = os.Hostname()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		h.MemoryBytes = int64(info.Totalram) * int64(info.Unit)
	}
	h.CPU, h.CoresHost = cpuInfo("/proc/cpuinfo")
	if h.CPU == "" {
		h.CPU = runtime.GOARCH // arm's cpuinfo has numbers but no name
	}
	h.Affinity = strings.TrimSpace(field("/proc/self/status", "Cpus_allowed_list", ":"))
	h.Distribution = field("/etc/os-release", "PRETTY_NAME", "=")
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		b, err := os.ReadFile(path)
		if n, e := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && e == nil && n < h.MemoryBytes {
			h.MemoryLimitBytes = n
		}
	}
	return h
}

// cpuInfo returns the processor's name and how many of them are online.
func cpuInfo(path string) (model string, n int) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		k, v, _ := strings.Cut(s.Text(), ":")
		switch strings.TrimSpace(k) {
		case "processor":
			n++
		case "model name":
			model = strings.TrimSpace(v)
		}
	}
	return model, n
}

// field returns the value of the first line "key SEP value".
func field(path, key, sep string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		k, v, ok := strings.Cut(line, sep)
		if ok && strings.TrimSpace(k) == key {
			return strings.Trim(strings.TrimSpace(v), `"`)
		}
	}
	return ""
}

// BuildInfo returns the version and commit of this binary: version as the
// linker set it, or else as the Go tool recorded it.
func BuildInfo(version string) (v, commit string, modified bool) {
	v = version
	info, ok := debug.ReadBuildInfo()
	if ok {
		if v == "" {
			v = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				commit = s.Value
			case "vcs.modified":
				modified = s.Value == "true"
			}
		}
	}
	if v == "" {
		v = "(devel)"
	}
	return v, commit, modified
}

// NewEnvironment fills in what this process knows. version is the linker's (may
// be empty), environ as from os.Environ, hosts by rank.
func NewEnvironment(version string, command, environ []string, hosts []Host) Environment {
	e := Environment{Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Started: time.Now(),
		Command: redactArgs(command), Hosts: hosts, Variables: Variables(environ)}
	e.Version, e.Commit, e.Modified = BuildInfo(version)
	seen := map[string]bool{}
	for _, h := range hosts {
		if !seen[h.Name] {
			seen[h.Name] = true
			e.Nodes = append(e.Nodes, h.Name)
		}
	}
	return e
}

// WriteEnvironment writes environment.json.
func (f *Folder) WriteEnvironment(e Environment) error {
	return f.writeJSON(EnvironmentName, e)
}

// shown are the variables that change how a run behaves; prefixes end in '_'.
var shown = []string{
	"SLURM_", "SBATCH_", "OMPI_MCA_", "MPICH_", "HYDRA_", "I_MPI_", "UCX_", "FI_", "PMI_", "NCCL_", "CUDA_",
	"OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "ONEDNN_", "DNNL_", "PIPETRAIN_",
	"GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG", "LD_LIBRARY_PATH", "LD_PRELOAD",
	"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
}

// secret are parts of names whose values are kept out, though their prefix is shown:
// SLURM_JWT and the fabric keys of MPI launchers are credentials.
var secret = []string{"TOKEN", "SECRET", "PASSW", "KEY", "CREDENTIAL", "COOKIE", "AUTH", "JWT", "SESSION",
	"PRECONDITION_TRANSPORTS", "_URI", "_URL", "PROXY"}

// Variables selects from environ ("NAME=value") what matters to a run and is no secret.
func Variables(environ []string) map[string]string {
	out := map[string]string{}
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		if ok && isShown(name) && !isSecret(name) && !strings.Contains(value, "://") {
			out[name] = value
		}
	}
	return out
}

func isShown(name string) bool {
	for _, s := range shown {
		if name == s || strings.HasSuffix(s, "_") && strings.HasPrefix(name, s) {
			return true
		}
	}
	return false
}

func isSecret(name string) bool {
	up := strings.ToUpper(name)
	for _, s := range secret {
		if strings.Contains(up, s) {
			return true
		}
	}
	return false
}

// redactArgs hides the value of an argument whose key reads like a secret.
func redactArgs(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		if k, _, ok := strings.Cut(a, "="); ok && (isSecret(k) || strings.HasSuffix(k, "slurm.environment")) { // which may hold any secret
			a = k + "=…"
		}
		out[i] = a
	}
	return out
}

// ReadEnvironment reads an environment.json.
func ReadEnvironment(path string) (Environment, error) {
	var e Environment
	b, err := os.ReadFile(path)
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return e, fmt.Errorf("%s: %w", path, err)
	}
	return e, nil
}
