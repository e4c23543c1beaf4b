package doctor

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/jobs"
)

// job returns a job of one replica with this many stages.
func job(stages int) *jobs.Spec {
	s := jobs.Default()
	s.Parallel.Stages, s.Parallel.Replicas, s.Parallel.Tensor = stages, 1, 1
	return &s
}

func TestRealSystem(t *testing.T) {
	h := real()
	expect(t, h, checkProgram, OK, "go1.")
	expect(t, h, checkKernel, OK, "Linux ")
	expect(t, h, checkGlibc, OK, "glibc 2.")
	for _, check := range []func(context.Context, *Host) []Finding{checkCores, checkInstructions, checkLoad, checkMemory, checkHugePages, checkLimits, checkEnvironment, checkHostName, checkShm} {
		found := check(t.Context(), h)
		for _, f := range found {
			if f.Level == Fails || strings.Contains(f.Found, "cannot be read") {
				t.Errorf("on the machine that runs the tests: %v: %s", f.Level, f.Found)
			}
		}
	}
}

func TestKernel(t *testing.T) {
	expect(t, host(t, nil), checkKernel, Warning, "cannot be read", "mount /proc")
	expect(t, host(t, map[string]string{"proc/sys/kernel/osrelease": "3.10.0-1160.el7.x86_64\n"}), checkKernel, Warning, "no memfd")
	expect(t, host(t, map[string]string{"proc/sys/kernel/osrelease": "5.14.0-1\n", "etc/os-release": "NAME=x\nPRETTY_NAME=\"Red Hat 9\"\n"}), checkKernel, OK, "Linux 5.14.0-1, Red Hat 9")
}

func TestGlibc(t *testing.T) {
	expect(t, host(t, nil), checkGlibc, Fails, "loader", "install glibc")
	expect(t, host(t, map[string]string{"lib/ld-musl-x86_64.so.1": ""}), checkGlibc, Fails, "musl")
}

func TestCores(t *testing.T) {
	files := func(online, allowed, max string) map[string]string {
		return map[string]string{
			"sys/devices/system/cpu/online": online, "sys/devices/system/node/online": "0-1\n",
			"proc/self/status": "Name:\tx\nCpus_allowed_list:\t" + allowed + "\n", "sys/fs/cgroup/cpu.max": max,
		}
	}
	expect(t, host(t, nil), checkCores, Warning, "cannot be read")
	expect(t, host(t, files("0-7\n", "0-7", "max 100000\n")), checkCores, OK, "8 cores, 2 NUMA nodes")
	expect(t, host(t, files("0-7\n", "0-1,4", "max 100000\n")), checkCores, OK, "3 of 8 cores")
	expect(t, host(t, files("0-7\n", "3", "max 100000\n")), checkCores, Warning, "1 of 8 cores", "--bind-to none")
	expect(t, host(t, files("0-7\n", "0-7", "150000 100000\n")), checkCores, Warning, "allows 1.5 cores' time")
	h := host(t, files("0-7\n", "0-7", "max 100000\n"))
	h.Job = job(4)
	h.Job.Device.Threads = 2
	expect(t, h, checkCores, OK)
	h.Job.Device.Threads = 3
	expect(t, h, checkCores, Warning, "4 ranks × 3 threads on 8 cores")
	h.Job.Slurm.Nodes = 2
	expect(t, h, checkCores, OK)
	for list, want := range map[string]int{"0": 1, "0-3,8,10-11": 7, "": 0, "x": 0, "3-1": 0, "0-": 0} {
		if got := parseList(list); got != want {
			t.Errorf("list %q has %d members, want %d", list, got, want)
		}
	}
}

func TestInstructionsAndLoad(t *testing.T) {
	cpu := func(flags string) *Host {
		return host(t, map[string]string{"proc/cpuinfo": "model name\t: Some CPU\nflags\t\t: fpu " + flags + "\n"})
	}
	expect(t, cpu("avx2 fma avx512f"), checkInstructions, OK, "Some CPU: avx2 fma avx512f")
	expect(t, cpu("avx2"), checkInstructions, Warning, "lacks AVX2 or FMA")
	expect(t, host(t, nil), checkInstructions, Warning, "does not name")
	load := func(avg string) *Host {
		return host(t, map[string]string{"proc/loadavg": avg, "sys/devices/system/cpu/online": "0-3"})
	}
	expect(t, load("0.40 0.1 0.1 1/100 7\n"), checkLoad, OK, "0.4 processes")
	expect(t, load("3.00 0.1 0.1 1/100 7\n"), checkLoad, Warning, "busy")
	expect(t, load("x y z\n"), checkLoad, Warning, "cannot be read")
}

func TestMemory(t *testing.T) {
	info := "MemTotal:  16777216 kB\nMemAvailable:  8388608 kB\n"
	expect(t, host(t, nil), checkMemory, Warning, "cannot be read")
	expect(t, host(t, map[string]string{"proc/meminfo": info, "sys/fs/cgroup/memory.max": "max\n"}), checkMemory, OK, "16.0 GiB, 8.0 GiB available")
	h := host(t, map[string]string{"proc/meminfo": info, "sys/fs/cgroup/memory.max": "4294967296\n"})
	expect(t, h, checkMemory, OK, "allows 4.0 GiB")
	h.Job = job(4)
	h.Job.Schedule.MemoryLimit = 2 << 30
	expect(t, h, checkMemory, Warning, "8.0 GiB together")
	expect(t, host(t, map[string]string{"proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 1000 kB\n"}), checkMemory, Warning, "less than 1 GiB")
	for mode, level := range map[string]Level{"always madvise [never]": Warning, "always [madvise] never": OK, "": OK} {
		expect(t, host(t, map[string]string{"sys/kernel/mm/transparent_hugepage/enabled": mode}), checkHugePages, level)
	}
}

