package main

import (
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/exitcode"
)

// RANK and WORLD_SIZE are anybody's variables: where they make this process a rank of a world that is not
// there, the message names them, whichever rank they say.
func TestLeftoverVariables(t *testing.T) {
	job := writeJob(t, tinyJob)
	for _, rank := range []string{"0", "2"} {
		for set, want := range map[string]exitcode.Code{"transport.kind=local": exitcode.Usage, "transport.kind=mpi": exitcode.Environment} {
			e := begin(t, "env", "RANK="+rank, "LOCAL_RANK="+rank, "WORLD_SIZE=4", pipetrainPath, "--quiet", "--set", set, "--out", t.TempDir()+"/run", job).wait()
			if e.code != int(want) || !strings.Contains(e.stderr, "RANK="+rank+" and WORLD_SIZE=4 in the environment") {
				t.Errorf("rank %s, %s: %v", rank, set, e)
			}
		}
	}
}
