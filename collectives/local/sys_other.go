//go:build !linux

package local

import (
	"errors"
	"os"
	"runtime"
	"time"
)

var errLinux = errors.New("local: ranks as processes need Linux (memfd, futex); on this system only NewWorld works")

func futexSleep(*uint32, uint32, time.Duration) { panic(errLinux) }
func futexWake(*uint32)                         { panic(errLinux) }
func yield()                                    { runtime.Gosched() }
func readMemory(int, []byte, uint64) error      { return errLinux }
func allowReading()                             {}
func processStart(int) (uint64, bool)           { return 0, true }

// Create makes the segment of a world of this many ranks; it needs Linux.
func Create(int) (*os.File, error)               { return nil, errLinux }
func mapSegment(*os.File, int) (*segment, error) { return nil, errLinux }
func (s *segment) unmap()                        { s.mem = nil }
