package driver

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// HandleBytes is the length of a memory handle (CUipcMemHandle).
const HandleBytes = 64

const ipcLazyEnablePeerAccess = 1

// CanAccess says whether d reaches the memory of other, by NVLink or PCI Express.
func (d Device) CanAccess(other Device) (bool, error) {
	var yes int32
	err := d.l.check("cuDeviceCanAccessPeer", syscall(d.l.fn.deviceCanAccessPeer, uintptr(unsafe.Pointer(&yes)), uintptr(d.handle), uintptr(other.handle)))
	return yes != 0, err
}

// MemHandle names the allocation that begins at p for other processes of this host.
func (c *Context) MemHandle(p Addr) ([]byte, error) {
	h := make([]byte, HandleBytes)
	err := c.l.check("cuIpcGetMemHandle", syscall(c.l.fn.ipcGetMemHandle, uintptr(unsafe.Pointer(&h[0])), uintptr(p)))
	return h, err
}

// OpenMemHandle maps an allocation of another process; of another card too, where
// the cards reach each other.
func (c *Context) OpenMemHandle(handle []byte) (Addr, error) {
	if len(handle) != HandleBytes {
		return 0, fmt.Errorf("a memory handle has %d bytes, this one %d", HandleBytes, len(handle))
	}
	var p uintptr
	r := c.l.openHandle(uintptr(unsafe.Pointer(&p)), handle)
	return Addr(p), c.l.check("cuIpcOpenMemHandle_v2", r)
}

// CloseMemHandle unmaps what OpenMemHandle mapped.
func (c *Context) CloseMemHandle(p Addr) error {
	return c.l.check("cuIpcCloseMemHandle", syscall(c.l.fn.ipcCloseMemHandle, uintptr(p)))
}

// words8 are a handle's bytes as eight machine words.
func words8(handle []byte) (w [8]uintptr) {
	for i := range w {
		w[i] = uintptr(binary.NativeEndian.Uint64(handle[8*i:]))
	}
	return w
}