func TestShm(t *testing.T) {
	expect(t, host(t, nil), checkShm, Warning, "no such file", "--shm-size")
	h := host(t, map[string]string{"dev/shm/x": ""})
	expect(t, h, checkShm, OK, "free of")
	if os.Geteuid() != 0 {
		if err := os.Chmod(filepath.Join(h.Root, "dev/shm"), 0o555); err != nil {
			t.Fatal(err)
		}
		expect(t, h, checkShm, Warning, "permission denied")
	}
	h.Job = job(1 << 30)
	expect(t, h, checkShm, Warning, "bus error")
}

func TestLimits(t *testing.T) {
	text := "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max open files            256                  4096                 files     \n" +
		"Max stack size            8388608              unlimited            bytes     \n" +
		"Max address space         unlimited            unlimited            bytes     \n" +
		"Max locked memory         65536                65536                bytes     \n"
	h := host(t, map[string]string{"proc/self/limits": text})
	found := expect(t, h, checkLimits, Warning, "max open files is 256 files", "ulimit -n")
	if len(found) != 1 {
		t.Errorf("%d findings, want 1: locked memory matters with fast networks only", len(found))
	}
	if err := os.MkdirAll(filepath.Join(h.Root, "sys/class/infiniband/mlx5_0"), 0o755); err != nil {
		t.Fatal(err)
	}
	expect(t, h, checkLimits, Warning, "max locked memory is 65536 bytes")
	expect(t, host(t, nil), checkLimits, Warning, "cannot be read")
}

func TestEnvironment(t *testing.T) {
	h := &Host{Env: []string{"A=b", "GOGC=off", "LD_PRELOAD=/x.so"}}
	expect(t, h, checkEnvironment, Warning, "GOGC=off", "LD_PRELOAD=/x.so")
	expect(t, &Host{Env: []string{"BIG=" + strings.Repeat("x", 120<<10)}}, checkEnvironment, Warning, "the largest BIG")
	expect(t, &Host{Env: []string{"A=b"}}, checkEnvironment, OK, "1 variables")
	if got := (&Host{Env: []string{"A=1", "A=2", "AB=3"}}).env("A"); got != "2" {
		t.Errorf("A is %q, want the last setting", got)
	}
}

func TestHostName(t *testing.T) {
	expect(t, host(t, map[string]string{"proc/sys/kernel/hostname": "no-such-host.invalid\n"}), checkHostName, Warning, "no-such-host.invalid does not resolve", "/etc/hosts")
}

func TestMemfd(t *testing.T) {
	expect(t, real(), checkMemfd, OK, "64.0 MiB")
	refused := func(string, int) (int, error) { return -1, unix.EPERM }
	if f := tryMemfd(refused, 1<<20); f.Level != Fails || !strings.Contains(f.Found, "operation not permitted") {
		t.Errorf("a refused memfd gives %+v", f)
	}
	// A descriptor that cannot be given a size.
	pipe := func(string, int) (int, error) {
		var p [2]int
		if err := unix.Pipe(p[:]); err != nil {
			return 0, err
		}
		unix.Close(p[1])
		return p[0], nil
	}
	if f := tryMemfd(pipe, 1<<20); f.Level != Fails {
		t.Errorf("a pipe in the memfd's place gives %+v", f)
	}
	if f := tryMemfd(unix.MemfdCreate, -1); f.Level != Fails {
		t.Errorf("a negative size gives %+v", f)
	}
}

func TestDirectCopy(t *testing.T) {
	found := checkDirectCopy(t.Context(), real())
	if len(found) != 1 || found[0].Level == Fails {
		t.Errorf("findings %+v", found)
	}
	if os.Geteuid() == 0 && found[0].Level != OK {
		t.Errorf("root cannot read a child's memory: %+v", found)
	}
	expect(t, host(t, map[string]string{"proc/sys/kernel/yama/ptrace_scope": "3\n"}), checkDirectCopy, Warning)
	if err := readPeer(1 << 30); err == nil {
		t.Error("the memory of a process that does not exist was read")
	}
	maps := "1000-2000 r--p 00000000 fe:00 7 /other\n3000-4000 rw-p 00001000 fe:00 8 /usr/bin/x\n5000-6000 r--p 00000000 fe:00 8 /usr/bin/x\n"
	if at, err := mappingOf(strings.NewReader(maps), "/usr/bin/x"); err != nil || at != 0x5000 {
		t.Errorf("mapping at %#x, %v", at, err)
	}
	if _, err := mappingOf(strings.NewReader(maps), "/no"); err == nil {
		t.Error("a mapping of /no was found")
	}
}

func TestSignals(t *testing.T) {
	expect(t, real(), checkSignals, OK, "USR1 and USR2 arrive")
	lost := func(syscall.Signal) error { return nil }
	if f := trySignals(t.Context(), lost, 20*time.Millisecond); f.Level != Fails || !strings.Contains(f.Found, "did not arrive") {
		t.Errorf("a lost signal gives %+v", f)
	}
	refused := func(syscall.Signal) error { return errors.New("refused") }
	if f := trySignals(t.Context(), refused, time.Second); f.Level != Fails || !strings.Contains(f.Found, "refused") {
		t.Errorf("a refused signal gives %+v", f)
	}
	// The check takes its own channel away again and leaves others' alone.
	mine := make(chan os.Signal, 4)
	signal.Notify(mine, syscall.SIGUSR1)
	defer signal.Stop(mine)
	expect(t, real(), checkSignals, OK)
	if len(mine) != 1 {
		t.Errorf("%d signals on another channel, want 1", len(mine))
	}
}
