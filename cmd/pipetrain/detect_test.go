package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/launcher"
)

// slurmDetect asks ranks of every way to start them under Slurm what they are. They write it to a file
// a rank, which is whole when Slurm is done.
func slurmDetect(t *testing.T, _ string) {
	inTurn(t)
	dir := t.TempDir()
	self := filepath.Join(dir, "detect")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", self, "./testdata/detect").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	say := func(name string) string { return "sh -c '" + self + " > " + dir + "/" + name + ".$$.$(hostname)'" }
	script := func(name string, lines ...string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+strings.Join(lines, "\n")+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	next := script("next.sh", say("submitted-from-a-step"), "touch "+dir+"/done-next")
	queue := script("queue.sh", `[ "$SLURM_PROCID" != 0 ] || sbatch -N2 --ntasks-per-node=2 -o /dev/null `+next)
	batch := script("batch.sh", say("batch"),
		"mpirun.openmpi -n 4 --bind-to none "+say("mpirun-openmpi"),
		"mpirun.mpich -n 4 -ppn 2 "+say("mpirun-mpich"),
		"srun -n 4 "+queue, "touch "+dir+"/done-batch")
	slurmTool(t, "sbatch", "-N2", "--ntasks-per-node=2", "-o", dir+"/batch.out", batch)
	for _, line := range []string{
		"srun --mpi=pmix -N2 --ntasks-per-node=2 " + say("srun-pmix"),
		"srun --mpi=pmi2 -N2 --ntasks-per-node=2 " + say("srun-pmi2"),
		"srun -n1 " + say("srun-one"),
	} {
		slurmTool(t, "sh", "-c", line)
	}
	waitFor(t, "the batch jobs", func() bool {
		for _, name := range []string{"batch", "next"} {
			if _, err := os.Stat(filepath.Join(dir, "done-"+name)); err != nil {
				return false
			}
		}
		return true
	})
	alone := launcher.World{Launcher: launcher.Alone, Size: 1, LocalSize: 1}
	for name, want := range map[string]launcher.World{
		"srun-pmix":      {Launcher: launcher.Srun, Size: 4, LocalSize: 2, PMI: "pmix"},
		"srun-pmi2":      {Launcher: launcher.Srun, Size: 4, LocalSize: 2, PMI: "pmi2"},
		"mpirun-openmpi": {Launcher: launcher.OpenMPI, Size: 4, LocalSize: 2, PMI: "pmix"},
		"mpirun-mpich":   {Launcher: launcher.Hydra, Size: 4, LocalSize: 2, PMI: "pmi1"},
		"srun-one":       alone, "batch": alone, "submitted-from-a-step": alone,
	} {
		files, _ := filepath.Glob(filepath.Join(dir, name+".*.node*"))
		var ranks []int
		for _, f := range files {
			b, _ := os.ReadFile(f)
			var w launcher.World
			if err := json.Unmarshal(b, &w); err != nil {
				t.Errorf("%s: %v in %q", f, err, b)
				continue
			}
			if w.Launcher != want.Launcher || w.Size != want.Size || w.LocalSize != want.LocalSize || w.PMI != want.PMI || w.Problem != "" || w.LocalRank != w.Rank%2 {
				t.Errorf("%s: %+v", name, w)
			}
			ranks = append(ranks, w.Rank)
		}
		sort.Ints(ranks)
		if len(ranks) != want.Size || ranks[0] != 0 || ranks[want.Size-1] != want.Size-1 {
			t.Errorf("%s: ranks %v of %d", name, ranks, want.Size)
		}
	}
}
