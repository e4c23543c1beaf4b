package slurm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What Slurm's programs write becomes one line that says what to change. Those that the test
// cluster can be made to say are tested there as well; accounts need a database.
func TestExplain(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no sinfo
	for said, want := range map[string]string{
		"sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified\n":                                                                                          "sbatch: Invalid account or account/partition combination specified; correct slurm.account",
		"sbatch: error: Batch job submission failed: Invalid qos specification\n":                                                                                                                           "sbatch: Invalid qos specification; correct slurm.qos",
		"sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)\n":                                                                                     "correct slurm.time",
		"sbatch: error: invalid partition specified: gpuu\nsbatch: error: Batch job submission failed: Invalid partition name specified\n":                                                                  "sbatch: partition gpuu is unknown; correct slurm.partition",
		"sbatch: unrecognized option '--nosuch=1'\nTry \"sbatch --help\" for more information\n":                                                                                                            "sbatch: unrecognized option '--nosuch=1'; correct slurm.options",
		"sbatch: error: Batch job submission failed: Job dependency problem\n":                                                                                                                              "correct slurm.dependency",
		"sbatch: error: auth_munge: munge: If munged is up, restart with --num-threads=10\nsbatch: error: Munge encode failed: Failed to access \"/run/munge/munge.socket.2\": No such file or directory\n": "systemctl start munge",
		"sbatch: error: Batch job submission failed: Disk full, please clean up\n":                                                                                                                          "sbatch refused: Disk full, please clean up",
		"": "sbatch refused: exit status 1",
	} {
		err := Tools{}.explain(context.Background(), "sbatch", said, errors.New("exit status 1"))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "sbatch") {
			t.Errorf("%q became %v, want %q", said, err, want)
		}
	}
	if err := (Tools{}).explain(context.Background(), "squeue", "slurm_load_jobs error: Invalid job id specified\n", nil); !errors.Is(err, ErrUnknownJob) {
		t.Error(err)
	}
}

// A program that is not there, that hangs, that answers nonsense.
func TestToolsFail(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	program := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "sbatch"), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	wants := func(tools Tools, want string) {
		t.Helper()
		if _, err := tools.Submit(context.Background(), "x"); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	program("echo sbatch: error: trying >&2; sleep 60")
	wants(Tools{Patience: 200 * time.Millisecond}, "sbatch did not answer within 200ms: trying")
	program("echo hello")
	wants(Tools{}, `"hello", which is no job id`)
	program("echo '12;cluster'")
	if id, err := (Tools{}).Submit(context.Background(), "x"); id != "12" || err != nil {
		t.Errorf("%q %v", id, err)
	}
	wants(Tools{Conf: "/nosuch/slurm.conf"}, "SLURM_CONF=/nosuch/slurm.conf cannot be read (no such file or directory)")
	t.Setenv("PATH", "/nowhere")
	wants(Tools{}, "sbatch is not in PATH")
}

func TestChoose(t *testing.T) {
	both := map[Family]string{OpenMPI: "/usr/bin/mpirun", MPICH: "/usr/bin/mpiexec.hydra"}
	all := []string{"pmix", "none", "pmi2", "pmix_v4"}
	for name, c := range map[string]struct {
		sets []string
		site Site
		want string // launcher, wire-up or program; or the error
	}{
		"nothing here":             {nil, Site{}, "srun pmix"},
		"Open MPI here":            {nil, Site{MPITypes: all, Mpirun: OpenMPI, Programs: both}, "srun pmix"},
		"MPICH here":               {nil, Site{MPITypes: all, Mpirun: MPICH, Programs: both}, "srun pmi2"},
		"the job's library first":  {nil, Site{MPITypes: all, Library: MPICH, Mpirun: OpenMPI, Programs: both}, "srun pmi2"},
		"the job's module first":   {[]string{`slurm.modules=["gcc/12", "mvapich2/2.3"]`}, Site{MPITypes: all, Mpirun: OpenMPI, Programs: both}, "srun pmi2"},
		"the last module":          {[]string{`slurm.modules=["intel-oneapi-mpi", "OpenMPI/4"]`}, Site{MPITypes: all, Mpirun: MPICH}, "srun pmix"},
		"only a version of pmix":   {nil, Site{MPITypes: []string{"none", "pmix_v3"}, Mpirun: OpenMPI, Programs: both}, "srun pmix_v3"},
		"Cray":                     {[]string{`slurm.modules=["cray-mpich"]`}, Site{MPITypes: []string{"cray_shasta", "pmi2"}}, "srun cray_shasta"},
		"no wire-up":               {nil, Site{MPITypes: []string{"none", "pmi2"}, Mpirun: OpenMPI, Programs: both}, "mpirun /usr/bin/mpirun"},
		"no wire-up but asked":     {[]string{"slurm.launcher=srun"}, Site{MPITypes: []string{"none"}, Mpirun: OpenMPI}, "use slurm.launcher"},
		"mpirun asked":             {[]string{"slurm.launcher=mpirun"}, Site{MPITypes: all, Mpirun: MPICH, Programs: both}, "mpirun /usr/bin/mpiexec.hydra"},
		"mpirun of the job":        {[]string{"slurm.launcher=mpirun", `slurm.modules=["mpich"]`}, Site{MPITypes: all, Mpirun: MPICH, Programs: both}, "mpirun "},
		"wire-up asked":            {[]string{"slurm.mpi=pmi2"}, Site{MPITypes: all, Mpirun: OpenMPI}, "srun pmi2"},
		"wire-up that is not here": {[]string{"slurm.mpi=pmi1"}, Site{MPITypes: all}, "srun has pmix, none, pmi2, pmix_v4 here"},
		"both":                     {[]string{"slurm.mpi=pmi2", "slurm.launcher=mpirun"}, Site{}, "leave one out"},
	} {
		choice, err := Choose(spec(t, c.sets...), c.site)
		got := choice.Launcher + " " + choice.MPI
		if choice.Launcher == "mpirun" {
			got += choice.Program
		}
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %s (%s), want %s", name, got, choice.Why, c.want)
		}
	}
	for path, want := range map[string]Family{"": UnknownMPI, "libmpi.so.40": OpenMPI, "/x/libmpich.so.12": MPICH, "/opt/intel/lib/libmpi.so": MPICH, "/lib/libfoo.so": UnknownMPI} {
		if got := familyOfLibrary(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
