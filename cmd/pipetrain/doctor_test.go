package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/doctor"
)

// examination is a doctor's round over a world, and what it has to find.
type examination struct {
	name    string
	command []string // the launcher's
	sets    []string
	out     string // --out
	// A row of some rank's report: its name, its level, what it says and what to do.
	check, level, found, fix string
	fails                    bool // some row does
}

func (x examination) run(t *testing.T, job string) []doctor.Report {
	t.Helper()
	args := append(slices.Clone(x.command), "doctor", "--json")
	for _, set := range x.sets {
		args = append(args, "--set", set)
	}
	if x.out != "" {
		args = append(args, "--out", x.out)
	}
	e := begin(t, append(args, job)...).wait()
	if (e.code != 0) != x.fails {
		t.Errorf("exit code %d: %v", e.code, e)
	}
	// One answer for all ranks, whatever launchers print around it.
	var reports []doctor.Report
	text := e.stdout
	text = text[max(0, strings.IndexAny(text, "[{")):]
	var one doctor.Report
	if d := json.NewDecoder(strings.NewReader(text)); strings.HasPrefix(text, "[") {
		if err := d.Decode(&reports); err != nil {
			t.Fatalf("%v: %v", err, e)
		}
	} else if err := d.Decode(&one); err != nil {
		t.Fatalf("%v: %v", err, e)
	} else {
		reports = []doctor.Report{one}
	}
	if n := strings.Count(e.stdout, `"system: program"`); n != len(reports) {
		t.Errorf("%d reports in one array of %d", n, len(reports))
	}
	for _, r := range reports {
		for _, f := range r.Findings {
			if f.Check == x.check && f.Level.String() == x.level && strings.Contains(f.Found, x.found) && strings.Contains(f.Fix, x.fix) {
				return reports
			}
		}
	}
	t.Errorf("no row %q is %q with %q and %q: %v", x.check, x.level, x.found, x.fix, e)
	return reports
}

// TestDoctorWorld examines worlds that mpirun starts, good and bad.
func TestDoctorWorld(t *testing.T) {
	job := writeJob(t, tinyJob)
	libs := map[string]string{"openmpi": "libmpi.so.40", "mpich": "libmpich.so.12"}
	for family, other := range map[string]string{"openmpi": "mpich", "mpich": "openmpi"} {
		four := mpirun(t, family, 4)
		for _, x := range []examination{
			{name: "well", command: four, check: "mpi: peers", level: "ok"},
			{name: "size", command: mpirun(t, family, 2), fails: true, check: "mpi: this process", level: "fails", found: "the job has 4 ranks", fix: "start 4 ranks"},
			{name: "library", command: four, sets: []string{"transport.libmpi=" + libs[other]}, fails: true,
				check: "mpi: all ranks", level: "fails", found: "made a world of 1: the library " + libs[other], fix: "belongs to the library"},
			{name: "no library", command: four, sets: []string{"transport.libmpi=/nosuch/libmpi.so"}, fails: true,
				check: "mpi: all ranks", level: "fails", found: "/nosuch/libmpi.so", fix: "transport.libmpi"},
			{name: "run folder", command: four, out: "/proc/runs", fails: true, check: "files: run folder", level: "fails", found: "saving would fail", fix: "--out"},
		} {
			t.Run(family+"/"+x.name, func(t *testing.T) {
				before := sharedMemory(t)
				x.run(t, job)
				nothingLeft(t, before)
			})
		}
	}
}

// slurmDoctor examines worlds that srun starts over several nodes.
func slurmDoctor(t *testing.T, job string) {
	srun := func(options ...string) []string {
		return slices.Concat([]string{"srun", "-K1", "-N4", "-n4"}, options, []string{pipetrainPath})
	}
	two := func(options ...string) []string {
		return slices.Concat([]string{"srun", "-K1", "-N2", "-n4", "--ntasks-per-node=2", "--mpi=pmi2"}, options, []string{pipetrainPath})
	}
	// This machine without libpmix.so, which only a development package has: srun lists its plugin all the same.
	bare := []string{"unshare", "--mount", "bash", "-c", `for d in /usr/lib/*/pmix2/lib; do cp -a "$d" "$1" && rm -f "$1/lib/libpmix.so" && mount --bind "$1/lib" "$d"; done; exec "${@:2}"`, "bash", t.TempDir(), pipetrainPath}
	for _, x := range []examination{
		{name: "pmix without its library", command: bare, check: "slurm: controller", level: "warning", found: "but cannot load it", fix: "libpmix-dev"},
		{name: "pmix", command: srun("--mpi=pmix"), check: "mpi: peers", level: "ok", found: "each other rank"},
		{name: "pmi2", command: srun("--mpi=pmi2"), check: "mpi: shared folder", level: "ok", found: "is read here"},
		{name: "munge", command: srun("--mpi=pmi2"), check: "slurm: munge", level: "ok", found: "accepted"},
		{name: "wrong library", command: srun("--mpi=pmi2"), sets: []string{"transport.libmpi=libmpi.so.40"}, fails: true,
			check: "mpi: all ranks", level: "fails", found: "with --mpi=pmi2, which Open MPI cannot join\nRun instead:\n  srun -K1 --mpi=pmix", fix: "belongs to the library"},
		{name: "wrong wire-up", command: srun("--mpi=pmix"), sets: []string{"transport.libmpi=libmpich.so.12"}, fails: true,
			check: "mpi: all ranks", level: "fails", found: "made a world of 1", fix: "belongs to the library"},
		{name: "no wire-up", command: srun(), fails: true, check: "mpi: all ranks", level: "fails", found: "without a wire-up", fix: "transport.libmpi"},
		{name: "one GPU for two", command: two("--gpus-per-node=1"), sets: []string{"device.kind=auto"},
			check: "mpi: shared gpus", level: "warning", found: " have one GPU, 0", fix: "slurm.gpus_per_node"},
		{name: "a GPU each", command: two("--gpus-per-node=2"), sets: []string{"device.kind=auto"}, check: "mpi: shared gpus", level: "ok", found: "is this rank's alone"},
		{name: "folder of one host", command: srun("--mpi=pmix"), out: "/dev/shm/run", fails: true,
			check: "mpi: shared folder", level: "fails", found: "does not see what rank 0 wrote", fix: "all hosts share"},
		{name: "partition", command: srun("--mpi=pmix"), sets: []string{"slurm.partition=nosuch"}, fails: true,
			check: "slurm: partition", level: "fails", found: "there are batch, urgent", fix: "slurm.partition"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			inTurn(t)
			reports := x.run(t, job)
			hosts := map[string]bool{}
			for _, r := range reports {
				hosts[r.Host] = true
			}
			if x.name == "pmix" && (len(reports) != 4 || len(hosts) != 4) {
				t.Errorf("%d reports from hosts %v", len(reports), hosts)
			}
		})
	}
	t.Run("the job itself says as much", func(t *testing.T) {
		t.Parallel()
		inTurn(t)
		e := begin(t, append(srun(), "--quiet", "--out", t.TempDir()+"/run", job)...).wait()
		if e.code == 0 || strings.Count(e.stderr, "Run instead") != 1 || !strings.Contains(e.stderr, "--mpi=pmix") {
			t.Errorf("srun without a wire-up: %v", e)
		}
	})
}
