package launcher

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
)

// Under a real Slurm of two nodes: every way to start ranks there, asked itself.
// Ranks write what they detect to a file a rank, which is whole when Slurm is done.
func TestDetectSlurm(t *testing.T) {
	if testing.Short() || os.Getuid() != 0 {
		t.Skip("starts a Slurm, which takes root and a few seconds")
	}
	for _, tool := range []string{"slurmctld", "slurmd", "munged", "unshare", "ip", "mpirun.openmpi", "mpirun.mpich"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%v (scripts/install-test-deps.sh)", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	say := func(name string) string { return "sh -c '" + self + " > " + dir + "/" + name + ".$$.$(hostname)'" }
	write := func(name string, lines ...string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+strings.Join(lines, "\n")+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	next := write("next.sh", say("submitted-from-a-step"), "touch "+dir+"/done-next")
	queue := write("queue.sh", `[ "$SLURM_PROCID" != 0 ] || sbatch -N2 --ntasks-per-node=2 -o /dev/null `+next)
	batch := write("batch.sh", say("batch"),
		"mpirun.openmpi -n 4 --bind-to none "+say("mpirun-openmpi"),
		"mpirun.mpich -n 4 -ppn 2 "+say("mpirun-mpich"),
		"srun -n 4 "+queue, "touch "+dir+"/done-batch")
	driver := write("driver.sh",
		"srun --mpi=pmix -N2 --ntasks-per-node=2 "+say("srun-pmix"),
		"srun --mpi=pmi2 -N2 --ntasks-per-node=2 "+say("srun-pmi2"),
		"srun -n1 "+say("srun-one"),
		"sbatch -N2 --ntasks-per-node=2 -o "+dir+"/batch.out "+batch,
		"for i in $(seq 300); do [ -f "+dir+"/done-batch ] && [ -f "+dir+"/done-next ] && exit 0; sleep 0.1; done",
		"squeue; cat "+dir+"/batch.out; exit 1")
	cmd := exec.Command("../scripts/cluster", "with", "--nodes", "2", "--", driver)
	cmd.Env = append(os.Environ(), "PIPETRAIN_CLUSTER=8", testMode+"=detect", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for name, want := range map[string]World{
		"srun-pmix":      {Launcher: Srun, Size: 4, LocalSize: 2, PMI: "pmix"},
		"srun-pmi2":      {Launcher: Srun, Size: 4, LocalSize: 2, PMI: "pmi2"},
		"mpirun-openmpi": {Launcher: OpenMPI, Size: 4, LocalSize: 2, PMI: "pmix"},
		"mpirun-mpich":   {Launcher: Hydra, Size: 4, LocalSize: 2, PMI: "pmi1"},
		"srun-one":       alone(), "batch": alone(), "submitted-from-a-step": alone(),
	} {
		files, _ := filepath.Glob(filepath.Join(dir, name+".*.node*"))
		var ranks []int
		for _, f := range files {
			b, _ := os.ReadFile(f)
			var w World
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
