package driver

// openHandle passes the handle by value: a structure of 64 bytes lies on the stack,
// behind the place where arguments beyond the six in registers lie.
//
//go:uintptrescapes
func (l *Library) openHandle(p uintptr, handle []byte) Result {
	w := words8(handle)
	return syscall(l.fn.ipcOpenMemHandle, p, ipcLazyEnablePeerAccess, 0, 0, 0, 0, w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7])
}
