package mpi

// mpich is the interface that MPICH, Intel MPI, Cray MPICH and MVAPICH agreed
// on: handles are 32-bit integers. Source: mpi.h of MPICH 3.1 to 4.3.
func mpich() *abi {
	return &abi{
		name:       "MPICH",
		handleSize: 4,
		statusSize: 20, statusErr: 16,
		commWorld: val(0x44000000), commNull: val(0x04000000),
		byteType: val(0x4c00010d), requestNull: val(0x2c000000),
		infoNull: val(0x1c000000), errorsReturn: val(0x54000001),
		statusIgnore: 1, undefined: -32766, tagUB: 0x64400001, typeShared: 1,
		threads: [4]int32{0, 1, 2, 3},
		hint:    "MPICH's mpiexec (Hydra), or srun --mpi=pmi2",
	}
}
