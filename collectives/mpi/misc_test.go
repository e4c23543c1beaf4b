package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/collectives/mpi"
	"github.com/pipetrain/pipetrain/collectives/transporttest"
)

// signals checks that Go's handlers are Go's again after MPI_Init: a nil
// dereference is a panic that can be recovered, and SIGUSR1 reaches a channel.
func signals(ctx context.Context, tr collectives.Transport) error {
	got := make(chan os.Signal, 100)
	signal.Notify(got, syscall.SIGUSR1)
	for i := range 50 {
		recovered := func() (p any) {
			defer func() { p = recover() }()
			var nothing *mpi.Launch
			return nothing.Rank
		}()
		if _, ok := recovered.(error); !ok {
			return fmt.Errorf("round %d: a nil dereference gave %v, want a panic that is recovered", i, recovered)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGUSR1)
		select {
		case <-got:
		case <-ctx.Done():
			return errors.New("SIGUSR1 did not arrive")
		}
		if err := collectives.World(tr).Barrier(ctx); err != nil {
			return err
		}
	}
	return nil
}

// closing has a wait that Close ends, before MPI_Finalize.
func closing(ctx context.Context, tr collectives.Transport) error {
	if err := collectives.World(tr).Barrier(ctx); err != nil {
		return err
	}
	got := make(chan error, 2)
	for i, c := range []context.Context{ctx, collectives.Patient(ctx)} {
		r := tr.Irecv((tr.Rank()+1)%tr.Size(), 7+i, make([]byte, 5000))
		go func() { got <- r.Wait(c) }()
	}
	time.Sleep(10 * time.Millisecond)
	if err := tr.Close(); err != nil {
		return err
	}
	for range 2 {
		if err := <-got; !errors.Is(err, collectives.ErrClosed) {
			return fmt.Errorf("a wait ended with %v, want ErrClosed", err)
		}
	}
	if err := tr.Isend(0, 1, nil).Wait(ctx); !errors.Is(err, collectives.ErrClosed) {
		return fmt.Errorf("a send after Close: %v", err)
	}
	return nil
}

// failing ends rank 1 in a mode; the others wait for it.
func failing(ctx context.Context, tr collectives.Transport, mode string) error {
	if err := collectives.World(tr).Barrier(ctx); err != nil {
		return err
	}
	if tr.Rank() == 1 {
		switch mode {
		case "abort":
			tr.Abort(42)
		case "exit":
			os.Exit(7)
		case "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	err := tr.Irecv(1, 1, make([]byte, 10)).Wait(ctx)
	return fmt.Errorf("a receive from a dead rank: %w", err)
}

// wrongCall gets an error out of MPI itself.
func wrongCall(ctx context.Context, tr collectives.Transport) error {
	_, err := mpi.Init(mpi.Config{})
	if err == nil || !strings.Contains(err.Error(), "initialised once") {
		return fmt.Errorf("a second Init: %v", err)
	}
	return nil
}

func TestSignalsAreGosAgain(t *testing.T) {
	for _, l := range launchers(t) {
		transporttest.Check(t, []*transporttest.Process{l.start(t, 2, "signals")})
	}
}

func TestClosingEndsWaits(t *testing.T) {
	for _, l := range launchers(t) {
		transporttest.Check(t, []*transporttest.Process{l.start(t, 2, "closing"), l.start(t, 2, "error")})
	}
}

// TestAbortAndDeath: Abort gives its code under every launcher; after an exit or a
// kill, launchers mix in the codes of the ranks they killed.
func TestAbortAndDeath(t *testing.T) {
	for _, l := range launchers(t) {
		for mode, want := range map[string]string{"abort": "exit status 42", "exit": "", "kill": ""} {
			began := time.Now()
			p := l.start(t, 4, mode)
			if p.Err == nil || (want != "" && p.Err.Error() != want) {
				t.Errorf("%s, %s: ended with %v, want %s\n%s", l.name, mode, p.Err, want, p.Output.String())
			}
			if d := time.Since(began); d > 30*time.Second {
				t.Errorf("%s, %s: the world took %v to end", l.name, mode, d)
			}
		}
	}
}

// TestSilentSingleton gives each launcher the other's library.
func TestSilentSingleton(t *testing.T) {
	ls := launchers(t)
	if len(ls) < 2 {
		t.Skip("needs both Open MPI and MPICH: install openmpi-bin and mpich")
	}
	lib := map[string]string{"openmpi": "libmpich.so.12", "mpich": "libmpi.so.40"}
	for _, l := range ls {
		p := l.start(t, 3, "info", "MPITEST_LIB="+lib[l.name])
		out := p.Output.String()
		for _, want := range []string{"started 3 ranks, but MPI made a world of 1", lib[l.name], "[transport] libmpi"} {
			if p.Err == nil || !strings.Contains(out, want) {
				t.Errorf("%s: %v, no %q in\n%s", l.name, p.Err, want, out)
			}
		}
	}
}

func TestNoLibrary(t *testing.T) {
	dir := t.TempDir()
	text := dir + "/libmpi.so.40"
	if err := os.WriteFile(text, []byte("no library"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		lib  string
		want []string
	}{
		{dir + "/nowhere/libmpi.so", []string{"Tried:", "nowhere/libmpi.so", "correct [transport] libmpi"}},
		{dir, []string{dir + "/libmpi.so", dir + "/lib/libmpi.so"}},
		{text, []string{text, "correct [transport] libmpi"}},
		{"libc.so.6", []string{"libc.so.6: no MPI library"}},
	} {
		_, err := mpi.Init(mpi.Config{LibMPI: c.lib})
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v\nwant %q", c.lib, err, want)
			}
		}
	}
}
