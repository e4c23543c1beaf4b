package launcher

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// environmentOf reads an environment captured under a real launcher.
func environmentOf(t *testing.T, file string, more ...string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "env", file))
	if err != nil {
		t.Fatal(err)
	}
	return append(strings.Split(strings.TrimSpace(string(b)), "\n"), more...)
}

func TestDetect(t *testing.T) {
	batch := []string{"SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_LOCALID=0", "SLURM_NODEID=0", "SLURM_TASK_PID=99"}
	step := append([]string{"SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_TASKS_PER_NODE=2(x2)"},
		"SLURM_JOB_ID=7", "SLURM_PROCID=3", "SLURM_LOCALID=1", "SLURM_NODEID=1", "SLURM_NTASKS=1", "PMIX_NAMESPACE=slurm.pmix.7.0")
	for _, c := range []struct {
		name string
		env  []string
		want World
		note string // a part of the first note
	}{
		{"nothing", []string{"HOME=/root"}, alone(), ""},
		{"our own", []string{EnvRank + "=1", EnvSize + "=2", EnvLocalRank + "=1", EnvLocalSize + "=2", EnvStateFD + "=4", "OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=8"},
			World{Launcher: Local, Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2}, ""},
		{"our variables without the socket", []string{EnvRank + "=1", EnvSize + "=2"}, alone(), ""},
		{"Open MPI 4.1", environmentOf(t, "openmpi-4.1-rank1"), World{Launcher: OpenMPI, Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Node: "vm", PMI: "pmix"}, ""},
		{"Open MPI in a batch script", environmentOf(t, "openmpi-4.1-rank1", batch...),
			World{Launcher: OpenMPI, Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Node: "vm", PMI: "pmix"}, "SLURM_PROCID=\"0\" is not this rank"},
		{"Open MPI whose daemon is a Slurm step", environmentOf(t, "openmpi-4.1-rank1", step...),
			World{Launcher: OpenMPI, Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Node: "vm", PMI: "pmix"}, "inside Slurm job 7"},
		{"MPICH 4.0", environmentOf(t, "mpich-4.0-rank1"), World{Launcher: Hydra, Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, PMI: "pmi1"}, ""},
		{"MPICH whose proxy is a Slurm step", environmentOf(t, "mpich-4.0-rank1", step...), World{Launcher: Hydra, Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, PMI: "pmi1"}, "job 7"},
		{"Cray PALS", []string{"PALS_RANKID=5", "PMI_RANK=5", "PMI_SIZE=8", "PALS_LOCAL_RANKID=1", "PALS_LOCAL_SIZE=4", "PALS_NODEID=1"},
			World{Launcher: PALS, Rank: 5, Size: 8, LocalRank: 1, LocalSize: 4, Node: "1", PMI: "pmi2"}, ""},
		{"Flux", []string{"FLUX_TASK_RANK=2", "FLUX_JOB_SIZE=4", "FLUX_TASK_LOCAL_ID=0", "PMI_RANK=2", "PMI_SIZE=4", "PMI_FD=9"},
			World{Launcher: Flux, Rank: 2, Size: 4, LocalRank: 0, LocalSize: Unknown, PMI: "pmi1"}, ""},
		{"torchrun", []string{"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=1"},
			World{Launcher: Torchrun, Rank: 3, Size: 4, LocalRank: 1, LocalSize: 2, Node: "1"}, ""},
		{"somebody's RANK", []string{"RANK=3"}, alone(), ""},
		{"somebody's RANK and WORLD_SIZE", []string{"RANK=3", "WORLD_SIZE=4"}, alone(), ""},
		{"batch script", batch, alone(), "a batch script is not a rank"},
		{"batch script's own step id", append([]string{"SLURM_STEP_ID=4294967291", "SLURM_STEP_NUM_TASKS=4"}, batch...), alone(), "not a step of srun"},
		{"salloc", []string{"SLURM_JOB_ID=7", "SLURM_NTASKS=4"}, alone(), "not in a step"},
		{"srun --pty", []string{"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1"}, alone(), "one task"},
		{"srun --mpi=pmix, second node", environmentOf(t, "slurm-22.05-srun-pmix-rank3"), World{Launcher: Srun, Rank: 3, Size: 4, LocalRank: 0, LocalSize: 1, Node: "1", PMI: "pmix"}, ""},
		{"srun --mpi=pmi2, second node", environmentOf(t, "slurm-22.05-srun-pmi2-rank3"), World{Launcher: Srun, Rank: 3, Size: 4, LocalRank: 0, LocalSize: 1, Node: "1", PMI: "pmi2"}, ""},
		{"srun --mpi=none, second node", environmentOf(t, "slurm-22.05-srun-none-rank3"), World{Launcher: Srun, Rank: 3, Size: 4, LocalRank: 0, LocalSize: 1, Node: "1"}, "without an --mpi"},
		{"sbatch", environmentOf(t, "slurm-22.05-batch"), alone(), "a batch script is not a rank"},
		{"srun in a batch script", environmentOf(t, "slurm-22.05-batch-srun-rank3"), World{Launcher: Srun, Rank: 3, Size: 4, LocalRank: 1, LocalSize: 2, Node: "1"}, "without an --mpi"},
		{"Open MPI's mpirun in a batch script, second node", environmentOf(t, "slurm-22.05-batch-ompi-rank2"),
			World{Launcher: OpenMPI, Rank: 2, Size: 4, LocalRank: 0, LocalSize: 2, Node: "node2", PMI: "pmix"}, "inside Slurm job 8"},
		{"MPICH's mpiexec in a batch script, second node", environmentOf(t, "slurm-22.05-batch-mpich-rank2"),
			World{Launcher: Hydra, Rank: 2, Size: 4, LocalRank: 0, LocalSize: 2, PMI: "pmi1"}, "inside Slurm job 8"},
		{"sbatch from inside a step", environmentOf(t, "slurm-22.05-batch-from-step"), alone(), "variables of another step"},
		{"sbatch from inside a step, one task a node, pmix", append(environmentOf(t, "slurm-22.05-srun-pmix-rank3"),
			"SLURM_JOB_ID=99", "SLURM_PROCID=0", "SLURM_NODEID=0", "SLURM_GTIDS=0", "SLURM_STEP_TASKS_PER_NODE=1(x4)"), alone(), "not of step 99.0"},
		{"srun without --mpi", []string{"SLURM_JOB_ID=7", "SLURM_STEP_ID=2", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2"},
			World{Launcher: Srun, Rank: 1, Size: 2, LocalRank: Unknown, LocalSize: Unknown}, "without an --mpi"},
		{"later assignment wins", []string{"OMPI_COMM_WORLD_SIZE=9", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2"},
			World{Launcher: OpenMPI, Rank: 0, Size: 2, LocalRank: Unknown, LocalSize: Unknown, PMI: "pmix"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Detect(c.env)
			first := strings.Join(got.Notes, "; ")
			got.Notes = nil
			if g, w := asJSON(got), asJSON(c.want); g != w {
				t.Errorf("got  %s\nwant %s", g, w)
			}
			if (c.note == "") != (first == "") || !strings.Contains(first, c.note) {
				t.Errorf("notes %q, want %q in them", first, c.note)
			}
		})
	}
}

func asJSON(v any) string { b, _ := json.Marshal(v); return string(b) }

// A launcher's variables that make no sense are a problem, never "alone": N
// worlds of one rank would follow.
func TestDetectProblem(t *testing.T) {
	for _, env := range [][]string{
		{"OMPI_COMM_WORLD_RANK=x", "OMPI_COMM_WORLD_SIZE=2"},
		{"OMPI_COMM_WORLD_RANK=1"},
		{"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=2"},
		{"PMI_RANK=-1", "PMI_SIZE=2", "MPI_LOCALRANKID=0"},
		{"SLURM_JOB_ID=1", "SLURM_STEP_ID=0", "SLURM_PROCID=9", "SLURM_STEP_NUM_TASKS=4"},
	} {
		if w := Detect(env); w.Problem == "" || !w.IsRank() {
			t.Errorf("%v: %+v", env, w)
		}
	}
}

func TestTasksOnNode(t *testing.T) {
	for _, c := range []struct {
		list string
		node int
		want int
	}{
		{"2(x2)", 1, 2}, {"2(x3),1", 3, 1}, {"4,3(x2),1", 2, 3}, {"4", 0, 4}, {"4", 1, Unknown},
		{"", 0, Unknown}, {"x", 0, Unknown}, {"2(x", 0, Unknown}, {"2(x0),5", 0, Unknown}, {"2", -1, Unknown},
	} {
		if got := tasksOnNode(c.list, c.node); got != c.want {
			t.Errorf("tasksOnNode(%q, %d) = %d, want %d", c.list, c.node, got, c.want)
		}
	}
}

func FuzzDetect(f *testing.F) {
	f.Add("SLURM_JOB_ID=1\nSLURM_STEP_ID=0\nSLURM_PROCID=1\nSLURM_STEP_NUM_TASKS=2\nSLURM_NODEID=0\nSLURM_STEP_TASKS_PER_NODE=2(x2)")
	f.Add("PMI_RANK=1\nPMI_SIZE=2\nMPI_LOCALRANKID=1")
	f.Fuzz(func(t *testing.T, env string) {
		w := Detect(strings.Split(env, "\n"))
		if w.Problem == "" && (w.Size < 1 || w.Rank < 0 || w.Rank >= w.Size) {
			t.Errorf("%q: %+v", env, w)
		}
	})
}

// The launchers that are installed here, asked themselves.
func TestDetectLive(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		command string
		args    []string
		want    Kind
	}{
		{"mpirun.openmpi", []string{"-n", "3", "--oversubscribe", "--bind-to", "none"}, OpenMPI},
		{"mpirun.mpich", []string{"-n", "3"}, Hydra},
	} {
		t.Run(c.command, func(t *testing.T) {
			path, err := exec.LookPath(c.command)
			if err != nil {
				t.Skip(err)
			}
			cmd := exec.Command(path, append(c.args, self)...)
			cmd.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", testMode+"=detect")
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			seen := map[int]bool{}
			for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
				var w World
				if err := json.Unmarshal([]byte(line), &w); err != nil {
					t.Fatalf("%v in %q", err, line)
				}
				if w.Launcher != c.want || w.Size != 3 || w.LocalSize != 3 || w.LocalRank != w.Rank || w.Problem != "" {
					t.Errorf("%+v", w)
				}
				seen[w.Rank] = true
			}
			if len(seen) != 3 {
				t.Errorf("ranks seen: %v", seen)
			}
		})
	}
}
