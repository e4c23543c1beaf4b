package main

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/collectives/local"
	"github.com/pipetrain/pipetrain/collectives/mpi"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cpu"
	"github.com/pipetrain/pipetrain/kernels/cuda"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/process"
)

// backends is all that ranks may compute and communicate with.
var backends = process.Backends{
	Check: checkDevice, Device: openDevice, Scratch: scratchOps, Threads: threads, Card: cardOf,
	Sharing: func(ranks int, d kernels.Device) string {
		return sharingText(ranks, d.(*cuda.Device).Card(), mpsRuns(os.Getenv))
	},
	Segment: local.Create, Transport: openTransport,
	Same: func(err error) bool { return errors.As(err, new(*mpi.MisfitError)) },
	Call: func(err error) bool { return errors.As(err, new(*mpi.Error)) },
}

// openDevice picks the compute backend that the job asks for.
func openDevice(spec *jobs.Spec, w launcher.World) (kernels.Device, error) {
	if wantsGPU(spec, w) {
		return openGPU(spec, w)
	}
	// A rehearsal asks for scratch sizes only.
	d, err := cpu.New(cpu.Options{Threads: threads(spec, w), BLAS: spec.Device.BLAS})
	if err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	return d, nil
}

// checkDevice refuses, before anything starts, a device that no rank could open.
func checkDevice(spec *jobs.Spec, w launcher.World) error {
	if spec.Device.Kind == "cuda" {
		return checkGPUs(spec, w)
	}
	return nil
}

// threads shares the cores that this process may use with the other ranks of the host.
func threads(spec *jobs.Spec, w launcher.World) int {
	if spec.Device.Threads > 0 {
		return spec.Device.Threads
	}
	// The embedded launcher has counted the ranks and the cores.
	if n, err := strconv.Atoi(os.Getenv(launcher.EnvThreads)); err == nil && n > 0 {
		return n
	}
	return max(1, runtime.NumCPU()/max(1, w.LocalSize))
}

// openTransport joins the world. Errors of the environment carry their exit code.
func openTransport(ctx context.Context, spec *jobs.Spec, w launcher.World, segment *os.File) (collectives.Transport, error) {
	var t collectives.Transport
	var err error
	if segment != nil {
		t, err = local.Join(segment, w.Rank, w.Size, local.Options{Context: ctx, Timeout: 24 * time.Hour})
		segment.Close()
	} else if err = wireUp(w, spec.Transport.LibMPI); err == nil {
		t, err = mpi.Init(mpi.Config{LibMPI: spec.Transport.LibMPI, Launch: launchOf(w), FinalizeLimit: finalizeLimit, Devices: wantsGPU(spec, w)})
	}
	if misfit := (*mpi.MisfitError)(nil); errors.As(err, &misfit) && !errors.As(err, new(*explainedError)) {
		lib := launcher.LibraryMPICH
		if misfit.ABI == "Open MPI" {
			lib = launcher.LibraryOpenMPI
		}
		job := launcher.Job{Binary: "pipetrain", Args: os.Args[1:], Ranks: w.Size, Root: os.Getuid() == 0}
		err = &explainedError{strings.TrimSpace(launcher.Mismatch(w, lib, misfit.Path, misfit.Version, misfit.Size, job)), err}
	}
	if err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	return t, nil
}

// explainedError is an error in better words than its own.
type explainedError struct {
	text string
	err  error
}

func (e *explainedError) Error() string { return e.text }
func (e *explainedError) Unwrap() error { return e.err }

// finalizeLimit is what MPI_Finalize gets after the final barrier.
const finalizeLimit = 3 * time.Second

// launchOf tells the MPI transport what the launcher's variables said.
func launchOf(w launcher.World) mpi.Launch {
	l := mpi.Launch{Rank: w.Rank, Size: w.Size, LocalRank: w.LocalRank, LocalSize: w.LocalSize, Launcher: string(w.Launcher), Prefix: os.Getenv("OPAL_PREFIX")}
	switch {
	case w.Launcher == launcher.Alone:
		return mpi.Launch{Rank: -1, Size: -1, LocalRank: -1, LocalSize: -1}
	case w.PMI == "pmix":
		l.Family = mpi.OpenMPI
	case w.PMI != "":
		l.Family = mpi.MPICH
	}
	return l
}

// isTerminal says whether w is one.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// width returns the columns to draw in.
func width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 20 {
			return n
		}
	}
	return 100
}

func consoleLog(w io.Writer, colors bool) zerolog.Logger {
	return zerolog.New(zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly, NoColor: !colors}).Level(zerolog.InfoLevel).With().Timestamp().Logger()
}
