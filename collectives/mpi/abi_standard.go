package mpi

// standard is the interface of MPI 5.0, chapter 20: small integers in
// pointer-sized handles, the same in every library that has it.
func standard() *abi {
	return &abi{
		name:       "MPI-5 ABI",
		handleSize: 8,
		statusSize: 32, statusErr: 8,
		commWorld: val(0x101), commNull: val(0x100),
		byteType: val(0x247), requestNull: val(0x180),
		infoNull: val(0x130), errorsReturn: val(0x143),
		statusIgnore: 0, undefined: -32766, tagUB: 501, typeShared: 221,
		threads: [4]int32{0, 1024, 2048, 4096},
		hint:    "the launcher that came with the library",
	}
}
