package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
)

// TestSlurm is all that needs a real Slurm: one of eight nodes for all parts. Most of the time they wait for it: for
// a requeued job's start, for a time limit, for the end of a step that was killed. So they run beside each other, but
// those whose ranks compute take turns.
func TestSlurm(t *testing.T) {
	disk := smallDisk(t, "size=2m") // before the nodes, which then have it too
	startCluster(t)
	t.Cleanup(func() {
		for i := range nodes {
			node := "node" + strconv.Itoa(i+1)
			ls := exec.Command("../../scripts/cluster", "run", "--on", node, "ls", "/dev/shm")
			ls.Env = append(os.Environ(), testCluster)
			if left, err := ls.Output(); err != nil || strings.Contains(string(left), "pipetrain") {
				t.Errorf("%s: /dev/shm holds %s, %v", node, left, err)
			}
		}
	})
	job := writeJob(t, tinyJob)
	t.Run("launchers", func(t *testing.T) { slurmLaunchers(t, job) }) // with nodes of their own, and half of these at once
	for name, part := range map[string]func(*testing.T, string){
		"preempted": slurmPreempted, "array": slurmArray, "refuses": slurmRefuses, "kills": slurmKills, "gives up": slurmGivesUp,
		"doctor": slurmDoctor, "time limit": slurmLimit, "container": slurmContainers, "detect": slurmDetect,
		"exits": func(t *testing.T, _ string) { slurmExits(t, disk) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part(t, job)
		})
	}
}

// turns bounds the worlds that compute at once: ranks of MPI that wait in turn for a core make hundreds of steps a
// second or one.
var turns = make(chan struct{}, 2)

// inTurn waits until few enough others compute, and does until the test's end.
func inTurn(t testing.TB) {
	turns <- struct{}{}
	t.Cleanup(func() { <-turns })
}

// The cluster's number and its nodes.
const (
	testCluster = "PIPETRAIN_CLUSTER=6"
	nodes       = 8
)

// startCluster starts a Slurm, for the programs that this test starts, until the test's end.
func startCluster(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: no cluster")
	}
	if os.Getuid() != 0 {
		t.Skip("the test cluster needs root")
	}
	for _, tool := range []string{"slurmctld", "munged", "sbatch", "mpirun.openmpi", "mpirun.mpich"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%v (scripts/install-test-deps.sh)", err)
		}
	}
	cmd := exec.Command("../../scripts/cluster", "with", "--nodes", strconv.Itoa(nodes), "--cpus", "16", "--", "sh", "-c", "echo up; exec cat >&2")
	cmd.Env = append(os.Environ(), testCluster)
	hold, err := cmd.StdinPipe() // its end, however this process ends, is the cluster's
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		hold.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the cluster: %v: %s", err, said.String())
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
		t.Fatalf("the cluster did not come up: %q %v: %s", line, err, said.String())
	}
	for name, value := range map[string]string{"SLURM_CONF": "/run/pipetrain-cluster-6/slurm.conf", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
		"SLURM_PMIX_FENCE": "tree"} { // as docs/slurm.md advises, and as the scripts that submit makes set it

		old, had := os.LookupEnv(name)
		os.Setenv(name, value)
		t.Cleanup(func() {
			if os.Unsetenv(name); had {
				os.Setenv(name, old)
			}
		})
	}
}

// slurmTool runs a program of Slurm that has to succeed.
func slurmTool(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

var submittedJob = regexp.MustCompile(`^submitted job (\d+): `)

// submitted hands a job to Slurm and returns its id.
func submitted(t testing.TB, args ...string) string {
	t.Helper()
	e := mustRun(t, append([]string{"submit"}, args...)...)
	m := submittedJob.FindStringSubmatch(e.stdout)
	if m == nil {
		t.Fatal(e)
	}
	return m[1]
}

// jobState asks Slurm for the state of a job.
func jobState(t testing.TB, id string) string {
	t.Helper()
	return slurmTool(t, "squeue", "-h", "-t", "all", "-j", id, "-o", "%T")
}

// jobEnds waits for a job's end, and shows its log where that takes too long.
func jobEnds(t testing.TB, id, run string) {
	t.Helper()
	state := ""
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		switch state = jobState(t, id); state {
		case "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY":
			return
		}
	}
	t.Fatalf("job %s is still %s:\n%s", id, state, jobLogs(run))
}

