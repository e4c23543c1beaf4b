package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSlurm(t *testing.T) {
	none := host(t, nil)
	expect(t, none, checkSlurmCommands, OK, "no Slurm here")
	expect(t, none, checkMunge, OK)
	expect(t, none, checkSlurmController, OK)
	expect(t, none, checkSlurmPartition, OK)
	none.Job = job(2)
	none.Job.Slurm.Partition = "gpu"
	expect(t, none, checkSlurmCommands, Fails, "login node")
	expect(t, none, checkSlurmPartition, Fails, `partition "gpu"`)

	files := map[string]string{
		"bin/sbatch": "", "bin/squeue": "", "bin/scancel": "",
		"bin/srun":  `case $1 in --version) echo slurm 22.05.8;; *) printf 'MPI plugin types are...\n\tcray_shasta\n\tnone\n\tpmi2\n\tpmix\nspecific pmix plugin versions available: pmix_v4\n';; esac`,
		"bin/sinfo": `case "$3" in *P*) echo "cpu* up 2 idle"; echo "gpu up 1 down*";; *) echo cpu; echo gpu; echo gpu;; esac`,
		"bin/munge": "echo MUNGE:x:\n", "bin/unmunge": "/usr/bin/grep -q MUNGE || exit 1; echo 'STATUS:           Success (0)'\n",
		"bin/sh": "exec /bin/sh \"$@\"\n",
	}
	h := host(t, files)
	h.Job = job(2)
	h.Job.Slurm.Partition = "gpu"
	expect(t, h, checkSlurmCommands, OK, "slurm 22.05.8")
	expect(t, h, checkMunge, OK, "accepted (Success (0))")
	expect(t, h, checkSlurmController, OK, "cpu* up 2 idle; gpu up 1 down*", "pmi2, pmix, pmix_v4")
	expect(t, h, checkSlurmPartition, OK, "gpu is there")
	h.Job.Slurm.Partition = "big"
	expect(t, h, checkSlurmPartition, Fails, `no partition "big"; there are cpu, gpu`)

	broken := func(name, script string) *Host {
		changed := map[string]string{}
		for k, v := range files {
			changed[k] = v
		}
		if changed["bin/"+name] = script; script == "" {
			delete(changed, "bin/"+name)
		}
		return host(t, changed)
	}
	expect(t, broken("sbatch", ""), checkSlurmCommands, Warning, "not sbatch")
	lonely := broken("srun", "echo 'srun: error: resolve_ctls_from_dns_srv'; exit 1\n")
	expect(t, lonely, checkSlurmCommands, Warning, "find no cluster", "SLURM_CONF")
	expect(t, lonely, checkMunge, OK, "not asked")
	expect(t, lonely, checkSlurmController, OK, "not asked")
	expect(t, broken("munge", "echo 'Did you start munged?'; exit 6\n"), checkMunge, Warning, "Did you start munged?", "/run/munge")
	elsewhere := broken("munge", "[ \"$2\" = --socket=/run/m/s ] || { echo 'no socket'; exit 6; }; echo MUNGE:x:\n")
	if err := os.WriteFile(filepath.Join(elsewhere.Root, "bin/scontrol"), []byte("#!/bin/sh\necho 'AuthInfo                = cred_expire=8,socket=/run/m/s'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	expect(t, elsewhere, checkMunge, OK, "accepted")
	expect(t, broken("unmunge", "echo 'unmunge: Error: Expired credential'; exit 15\n"), checkMunge, Warning, "Expired credential", "clocks")
	expect(t, broken("sinfo", "echo 'slurm_load_partitions: Unable to contact slurm controller'; exit 1\n"), checkSlurmController, Warning, "Unable to contact", "slurmctld")
	expect(t, broken("sinfo", "echo 'cpu* up 2 down*'; echo 'gpu inact 1 idle'\n"), checkSlurmController, Warning, "no node is up")
	down := broken("sinfo", "exit 1\n")
	down.Job = job(1)
	down.Job.Slurm.Partition = "cpu"
	expect(t, down, checkSlurmController, Fails, "exit status 1")

	newer := mpiPlugins("MPI plugin types are...\n\tnone\n\tcray_shasta\n\tpmix\nspecific pmix plugin versions available: pmix_v5,pmix_v4\n")
	if want := []string{"none", "cray_shasta", "pmix", "pmix_v5", "pmix_v4"}; !slices.Equal(newer, want) {
		t.Errorf("plugins %q, want %q", newer, want)
	}
	older := mpiPlugins("srun: MPI types are...\nsrun: none\nsrun: pmi2\n")
	if want := []string{"none", "pmi2"}; !slices.Equal(older, want) {
		t.Errorf("plugins %q, want %q", older, want)
	}
}

// A plugin that srun lists and cannot load, as on a Debian without libpmix-dev. It is tried outside any allocation.
func TestWireUp(t *testing.T) {
	for _, c := range []struct{ srun, level, found, fix string }{
		{`echo 'srun: Job 1 to start at 2026-01-01T00:00:00'`, "", "", ""},
		{`echo 'allocation failure: Requested node configuration is not available'; exit 1`, "", "", ""},
		{`echo 'srun: error:  mpi/pmix_v4: init: (null) [0]: mpi_pmix.c:195: pmi/pmix: can not load PMIx library'
echo "srun: error: Couldn't load specified plugin name for mpi/pmix: Plugin init() callback failed"; exit 1`,
			"warning", "lists --mpi=pmix, which Open MPI needs, but cannot load it: srun: error:  mpi/pmix_v4: init: (null) [0]: mpi_pmix.c:195: pmi/pmix: can not load PMIx library", "apt-get install libpmix-dev"},
	} {
		h := host(t, map[string]string{"bin/srun": `[ "$1 $2" = "--mpi=pmix --test-only" ] && [ -n "$SLURM_CONF" ] && [ -z "$SLURM_JOB_ID" ] || { echo Invalid MPI type; exit 1; }` + "\n" + c.srun})
		h.Env = append(h.Env, "SLURM_CONF=/x", "SLURM_JOB_ID=7", "SLURM_PMIX_FENCE=tree")
		got := h.wireUp(t.Context(), openMPI, "pmix", []string{"none", "pmix"})
		if c.level == "" {
			if len(got) != 0 {
				t.Errorf("%s: %+v", c.srun, got)
			}
		} else if len(got) != 1 || got[0].Level.String() != c.level || got[0].Found != "srun "+c.found || !strings.Contains(got[0].Fix, c.fix) {
			t.Errorf("%s: %+v", c.srun, got)
		}
	}
	if got := host(t, nil).wireUp(t.Context(), mpich, "pmi2", []string{"none", "pmix"}); len(got) != 1 || !strings.Contains(got[0].Found, "srun has no --mpi=pmi2") {
		t.Errorf("a plugin that is not there: %+v", got)
	}
}

// The way in which PMIx meets: the user's word goes before the cluster's, and the default is a warning.
func TestFences(t *testing.T) {
	config := func(line string) map[string]string {
		return map[string]string{"bin/scontrol": "printf 'AuthInfo = x\\nMPI Plugins Configuration:\\n" + line + "\\nPMIxDebug               = 0\\n'\n"}
	}
	for _, c := range []struct {
		files map[string]string
		env   string
		warns bool
	}{
		{nil, "", true},
		{config("PMIxCollFence           = (null)"), "", true},
		{config("PMIxCollFence           = mixed"), "", true},
		{config("PMIxCollFence           = ring"), "", false},
		{config("PMIxCollFence           = (null)"), "tree", false},
		{config("PMIxCollFence           = tree"), "mixed", true},
	} {
		h := host(t, c.files)
		h.Env = append(h.Env, "SLURM_PMIX_FENCE="+c.env)
		if got := h.fences(t.Context()); len(got) > 0 != c.warns || c.warns && got[0].Level != Warning {
			t.Errorf("%v, SLURM_PMIX_FENCE=%s: %v", c.files, c.env, got)
		}
	}
}

// TestHangingProgram shows that a daemon that never answers costs the limit and no more, and leaves no process.
func TestHangingProgram(t *testing.T) {
	h := host(t, map[string]string{"bin/hang": "/bin/sleep 600 & echo begun; wait\n"})
	begin := time.Now()
	out, err := h.command(t.Context(), 300*time.Millisecond, nil, h.look("hang"))
	if err == nil || out != "begun" || time.Since(begin) > 30*time.Second {
		t.Errorf("output %q, error %v after %v", out, err, time.Since(begin))
	}
	if got := because(out, err); got != "no answer within 300ms; it printed: begun" {
		t.Errorf("reported as %q", got)
	}
}
