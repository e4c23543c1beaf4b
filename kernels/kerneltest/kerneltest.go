// Package kerneltest is the conformance suite of kernels.Device: every operation
// against naive references in float64, and backward operations against finite
// differences of the forward references too.
//
// Each case runs on several devices and buffer offsets. Outputs start as NaN, so
// that an element left out or an output read shows; buffers lie between guard
// bands, so that a write outside shows; inputs and the gaps of strided rows must
// come back untouched; and all runs of a case must agree bit by bit.
package kerneltest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
)

// Maker opens a device that computes with so many threads. A device without
// threads of its own ignores the number.
type Maker func(threads int) (kernels.Device, error)

// Case is one property of a device.
type Case struct {
	Name string
	// ThreadsMayDiffer allows other bits with another number of threads: Gemm only.
	ThreadsMayDiffer bool
	// Type is what activations and weights are in this case.
	Type kernels.DType
	// bothTypes says that the case is meant for F32 and for BF16.
	bothTypes bool
	run       func(c *check)
}

// Cases returns all cases, sorted by operation; those of bf16 have a name that ends in "/bf16".
func Cases() []Case {
	var all []Case
	for _, c := range slices.Concat(memoryCases, gemmCases, embeddingCases, normCases, layerNormCases, biasCases, rotaryCases,
		attentionCases, swigluCases, geluCases, lossCases, elementwiseCases, convertCases, optimizerCases) {
		all = append(all, c)
		if c.bothTypes {
			c.Name, c.Type = c.Name+"/bf16", kernels.BF16
			all = append(all, c)
		}
	}
	return all
}

// Run tests the device that newDevice opens, one subtest a case.
func Run(t *testing.T, newDevice Maker) {
	t.Helper()
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Check(newDevice); err != nil {
				t.Error(err)
			}
		})
	}
}

// settings are the ways in which a case is run: all must give the same bits.
var settings = []struct{ threads, offset int }{{1, 0}, {1, 0}, {1, 1}, {2, 0}, {3, 7}}

// Check runs the case and returns what is wrong, nil when nothing is.
func (c Case) Check(newDevice Maker) error {
	results := map[int][]result{} // by threads; 0 when threads must not matter
	for i, s := range settings {
		d, err := newDevice(s.threads)
		if err != nil {
			return fmt.Errorf("open with %d threads: %w", s.threads, err)
		}
		k := &check{d: d, t: c.Type, r: rand.New(rand.NewPCG(7, 11)), offset: s.offset, name: c.Name,
			pick: rand.New(rand.NewPCG(13, 17)), again: i > 0}
		k.protect(func() { c.run(k) })
		if err := d.Close(); err != nil && !k.expectFailure {
			k.failf("Close: %v", err)
		}
		if len(k.errs) > 0 {
			return fmt.Errorf("%s with %d threads, buffers %d elements off alignment: %w", c.Name, s.threads, s.offset, errors.Join(k.errs...))
		}
		key := 0
		if c.ThreadsMayDiffer {
			key = s.threads
			if a, ok := d.(kernels.GemmByAlignment); ok && s.offset != 0 && a.GemmByAlignment() {
				key = -s.threads
			}
		}
		if first, ok := results[key]; !ok {
			results[key] = k.results
		} else if err := sameBits(first, k.results); err != nil {
			return fmt.Errorf("%s differs between two runs (now %d threads, buffers %d elements off alignment): %w", c.Name, s.threads, s.offset, err)
		}
	}
	return nil
}

func sameBits(a, b []result) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d results, then %d", len(a), len(b))
	}
	for i := range a {
		for j := range a[i].bits {
			if a[i].bits[j] != b[i].bits[j] {
				at := j - j%a[i].size
				return fmt.Errorf("%s: element %d: bytes %x, then %x", a[i].what, at/a[i].size, a[i].bits[at:at+a[i].size], b[i].bits[at:at+a[i].size])
			}
		}
	}
	return nil
}