// jobLogs returns everything that a job's script and ranks printed.
func jobLogs(run string) string {
	var all strings.Builder
	for _, pattern := range []string{"slurm-*.log", "rank-*.out"} {
		files, _ := filepath.Glob(filepath.Join(run, "logs", pattern))
		for _, f := range files {
			b, _ := os.ReadFile(f)
			all.WriteString("--- " + filepath.Base(f) + "\n" + string(b))
		}
	}
	return all.String()
}

// One binary, one job: the same losses bit for bit whoever starts the ranks, on however many nodes.
func slurmLaunchers(t *testing.T, job string) {
	dir := t.TempDir()
	ref := filepath.Join(dir, "local")
	mustRun(t, "--quiet", "--out", ref, job)
	want := losses(t, ref)

	type started struct{ name, launcher, id, out string }
	var all []started
	for _, s := range []struct {
		name, launcher string
		sets           []string
	}{
		{"2 nodes, Open MPI", "srun", []string{"slurm.nodes=2", "slurm.mpi=pmix"}},
		{"4 nodes, Open MPI's by itself", "srun", []string{"slurm.nodes=4"}},
		{"2 nodes, MPICH", "srun", []string{"slurm.nodes=2", "slurm.mpi=pmi2"}},
		{"4 nodes, MPICH's library", "srun", []string{"slurm.nodes=4", "transport.libmpi=libmpich.so.12"}},
		{"2 nodes, Open MPI's mpirun", "openmpi", []string{"slurm.nodes=2", "slurm.launcher=mpirun"}},
		{"2 nodes, MPICH's mpirun", "hydra", []string{"slurm.nodes=2", "slurm.launcher=mpirun", "transport.libmpi=libmpich.so.12"}},
	} {
		// Slurm's own rules for quoting in #SBATCH lines, as well as the shell's.
		out := filepath.Join(dir, `it's "`+s.name+`" %j $HOME #`)
		// Alone on its nodes: few run at once, on the cores of this one machine.
		args := []string{"--out", out, "--set", `slurm.options=["--exclusive"]`}
		for _, set := range s.sets {
			args = append(args, "--set", set)
		}
		all = append(all, started{s.name, s.launcher, submitted(t, append(args, job)...), out})
	}
	for _, mpi := range []string{"pmix", "pmi2"} {
		out := filepath.Join(dir, mpi)
		e := begin(t, "srun", "--mpi="+mpi, "-K1", "-N2", "-n4", pipetrainPath, "--quiet", "--out", out, job).wait()
		if e.code != 0 {
			t.Errorf("srun --mpi=%s: %v", mpi, e)
		}
		all = append(all, started{"srun --mpi=" + mpi, "srun", "", out})
	}
	for _, s := range all {
		if s.id != "" {
			jobEnds(t, s.id, s.out)
		}
		if rec, err := exitcode.Read(s.out); err != nil || rec.Code != exitcode.Finished || rec.Launcher != s.launcher {
			t.Errorf("%s: exit record %+v, %v\n%s", s.name, rec, err, jobLogs(s.out))
			continue
		}
		if got := losses(t, s.out); !slices.Equal(got, want) {
			t.Errorf("%s: losses %v, want %v", s.name, got, want)
		}
		if s.id == "" {
			continue
		}
		if state := jobState(t, s.id); state != "COMPLETED" {
			t.Errorf("%s: Slurm says %s", s.name, state)
		}
		nodes := map[string]bool{}
		files, _ := filepath.Glob(filepath.Join(globEscape(s.out), "logs", "rank-*.node*.out"))
		for _, f := range files {
			nodes[strings.Split(filepath.Base(f), ".")[1]] = true
		}
		if strings.Contains(jobLogs(globEscape(s.out)), "start 2") {
			t.Logf("%s: a start was lost, and the job went on by itself\n%s", s.name, jobLogs(globEscape(s.out)))
		} else if len(files) != 4 || len(nodes) != int(s.name[0]-'0') {
			t.Errorf("%s: the ranks' files are %v\n%s", s.name, files, jobLogs(globEscape(s.out)))
		}
	}
}
