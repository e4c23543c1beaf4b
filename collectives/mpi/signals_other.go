//go:build !linux

package mpi

import (
	"runtime"
	"time"
)

type sigactions struct{}

func saveSignals() *sigactions       { return nil }
func (s *sigactions) restore() []int { return nil }
func nap(d int64)                    { time.Sleep(time.Duration(d)) }
func sharpen()                       {}
func yield()                         { runtime.Gosched() }
