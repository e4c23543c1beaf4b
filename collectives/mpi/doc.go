// Package mpi is the transport over the cluster's own MPI library, loaded when
// a rank starts: the binary carries none. Which binary interface the library
// has (Open MPI's, the MPICH family's, the standard one of MPI 5) is seen from
// its symbols; each is one table in one file.
//
// MPI is initialised with MPI_THREAD_SERIALIZED and used under one mutex by
// whichever goroutine has something to do: the caller posts, the waiter itself
// drives progress, and a background poller does while nobody waits. No call
// that can block is made with the mutex held, but for Init and Finalize.
//
// The package reads no environment: the caller passes what the launcher said.
package mpi

import "time"

// Config is what Init needs to know.
type Config struct {
	// Launch is what the environment says about this rank.
	Launch Launch
	// LibMPI is the library to load, from the job file's [transport] libmpi: a
	// path, a directory or a soname. Empty: chosen by the launcher.
	LibMPI string
	// Poll is the pause of the background poller while messages are pending.
	// 0: 100 µs; negative: no poller.
	Poll time.Duration
	// Spin is how long a waiter polls without a pause. 0: 1 ms where the node's
	// ranks have a core each, else 20 µs; negative: not at all.
	Spin time.Duration
	// Cores is the number of cores the ranks of this node share; 0: those this
	// process may use.
	Cores int
	// FinalizeLimit bounds how long Close waits for MPI_Finalize; 0: for ever.
	// MPICH 4.0 over UCX hangs there between hosts, every other time. A caller that
	// sets it has met the other ranks (a barrier) just before Close, and exits after.
	FinalizeLimit time.Duration
	// Devices says that messages may be memory of GPUs.
	Devices bool
	// FewTags has a second communicator made, as for a library without tags above collectives.MaxTag; for tests.
	FewTags bool
	// MaxMessage is the largest piece given to one MPI call, in bytes; longer
	// messages are cut. 0: 2³¹−1, the largest count of an int. Tests lower it.
	MaxMessage int
}
