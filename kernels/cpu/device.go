// Package cpu is the CPU backend: matrix products through a BLAS loaded at run
// time or through the package's own kernels, everything else by kernels of its
// own, in assembly for AVX-512 and AVX2 and in plain Go for other processors.
//
// A Device owns a pool of Options.Threads − 1 workers; the calling goroutine is
// the remaining one. Every operation has ended when its call returns.
package cpu

import (
	"fmt"
	"runtime"
	"strconv"

	"github.com/pipetrain/pipetrain/kernels"
)

// Options says how a Device computes.
type Options struct {
	// Threads is the number of threads that compute, the caller's included;
	// 0 means 1. The caller decides: ranks of one host must not fight for cores.
	Threads int
	// BLAS chooses who multiplies matrices; see BLASNames. Empty means "auto".
	// A value with a slash is the path of a library that exports sgemm_.
	BLAS string
	// ISA limits the instruction set of the own kernels: "avx512bf16", "avx512", "avx2", "go".
	// Empty means the best the processor has.
	ISA string
}

// Device is the CPU as a kernels.Device.
type Device struct {
	threads int
	pool    *pool
	vec     *vecKernels
	gemm    sgemmer
	pairs   *pairKernel // of bf16 products; nil: they are widened
	packs   bool        // attention multiplies by the own kernels, with operands packed once
	mem     memory
	rotary  rotaryTable
	work    []workerScratch // one for each thread
	err     error
	closed  bool
}

var _ kernels.Device = (*Device)(nil)

// New opens the CPU. It fails when a BLAS or instruction set was asked for by
// name and is not there.
func New(o Options) (kernels.Device, error) {
	if o.Threads < 0 {
		return nil, fmt.Errorf("cpu: threads = %d: want at least 1 (0 means 1)", o.Threads)
	}
	if o.Threads == 0 {
		o.Threads = 1
	}
	vec, err := selectISA(o.ISA)
	if err != nil {
		return nil, err
	}
	d := &Device{threads: o.Threads, vec: vec, work: make([]workerScratch, o.Threads)}
	d.gemm, err = openBLAS(o.BLAS, vec)
	if err != nil {
		return nil, err
	}
	_, own := d.gemm.(ownBLAS)
	d.packs = own || vec.gemm.fast
	if own {
		d.pairs = vec.pairs
	}
	d.pool = newPool(o.Threads)
	return d, nil
}

// Name returns "cpu".
func (d *Device) Name() string { return "cpu" }

// Info describes the libraries, the instruction set and the threads in use.
func (d *Device) Info() map[string]string {
	m := map[string]string{
		"arch":    runtime.GOARCH,
		"cpu":     cpuModel(),
		"isa":     d.vec.name,
		"threads": strconv.Itoa(d.threads),
	}
	for k, v := range d.gemm.info() {
		m[k] = v
	}
	return m
}

// Sync returns the first failure of an operation since New.
func (d *Device) Sync() error { return d.err }

// Close ends the workers and returns all memory still held; buffers of the
// device must not be used any more. A second Close does nothing.
func (d *Device) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	d.pool.close()
	return d.mem.close()
}

// fail keeps the first failure of an operation for Sync.
func (d *Device) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("cpu: "+format, args...)
	}
}
