package driver

import (
	"fmt"
	"unsafe"
)

// Device is one GPU, by its number in this process (CUDA_VISIBLE_DEVICES counts).
type Device struct {
	l      *Library
	handle int32
}

// Attribute is a CUdevice_attribute.
type Attribute int32

// The attributes in use; the numbers are cuda.h's.
const (
	MultiprocessorCount         Attribute = 16
	ComputeMode                 Attribute = 20
	CapabilityMajor             Attribute = 75
	CapabilityMinor             Attribute = 76
	MemoryPools                 Attribute = 115
	ComputeModeDefault                    = 0
	ComputeModeProhibited                 = 2
	ComputeModeExclusiveProcess           = 3
)

// DeviceCount returns how many GPUs the process sees.
func (l *Library) DeviceCount() (int, error) {
	var n int32
	err := l.check("cuDeviceGetCount", syscall(l.fn.deviceGetCount, uintptr(unsafe.Pointer(&n))))
	return int(n), err
}

// Device returns the i-th GPU.
func (l *Library) Device(i int) (Device, error) {
	d := Device{l: l}
	var h int32
	err := l.check("cuDeviceGet", syscall(l.fn.deviceGet, uintptr(unsafe.Pointer(&h)), uintptr(i)))
	d.handle = h
	return d, err
}

// Name returns the card's name, "NVIDIA H200".
func (d Device) Name() (string, error) {
	b := make([]byte, 256)
	err := d.l.check("cuDeviceGetName", syscall(d.l.fn.deviceGetName, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(d.handle)))
	n := 0
	for n < len(b) && b[n] != 0 {
		n++
	}
	return string(b[:n]), err
}

// UUID returns the device's own number as nvidia-smi writes it: "GPU-…", or "MIG-…" for a
// part of a card, whose parts share the card's number and have another one each.
func (d Device) UUID() (string, error) {
	var card, b [16]byte
	err := d.l.check("cuDeviceGetUuid", syscall(d.l.fn.deviceGetUUID, uintptr(unsafe.Pointer(&card[0])), uintptr(d.handle)))
	if err == nil {
		err = d.l.check("cuDeviceGetUuid_v2", syscall(d.l.fn.deviceGetUUIDv2, uintptr(unsafe.Pointer(&b[0])), uintptr(d.handle)))
	}
	kind := "GPU"
	if b != card {
		kind = "MIG"
	}
	return fmt.Sprintf("%s-%x-%x-%x-%x-%x", kind, b[:4], b[4:6], b[6:8], b[8:10], b[10:]), err
}

// Attribute returns one attribute.
func (d Device) Attribute(a Attribute) (int, error) {
	var v int32
	err := d.l.check("cuDeviceGetAttribute", syscall(d.l.fn.deviceGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(a), uintptr(d.handle)))
	return int(v), err
}

// TotalMem returns the card's memory in bytes.
func (d Device) TotalMem() (int64, error) {
	var n uint64
	err := d.l.check("cuDeviceTotalMem_v2", syscall(d.l.fn.deviceTotalMem, uintptr(unsafe.Pointer(&n)), uintptr(d.handle)))
	return int64(n), err
}
