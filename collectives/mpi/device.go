package mpi

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/pipetrain/pipetrain/collectives"
)

var _ collectives.DeviceMemory = (*Transport)(nil)

// Memory of a device has no head, since the processor cannot read its first bytes:
// it travels whole, as a body does, under tags that no body has.
const (
	deviceTag = 1 << 23
	bodyTags  = deviceTag - 1
)

// DeviceAware asks the library: MPIX_Query_cuda_support is Open MPI's and MVAPICH's,
// MPIX_GPU_query_support MPICH's.
func (t *Transport) DeviceAware() (bool, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f, err := purego.Dlsym(t.lib.dl, "MPIX_Query_cuda_support"); err == nil && f != 0 {
		r, _, _ := purego.SyscallN(f)
		return int32(r) == 1, fmt.Sprintf("MPIX_Query_cuda_support of %s says %d", t.lib.version, int32(r))
	}
	if f, err := purego.Dlsym(t.lib.dl, "MPIX_GPU_query_support"); err == nil && f != 0 {
		const cuda = 0 // MPIX_GPU_SUPPORT_CUDA
		var yes int32
		r, _, _ := purego.SyscallN(f, cuda, uintptr(unsafe.Pointer(&yes)))
		why := fmt.Sprintf("MPIX_GPU_query_support of %s says %d", t.lib.version, yes)
		// Cray's library is able to and yet does so only when told.
		if v, ok := os.LookupEnv("MPICH_GPU_SUPPORT_ENABLED"); ok && v == "0" {
			return false, why + ", but MPICH_GPU_SUPPORT_ENABLED=0"
		}
		return int32(r) == 0 && yes != 0, why
	}
	return false, t.lib.version + " has neither MPIX_Query_cuda_support nor MPIX_GPU_query_support"
}

// SendDevice sends memory of a device; see collectives.DeviceMemory.
func (t *Transport) SendDevice(to, tag int, addr uintptr, bytes int64) collectives.Request {
	return t.post(true, true, to, tag, at(addr, bytes))
}

// RecvDevice receives into memory of a device; see collectives.DeviceMemory.
func (t *Transport) RecvDevice(from, tag int, addr uintptr, bytes int64) collectives.Request {
	return t.post(false, true, from, tag, at(addr, bytes))
}

// at is memory at an address, to be handed on and never looked at.
func at(addr uintptr, bytes int64) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), bytes)
}

// startDevice gives a message of device memory to MPI.
func (t *Transport) startDevice(x *transfer) {
	role := roleDevice
	if x.send {
		role = roleSendBody
	}
	if len(x.buf) == 0 {
		t.start(x, role, nil, t.bodyTag|deviceTag|x.tag, t.bodyComm)
		return
	}
	for from := 0; from < len(x.buf); from += t.limit {
		if !t.start(x, role, x.buf[from:min(from+t.limit, len(x.buf))], t.bodyTag|deviceTag|x.tag, t.bodyComm) {
			return
		}
	}
}
