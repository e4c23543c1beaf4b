package mpi

// bothWays lets Open MPI's TCP send both ways at once. By default it moves a large message by
// a put that the receiver asks for, over the one connection of the two hosts, and two ranks that
// exchange large messages then take turns: 13.4 MB each way over 100 Mbit/s take 2.2 s, with
// plain sends 1.1 s, and an exchange is what an all-reduce and a pipeline in its steady phase do. On a
// link without a limit the two are alike (docs/transports.md). What the user chose stands.
// It returns what it set.
func (c Config) bothWays(lib *library) string {
	if l := c.Launch; lib.name != openMPI().name || l.Size < 2 || l.LocalSize == l.Size {
		return ""
	}
	// 1 is MCA_BTL_FLAGS_SEND.
	return choose(setting{"OMPI_MCA_btl_tcp_flags", "1", []string{"OMPI_MCA_btl_tcp_links"}})
}
