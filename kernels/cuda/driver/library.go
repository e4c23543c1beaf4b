// Package driver binds the CUDA driver's library, libcuda.so.1, at run time: no
// toolkit, no headers and no cgo when building, and a binary that starts where no
// driver is installed.
//
// Methods are named after the C functions. They return *Error with the call, the
// driver's name of the error and its text. A context is current for an OS thread,
// not for a goroutine: bracket calls that need one with Context.Enter and Leave.
package driver

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// DefaultPath is the soname that NVIDIA's driver installs.
const DefaultPath = "libcuda.so.1"

// ErrNoLibrary says that the driver's library could not be loaded.
var ErrNoLibrary = errors.New("the NVIDIA driver's library could not be loaded")

// Library is a loaded and initialised driver.
type Library struct {
	path    string
	version int
	fn      functions
}

// functions are the addresses of the C functions, with the version that they
// have had since CUDA 11: cuda.h hides the suffixes behind macros.
type functions struct {
	init, driverGetVersion, getErrorName, getErrorString                                                uintptr
	deviceGetCount, deviceGet, deviceGetName, deviceGetUUID, deviceGetAttribute                         uintptr
	deviceGetUUIDv2, deviceTotalMem, primaryCtxRetain, primaryCtxRelease, ctxSetCurrent, ctxSynchronize uintptr
	memGetInfo, memAlloc, memFree, memHostAlloc, memFreeHost                                            uintptr
	memcpyHtoDAsync, memcpyDtoHAsync, memcpyDtoDAsync, memsetD8Async                                    uintptr
	streamCreate, streamDestroy, streamSynchronize, streamWaitEvent                                     uintptr
	eventCreate, eventDestroy, eventRecord, eventSynchronize, eventElapsedTime                          uintptr
	moduleLoadDataEx, moduleUnload, moduleGetFunction, funcSetAttribute                                 uintptr
	funcGetAttribute, launchKernel                                                                      uintptr
	ctxGetStreamPriorityRange                                                                           uintptr
	deviceCanAccessPeer, ipcGetMemHandle, ipcOpenMemHandle, ipcCloseMemHandle                           uintptr
	streamBeginCapture, streamEndCapture, graphInstantiate, graphLaunch                                 uintptr
	graphExecDestroy, graphDestroy                                                                      uintptr
	memPoolCreate, memPoolDestroy, memPoolSetAttribute, memPoolGetAttribute                             uintptr
	memPoolTrimTo, memAllocFromPoolAsync, memFreeAsync                                                  uintptr
}

