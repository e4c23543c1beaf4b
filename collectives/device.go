package collectives

// DeviceMemory is a Transport that moves memory of a GPU by itself, where its library
// can (CUDA-aware MPI). Messages sent in this way are received in this way.
type DeviceMemory interface {
	Transport
	// DeviceAware says whether the library claims to take addresses of CUDA memory, and
	// what it was asked. A claim is no proof: try before relying on it.
	DeviceAware() (claims bool, why string)
	// SendDevice and RecvDevice are Isend and Irecv of memory that this process cannot
	// read, at an address of the device.
	SendDevice(to, tag int, addr uintptr, bytes int64) Request
	RecvDevice(from, tag int, addr uintptr, bytes int64) Request
}
