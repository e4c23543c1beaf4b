//go:build !amd64

package driver

import "unsafe"

// openHandle passes the handle by value: on arm64 a structure above 16 bytes goes
// by the address of a copy.
//
//go:uintptrescapes
func (l *Library) openHandle(p uintptr, handle []byte) Result {
	w := words8(handle)
	return syscall(l.fn.ipcOpenMemHandle, p, uintptr(unsafe.Pointer(&w)), ipcLazyEnablePeerAccess)
}
