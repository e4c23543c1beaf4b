package mpi_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/collectives/mpi"
	"github.com/pipetrain/pipetrain/collectives/transporttest"
	world "github.com/pipetrain/pipetrain/launcher"
)

// TestMain turns the test binary into a rank when a test started it as one.
func TestMain(m *testing.M) {
	mode := os.Getenv("MPITEST_MODE")
	if mode == "" {
		os.Exit(m.Run())
	}
	transporttest.DieWithParent()
	if err := rank(mode); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// launchOf is what the program does too.
func launchOf(w world.World) mpi.Launch {
	l := mpi.Launch{Launcher: string(w.Launcher), Rank: w.Rank, Size: w.Size, LocalRank: w.LocalRank, LocalSize: w.LocalSize}
	if l.Family = mpi.MPICH; w.PMI == "pmix" {
		l.Family = mpi.OpenMPI
	}
	return l
}

func rank(mode string) error {
	cfg := mpi.Config{Launch: launchOf(world.Detect(os.Environ())), LibMPI: os.Getenv("MPITEST_LIB")}
	if mode == "bench without poller" {
		cfg.Poll = -1
	}
	if mode == "cut" {
		cfg.MaxMessage, cfg.FewTags = 10_000, true
	}
	began := time.Now()
	tr, err := mpi.Init(cfg)
	if err != nil {
		return err
	}
	ready := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	switch mode {
	case "suite", "cut":
		maxBytes := 4 << 20
		if tr.Size() == 2 && mode == "suite" {
			maxBytes = 64 << 20
		}
		err = transporttest.RunRank(tr, transporttest.Options{MaxBytes: maxBytes, Timeout: 2 * time.Minute, Only: os.Getenv("MPITEST_ONLY")})
	case "soak":
		err = soak(ctx, tr)
	case "bench", "bench without poller":
		err = benchRank(ctx, tr)
	case "info":
		err = info(ctx, tr)
	case "signals":
		err = signals(ctx, tr)
	case "closing":
		err = closing(ctx, tr)
	case "abort", "exit", "kill":
		err = failing(ctx, tr, mode)
	case "error":
		err = wrongCall(ctx, tr)
	}
	if err != nil {
		fmt.Println(err)
		tr.Abort(1)
	}
	worked := time.Now()
	err = tr.Close()
	if time.Since(began) > 2*time.Second && mode == "soak" {
		fmt.Printf("rank %d: init %v, work %v, close %v\n", tr.Rank(), ready.Sub(began), worked.Sub(ready), time.Since(worked))
	}
	return err
}

// launcher is an mpirun of this machine.
type launcher struct {
	name, path string
	args       []string
}

func launchers(t testing.TB) []launcher {
	var out []launcher
	for _, l := range []launcher{
		{name: "openmpi", path: "mpirun.openmpi", args: []string{"--bind-to", "none", "--oversubscribe"}},
		{name: "mpich", path: "mpirun.mpich"},
	} {
		if p, err := exec.LookPath(l.path); err == nil {
			l.path = p
			out = append(out, l)
		} else {
			t.Logf("%s is absent: nothing tried under it (install openmpi-bin, mpich)", l.path)
		}
	}
	if len(out) == 0 {
		t.Skip("no mpirun.openmpi and no mpirun.mpich on this machine: install openmpi-bin and mpich to run this")
	}
	return out
}

// start runs n ranks of this test binary in a mode.
func (l launcher) start(t testing.TB, n int, mode string, env ...string) *transporttest.Process {
	self := transporttest.Self(t, append(env, "MPITEST_MODE="+mode)...)
	return l.startProgram(t, n, self.Path, self.Env)
}

func (l launcher) startProgram(t testing.TB, n int, program string, env []string) *transporttest.Process {
	c := exec.Command(l.path, append(append([]string{"-n", fmt.Sprint(n)}, l.args...), program)...)
	c.Env = append(env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_btl_base_warn_component_unused=0")
	c.WaitDelay = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	return transporttest.Processes(ctx, []*exec.Cmd{c})[0]
}

func TestSuite(t *testing.T) {
	for _, l := range launchers(t) {
		for _, c := range []struct {
			n    int
			mode string
		}{{1, "suite"}, {2, "suite"}, {3, "suite"}, {4, "suite"}, {8, "suite"}, {2, "cut"}} {
			t.Run(fmt.Sprintf("%s/%s/%d", l.name, c.mode, c.n), func(t *testing.T) {
				transporttest.Check(t, []*transporttest.Process{l.start(t, c.n, c.mode)})
			})
		}
	}
}

// info prints what was found, for TestInfo.
func info(ctx context.Context, tr collectives.Transport) error {
	all, err := collectives.World(tr).Gather(ctx, 0, []byte(fmt.Sprint(tr.Info())))
	if err != nil || tr.Rank() != 0 {
		return err
	}
	for r, b := range all {
		fmt.Printf("rank %d: %s\n", r, b)
	}
	return nil
}

func TestInfo(t *testing.T) {
	for _, l := range launchers(t) {
		p := l.start(t, 3, "info")
		transporttest.Check(t, []*transporttest.Process{p})
		want := map[string]string{"openmpi": "abi:Open MPI", "mpich": "abi:MPICH"}[l.name]
		out := p.Output.String()
		for _, w := range []string{want, "rank 2:", "local_rank:2", "local_size:3", "threads:serialized"} {
			if !strings.Contains(out, w) && !(strings.HasPrefix(w, "threads") && strings.Contains(out, "threads:multiple")) {
				t.Errorf("%s: no %q in\n%s", l.name, w, out)
			}
		}
		t.Logf("%s", out)
	}
}

// TestOneHost: a world on one host chooses what spares it the search for networks, says so, and leaves
// alone what the user chose.
func TestOneHost(t *testing.T) {
	type choice struct{ user, set, unset string }
	for _, l := range launchers(t) {
		for _, c := range map[string][]choice{
			"openmpi": {{"", "OMPI_MCA_pml=ob1 HWLOC_PLUGINS_PATH=/nonexistent", ""}, {"OMPI_MCA_btl=self,vader", "HWLOC_PLUGINS_PATH", "OMPI_MCA_pml"}},
			"mpich": {{"", "UCX_TLS=sm,self MPIR_CVAR_NOLOCAL=1 HWLOC_PLUGINS_PATH=/nonexistent", ""},
				{"UCX_TLS=posix,self", "MPIR_CVAR_NOLOCAL", "UCX_TLS"}, {"MPIR_CVAR_NO_LOCAL=0", "UCX_TLS", "MPIR_CVAR_NOLOCAL"},
				{"HWLOC_COMPONENTS=linux,stop", "MPIR_CVAR_NOLOCAL", "HWLOC_PLUGINS_PATH"}},
		}[l.name] {
			var env []string
			if c.user != "" {
				env = append(env, c.user)
			}
			p := l.start(t, 2, "info", env...)
			transporttest.Check(t, []*transporttest.Process{p})
			out := p.Output.String()
			if l.name == "mpich" && !strings.Contains(out, "one_host") {
				t.Skip("this MPICH is not built over UCX") // nothing is known about others
			}
			if !strings.Contains(out, c.set) || (c.unset != "" && strings.Contains(out, c.unset+"=")) {
				t.Errorf("%s with %q: want %q set, %q not, in\n%s", l.name, c.user, c.set, c.unset, out)
			}
		}
	}
}
