package mpi

import (
	"os"
	"strings"
)

// A setting is a variable of the environment that a library reads in MPI_Init.
type setting struct {
	name, value string
	unless      []string // variables of the user by which it is left out
}

// choose sets what the user has not chosen otherwise, and returns it.
func choose(settings ...setting) string {
	var done []string
	for _, s := range settings {
		// The libraries read C's environment, which Setenv writes too.
		if !s.chosen() && os.Setenv(s.name, s.value) == nil {
			done = append(done, s.name+"="+s.value)
		}
	}
	return strings.Join(done, " ")
}

// chosen says whether the user has set this or what stands against it.
func (s setting) chosen() bool {
	for _, name := range append(s.unless, s.name) {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}