func (f *functions) table() map[string]*uintptr {
	return map[string]*uintptr{
		"cuInit": &f.init, "cuDriverGetVersion": &f.driverGetVersion,
		"cuGetErrorName": &f.getErrorName, "cuGetErrorString": &f.getErrorString,
		"cuDeviceGetCount": &f.deviceGetCount, "cuDeviceGet": &f.deviceGet, "cuDeviceGetName": &f.deviceGetName,
		"cuDeviceGetUuid": &f.deviceGetUUID, "cuDeviceGetUuid_v2": &f.deviceGetUUIDv2, "cuDeviceGetAttribute": &f.deviceGetAttribute,
		"cuDeviceTotalMem_v2": &f.deviceTotalMem, "cuDevicePrimaryCtxRetain": &f.primaryCtxRetain,
		"cuDevicePrimaryCtxRelease_v2": &f.primaryCtxRelease, "cuCtxSetCurrent": &f.ctxSetCurrent,
		"cuCtxSynchronize": &f.ctxSynchronize,
		"cuMemGetInfo_v2":  &f.memGetInfo, "cuMemAlloc_v2": &f.memAlloc, "cuMemFree_v2": &f.memFree,
		"cuMemHostAlloc": &f.memHostAlloc, "cuMemFreeHost": &f.memFreeHost,
		"cuMemcpyHtoDAsync_v2": &f.memcpyHtoDAsync, "cuMemcpyDtoHAsync_v2": &f.memcpyDtoHAsync,
		"cuMemcpyDtoDAsync_v2": &f.memcpyDtoDAsync, "cuMemsetD8Async": &f.memsetD8Async,
		"cuStreamCreateWithPriority": &f.streamCreate, "cuStreamDestroy_v2": &f.streamDestroy,
		"cuStreamSynchronize": &f.streamSynchronize, "cuStreamWaitEvent": &f.streamWaitEvent,
		"cuEventCreate": &f.eventCreate, "cuEventDestroy_v2": &f.eventDestroy, "cuEventRecord": &f.eventRecord,
		"cuEventSynchronize": &f.eventSynchronize, "cuEventElapsedTime": &f.eventElapsedTime,
		"cuModuleLoadDataEx": &f.moduleLoadDataEx, "cuModuleUnload": &f.moduleUnload,
		"cuModuleGetFunction": &f.moduleGetFunction, "cuFuncSetAttribute": &f.funcSetAttribute,
		"cuFuncGetAttribute": &f.funcGetAttribute, "cuLaunchKernel": &f.launchKernel,
		"cuCtxGetStreamPriorityRange": &f.ctxGetStreamPriorityRange,
		"cuDeviceCanAccessPeer":       &f.deviceCanAccessPeer, "cuIpcGetMemHandle": &f.ipcGetMemHandle,
		"cuIpcOpenMemHandle_v2": &f.ipcOpenMemHandle, "cuIpcCloseMemHandle": &f.ipcCloseMemHandle,
		"cuStreamBeginCapture_v2": &f.streamBeginCapture, "cuStreamEndCapture": &f.streamEndCapture,
		"cuGraphInstantiateWithFlags": &f.graphInstantiate, "cuGraphLaunch": &f.graphLaunch,
		"cuGraphExecDestroy": &f.graphExecDestroy, "cuGraphDestroy": &f.graphDestroy,
		"cuMemPoolCreate": &f.memPoolCreate, "cuMemPoolDestroy": &f.memPoolDestroy,
		"cuMemPoolSetAttribute": &f.memPoolSetAttribute, "cuMemPoolGetAttribute": &f.memPoolGetAttribute,
		"cuMemPoolTrimTo": &f.memPoolTrimTo, "cuMemAllocFromPoolAsync": &f.memAllocFromPoolAsync,
		"cuMemFreeAsync": &f.memFreeAsync,
	}
}

// Open loads the driver's library and initialises it. path is a soname or a file;
// empty means DefaultPath. errors.Is(err, ErrNoLibrary) tells a missing library
// from a driver that does not start.
func Open(path string) (*Library, error) {
	if path == "" {
		path = DefaultPath
	}
	handle, err := load(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrNoLibrary, strings.TrimSpace(err.Error()))
	}
	l := &Library{path: path}
	for name, p := range l.fn.table() {
		if *p, err = symbol(handle, name); err != nil {
			return nil, fmt.Errorf("%s has no %s: no CUDA driver, or one from before CUDA 11.4: update it", path, name)
		}
	}
	if err := l.check("cuInit", syscall(l.fn.init, 0)); err != nil {
		return nil, err
	}
	var v int32
	if err := l.check("cuDriverGetVersion", syscall(l.fn.driverGetVersion, uintptr(unsafe.Pointer(&v)))); err != nil {
		return nil, err
	}
	l.version = int(v)
	return l, nil
}

// Path is the name or file that was loaded.
func (l *Library) Path() string { return l.path }

// Version is the newest CUDA that the driver supports: 1000·major + 10·minor.
func (l *Library) Version() int { return l.version }

// VersionText is Version as people write it, "12.4".
func (l *Library) VersionText() string {
	return fmt.Sprintf("%d.%d", l.version/1000, l.version%1000/10)
}
