package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/collectives/local"
)

func TestWorld(t *testing.T) {
	expect(t, &Host{}, checkWorld, OK, "alone")
	h := &Host{Env: []string{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1"}}
	expect(t, h, checkWorld, OK, "rank 1 of 4")
	h.Job = job(4)
	expect(t, h, checkWorld, OK)
	h.Job = job(2)
	expect(t, h, checkWorld, Fails, "the job has 2 ranks", "start 2 ranks")
	expect(t, &Host{Env: []string{"OMPI_COMM_WORLD_RANK=7", "OMPI_COMM_WORLD_SIZE=4"}}, checkWorld, Fails)
}

// realMPI skips unless both MPIs that the tests install are here.
func realMPI(t *testing.T) {
	t.Helper()
	for _, name := range []string{"mpirun.openmpi", "mpirun.mpich"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%v: scripts/install-test-deps.sh", err)
		}
	}
}

func TestMPIFound(t *testing.T) {
	realMPI(t)
	found := expect(t, real(), checkMPILibraries, OK, "Open MPI 4.", "MPICH 4.")
	libs := found[len(found)-1].Values["libraries"].([]mpiLibrary)
	for _, family := range []string{openMPI, mpich} {
		if !slices.ContainsFunc(libs, func(l mpiLibrary) bool { return l.Family == family && l.Version != "" }) {
			t.Errorf("no %s with a version in %v", family, libs)
		}
	}
	launchers, bad := findLaunchers(t.Context(), real())
	if len(bad) > 0 || len(launchers) != 2 || launchers[0].Family == launchers[1].Family || launchers[0].Version == "" || launchers[1].Version == "" {
		t.Errorf("launchers %v, bad %v", launchers, bad)
	}
}

// TestMPIPairs starts two ranks under each real launcher. The ranks are this
// test binary: honest ones, ones that came up as worlds of one, ones that die.
func TestMPIPairs(t *testing.T) {
	realMPI(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string]struct {
		level Level
		text  string
	}{"honest": {OK, "2 ranks under"}, "singleton": {Fails, "came up as worlds of [1 1]"}, "dies": {Fails, "cannot find what I need"}} {
		h := real()
		h.MPIRank = func(string) []string { return []string{"env", rankVariable + "=" + mode, self} }
		found := expect(t, h, checkMPIPairs, want.level, want.text)
		if len(found) != 2 {
			t.Errorf("%s: %d pairs, want 2: %+v", mode, len(found), found)
		}
	}
	expect(t, real(), checkMPIPairs, OK, "by name; not tried")
	within := real()
	within.Env = append(within.Env, "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2")
	within.MPIRank = func(string) []string { t.Error("a rank started ranks"); return nil }
	expect(t, within, checkMPIPairs, OK, "not tried from within a rank")
}

// TestRealMPI has ranks of both real MPIs exchange messages, and ranks whose
// library is the other launcher's refuse.
func TestRealMPI(t *testing.T) {
	realMPI(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := real()
	h.MPIRank = func(library string) []string {
		return []string{"env", rankVariable + "=mpi", rankVariable + "_LIBRARY=" + library, self}
	}
	found := expect(t, h, checkMPIPairs, OK, "GB/s for 4 MiB")
	for _, f := range found {
		ranks, _ := f.Values["ranks"].([]Exchange)
		if len(ranks) != 2 || ranks[0].Library == "" || ranks[0].Path == "" || ranks[0].Latency <= 0 || ranks[0].Bandwidth <= 0 {
			t.Errorf("ranks %+v", ranks)
		}
	}
	libs, _ := findMPI(h)
	launchers, _ := findLaunchers(t.Context(), h)
	for _, l := range launchers {
		other := libs[slices.IndexFunc(libs, func(m mpiLibrary) bool { return m.Family != l.Family })]
		if f := tryPair(t.Context(), h, l, other); f.Level != Fails || !strings.Contains(f.Found, other.Path) || !strings.Contains(f.Found, "belong") {
			t.Errorf("%s with %s: %+v", l, other, f)
		}
	}
}

func TestAllRanks(t *testing.T) {
	expect(t, &Host{}, checkAllRanks, OK, "not a rank")
	world := local.NewWorld(2)
	rank := func(i int, size string) *Host {
		h := &Host{Env: []string{fmt.Sprint("OMPI_COMM_WORLD_RANK=", i), "OMPI_COMM_WORLD_SIZE=" + size}}
		h.Join = func() (collectives.Transport, error) { return world[i], nil }
		return h
	}
	var wg sync.WaitGroup
	for i := range world {
		wg.Go(func() { expect(t, rank(i, "2"), checkAllRanks, OK, "of 2 under openmpi", "GB/s to the next rank") })
	}
	wg.Wait()
	expect(t, rank(0, "4"), checkAllRanks, Fails, "formed a world of 2: every rank would train alone")
	world[1].Close()
	expect(t, rank(0, "2"), checkAllRanks, Fails, "rank 1")
	world[0].Close()
	h := rank(0, "2")
	h.Join = func() (collectives.Transport, error) { return nil, errors.New("libmpi is not here") }
	expect(t, h, checkAllRanks, Fails, "libmpi is not here")
}

func TestMPIBad(t *testing.T) {
	expect(t, host(t, nil), checkMPILibraries, OK, "none")
	h := host(t, nil)
	h.Job = job(2)
	h.Job.Transport.Kind = "mpi"
	expect(t, h, checkMPILibraries, Fails, "the job asks for")
	h.Job.Transport.LibMPI = "/no/libmpi.so"
	expect(t, h, checkMPILibraries, Fails, "/no/libmpi.so")
	h.Job.Transport.LibMPI = "libmpi.so.40"
	expect(t, h, checkMPILibraries, Fails, "in none of the loader's folders")

	h = host(t, map[string]string{"usr/lib/libmpi.so.40": "text", "usr/lib/libmpi.so.12": otherELF()})
	expect(t, h, checkMPILibraries, Warning, "libmpi.so.40 is no shared library", "libmpi.so.12 is for EM_PPC64")
	// A real shared library that is no MPI.
	if libc, err := filepath.EvalSymlinks("/lib/x86_64-linux-gnu/libc.so.6"); err == nil {
		if _, err := identifyMPI(libc); err == nil || !strings.Contains(err.Error(), "no MPI library") {
			t.Errorf("libc taken for an MPI: %v", err)
		}
	}

	h = host(t, map[string]string{"bin/mpirun": "echo 'mpirun (Open MPI) 5.0.3'\n", "bin/mpiexec.hydra": "echo 'Intel(R) MPI Library for Linux* OS, Version 2021.10'\n",
		"bin/mpirun.mpich": "echo broken; exit 1\n", "bin/prterun": "echo 'prterun (PRRTE) 3.0.5'\n"})
	expect(t, h, checkMPILaunchers, Warning, "Open MPI 5.0.3", "MPICH 2021.10", "mpirun.mpich --version: broken", "Open MPI 3.0.5")
	expect(t, h, checkMPIPairs, Warning, "no library that fits: every rank would be a world of its own")
	expect(t, host(t, nil), checkMPILaunchers, OK, "none in PATH")
	expect(t, host(t, nil), checkMPIPairs, OK, "no MPI here")
}

// lossy is a transport whose messages arrive with a bit turned, or not at all.
type lossy struct {
	collectives.Transport
	turn bool
}

func (l lossy) Isend(to, tag int, b []byte) collectives.Request {
	if !l.turn {
		return l.Transport.Isend(to, tag+100, b)
	}
	c := append([]byte(nil), b...)
	c[len(c)/2] ^= 4
	return l.Transport.Isend(to, tag, c)
}

func TestMessages(t *testing.T) {
	world := func(wrap func(collectives.Transport) collectives.Transport) func(int) ([]collectives.Transport, error) {
		return func(n int) ([]collectives.Transport, error) {
			w := local.NewWorld(n)
			w[n-1] = wrap(w[n-1])
			return w, nil
		}
	}
	same := func(t collectives.Transport) collectives.Transport { return t }
	expect(t, &Host{Backends: Backends{World: world(same)}}, checkMessages, OK, "send and all-reduce between 2 ranks")
	turned := func(t collectives.Transport) collectives.Transport { return lossy{t, true} }
	expect(t, &Host{Backends: Backends{World: world(turned)}}, checkMessages, Fails, "message of 8 bytes from rank 1: byte 4")
	none := func(int) ([]collectives.Transport, error) { return nil, errors.New("no memory") }
	expect(t, &Host{Backends: Backends{World: none}}, checkMessages, Fails, "no memory")
	expect(t, &Host{}, checkMessages, OK, "not checked")

	lost := local.NewWorld(2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Exercise(ctx, lossy{lost[0], false}); !errors.Is(err, context.Canceled) {
		t.Errorf("a lost message gives %v", err)
	}
	for _, r := range lost {
		r.Close()
	}
}
