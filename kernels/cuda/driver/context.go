package driver

import (
	"runtime"
	"unsafe"
)

// Context is a device's primary context, which all libraries of a process share.
type Context struct {
	l      *Library
	device Device
	handle uintptr
}

// PrimaryContext retains the device's primary context; Release gives it back.
func (d Device) PrimaryContext() (*Context, error) {
	c := &Context{l: d.l, device: d}
	var h uintptr
	err := d.l.check("cuDevicePrimaryCtxRetain", syscall(d.l.fn.primaryCtxRetain, uintptr(unsafe.Pointer(&h)), uintptr(d.handle)))
	c.handle = h
	return c, err
}

// Enter binds the goroutine to its OS thread and makes the context current
// there. It costs one call into the driver (0.1 µs) and no change of threads, so
// any goroutine may use the context. Leave ends it; the two nest.
func (c *Context) Enter() error {
	runtime.LockOSThread()
	return c.l.check("cuCtxSetCurrent", syscall(c.l.fn.ctxSetCurrent, c.handle))
}

// Leave undoes Enter. The context stays current for the thread, which harms
// nobody: whoever uses CUDA there sets its own first.
func (c *Context) Leave() { runtime.UnlockOSThread() }

// Synchronize waits for everything that was started in the context.
func (c *Context) Synchronize() error {
	return c.l.check("cuCtxSynchronize", syscall(c.l.fn.ctxSynchronize))
}

// Release gives the context back.
func (c *Context) Release() error {
	return c.l.check("cuDevicePrimaryCtxRelease_v2", syscall(c.l.fn.primaryCtxRelease, uintptr(c.device.handle)))
}
