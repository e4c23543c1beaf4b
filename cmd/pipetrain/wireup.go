package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pipetrain/pipetrain/collectives/mpi"
	"github.com/pipetrain/pipetrain/launcher"
)

// wireUp refuses, before MPI_Init, what srun started in a way that the library cannot join:
// Open MPI then ends the process within MPI_Init, with words about itself, and others
// start a world a rank. A pair that fits, or is not known, gives nil.
func wireUp(w launcher.World, libmpi string) error {
	if w.Launcher != launcher.Srun {
		return nil
	}
	// Sites may have wire-ups of their own.
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); w.PMI == "" && (strings.HasPrefix(name, "PMI") || strings.HasPrefix(name, "PALS_")) {
			return nil
		}
	}
	lib, mpiName := launcher.LibraryOpenMPI, "Open MPI"
	// Names of files are telling: libmpi.so.40 is Open MPI's, libmpich.so.12 and libmpi.so.12 are of MPICH's kin.
	base := filepath.Base(libmpi)
	switch {
	case strings.HasPrefix(base, "libmpich") || strings.HasPrefix(base, "libmpi.so.12"):
		lib, mpiName = launcher.LibraryMPICH, "MPICH"
	case strings.HasPrefix(base, "libmpi.so.40"):
	case w.PMI != "":
		return nil
	}
	if w.PMI == "pmix" || w.PMI == "pmi2" && lib == launcher.LibraryMPICH {
		return nil
	}
	if libmpi == "" {
		mpiName = "an MPI library"
	}
	seen := "without a wire-up of MPI's (--mpi=none)"
	if w.PMI != "" {
		seen = "with --mpi=" + w.PMI
	}
	line := launcher.Shell(launcher.Command(launcher.Srun, lib, launcher.Job{Binary: "pipetrain", Args: os.Args[1:], Ranks: w.Size}))
	text := fmt.Sprintf("srun started %d ranks %s, which %s cannot join\nRun instead:\n  %s", w.Size, seen, mpiName, line)
	if libmpi == "" {
		text += "\nor, where the library is MPICH or of its kin, with --mpi=pmi2"
	}
	return &explainedError{text, &mpi.MisfitError{Launch: launchOf(w), Path: libmpi, ABI: mpiName, Size: 1, Hint: line}}
}
