package mpi

import (
	"os"
	"testing"
)

func TestBothWays(t *testing.T) {
	apart, together := Launch{Size: 4, LocalSize: 2}, Launch{Size: 4, LocalSize: 4}
	for _, c := range []struct {
		what   string
		launch Launch
		lib    library
		user   string // a variable that the user set
		want   string
	}{
		{"two hosts", apart, library{abi: openMPI()}, "", "OMPI_MCA_btl_tcp_flags=1"},
		{"hosts not known", Launch{Size: 4, LocalSize: -1}, library{abi: openMPI()}, "", "OMPI_MCA_btl_tcp_flags=1"},
		{"one host", together, library{abi: openMPI()}, "", ""},
		{"another library", apart, library{abi: mpich()}, "", ""},
		{"the user's choice", apart, library{abi: openMPI()}, "OMPI_MCA_btl_tcp_flags", ""},
		{"more connections", apart, library{abi: openMPI()}, "OMPI_MCA_btl_tcp_links", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Setenv("OMPI_MCA_btl_tcp_flags", "")
			t.Setenv("OMPI_MCA_btl_tcp_links", "")
			if c.user != "" {
				t.Setenv(c.user, "2")
			}
			if got := (Config{Launch: c.launch}).bothWays(&c.lib); got != c.want {
				t.Errorf("set %q, want %q", got, c.want)
			}
			if v := os.Getenv("OMPI_MCA_btl_tcp_flags"); c.want != "" && v != "1" {
				t.Errorf("the environment has %q", v)
			}
		})
	}
}
