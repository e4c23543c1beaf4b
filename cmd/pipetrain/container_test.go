package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/exitcode"
)

// container makes an image for Charliecloud: a bare root for the host's /usr, which has the MPI
// libraries, and with a BLAS library that is nowhere else, so that a run that has it was inside.
// It returns what a run inside needs, and what gives the same bits outside.
func container(t testing.TB) (image string, options, inside, outside []string) {
	t.Helper()
	blas, err := filepath.EvalSymlinks("/usr/lib/x86_64-linux-gnu/libopenblas.so.0")
	if _, err2 := exec.LookPath("ch-run"); err != nil || err2 != nil {
		t.Skipf("%v, %v: scripts/install-test-deps.sh", err, err2)
	}
	image = filepath.Join(t.TempDir(), "image")
	for _, dir := range []string{"usr", "etc", "tmp", "run", "proc", "sys", "dev", "home", "inside"} {
		if err := os.MkdirAll(filepath.Join(image, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"passwd", "group", "hosts", "resolv.conf"} {
		if err := os.WriteFile(filepath.Join(image, "etc", file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{"bin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+link, filepath.Join(image, link)); err != nil {
			t.Fatal(err)
		}
	}
	// /run has what srun's PMIx server shows its ranks.
	options = []string{"--bind=/usr", "--bind=/tmp", "--bind=/run", "--bind=" + filepath.Dir(blas) + ":/inside"}
	return image, options, []string{"device.blas=/inside/" + filepath.Base(blas)}, []string{"device.blas=" + blas}
}

// outsideLosses are those of a run on the host with the same library.
func outsideLosses(t testing.TB, job string, sets []string) []float64 {
	t.Helper()
	out := filepath.Join(t.TempDir(), "outside")
	args := []string{"--quiet", "--out", out}
	for _, set := range sets {
		args = append(args, "--set", set)
	}
	mustRun(t, append(args, job)...)
	return losses(t, out)
}

// TestContainer has pipetrain start its ranks inside a container.
func TestContainer(t *testing.T) {
	image, options, inside, outside := container(t)
	job := writeJob(t, tinyJob)
	out := filepath.Join(t.TempDir(), "run")
	before := sharedMemory(t)
	e := begin(t, slices.Concat([]string{"env", "USER=root", "ch-run"}, options, []string{image, "--", pipetrainPath, "--quiet", "--out", out, "--set", inside[0], job})...).wait()
	if e.code != 0 {
		t.Fatal(e)
	}
	if got, want := losses(t, out), outsideLosses(t, job, outside); !slices.Equal(got, want) {
		t.Errorf("losses %v inside, %v outside", got, want)
	}
	nothingLeft(t, before)
}

// slurmContainers has batch jobs run their ranks in containers, over two nodes.
func slurmContainers(t *testing.T, job string) {
	for _, mpi := range []string{"pmix", "pmi2"} {
		t.Run(mpi, func(t *testing.T) {
			t.Parallel()
			inTurn(t)
			slurmContainer(t, job, mpi)
		})
	}
}

func slurmContainer(t *testing.T, job, mpi string) {
	image, options, inside, outside := container(t)
	out := filepath.Join(t.TempDir(), "run")
	args := []string{"--out", out, "--set", "slurm.container=" + image, "--set", "slurm.container_tool=charliecloud", "--set", inside[0],
		"--set", `slurm.environment=["USER=root"]`, "--set", "slurm.nodes=2", "--set", "slurm.mpi=" + mpi}
	// Ranks of a node share memory only within one container.
	options = append(options, "--join-ct=2")
	args = append(args, "--set", `slurm.container_options=["`+strings.Join(options, `","`)+`"]`)
	jobEnds(t, submitted(t, append(args, job)...), out)
	rec, err := exitcode.Read(out)
	if err != nil || rec.Code != exitcode.Finished {
		t.Fatalf("exit record %+v, %v:\n%s", rec, err, jobLogs(out))
	}
	if got, want := losses(t, out), outsideLosses(t, job, outside); !slices.Equal(got, want) {
		t.Errorf("losses %v inside, %v outside", got, want)
	}
}
