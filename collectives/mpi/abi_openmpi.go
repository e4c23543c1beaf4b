package mpi

// openMPI is Open MPI's interface: handles are addresses of exported objects.
// Source: ompi/include/mpi.h of versions 1.10 to 5.0.
func openMPI() *abi {
	return &abi{
		name:       "Open MPI",
		handleSize: 8,
		statusSize: 24, statusErr: 8,
		commWorld: sym("ompi_mpi_comm_world"), commNull: sym("ompi_mpi_comm_null"),
		byteType: sym("ompi_mpi_byte"), requestNull: sym("ompi_request_null"),
		infoNull: sym("ompi_mpi_info_null"), errorsReturn: sym("ompi_mpi_errors_return"),
		statusIgnore: 0, undefined: -32766, tagUB: 0, typeShared: 0,
		threads: [4]int32{0, 1, 2, 3},
		hint:    "Open MPI's mpirun, or srun --mpi=pmix",
	}
}
