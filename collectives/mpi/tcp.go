package mpi

import "os"

// bothWays lets Open MPI's TCP send both ways at once. By default it moves a large message by
// a put that the receiver asks for, over the one connection of the two hosts, and two ranks that
// exchange large messages then take turns: 13.4 MB each way over 100 Mbit/s take 2.2 s, with
// plain sends 1.1 s, and an exchange is what an all-reduce and a pipeline in its steady phase do. On a
// link without a limit the two are alike (docs/results). What the user chose stands.
// It returns what it set.
func (c Config) bothWays(lib *library) string {
	const name, value = "OMPI_MCA_btl_tcp_flags", "1" // MCA_BTL_FLAGS_SEND
	if l := c.Launch; lib.name != openMPI().name || l.Size < 2 || l.LocalSize == l.Size {
		return ""
	}
	for _, set := range []string{name, "OMPI_MCA_btl_tcp_links"} {
		if os.Getenv(set) != "" {
			return ""
		}
	}
	// The library reads C's environment, which Setenv writes too.
	if os.Setenv(name, value) != nil {
		return ""
	}
	return name + "=" + value
}
