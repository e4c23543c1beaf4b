package launcher

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The lines for one job under every launcher, and the explanations of every
// pair that does not fit.
func TestCommandsGolden(t *testing.T) {
	var b strings.Builder
	job := Job{Binary: "pipetrain", Args: []string{"--set", "train.steps=20", "my job.toml"}, Ranks: 8}
	placed := job
	placed.Nodes, placed.RanksPerNode = 2, 4
	for _, kind := range []Kind{Alone, Local, OpenMPI, Hydra, PALS, Flux, Srun, Torchrun} {
		for _, lib := range []Library{LibraryOpenMPI, LibraryMPICH} {
			fmt.Fprintf(&b, "%s, %s\n  %s\n  %s\n", kind, lib, Shell(Command(kind, lib, job)), Shell(Command(kind, lib, placed)))
		}
	}
	root := job
	root.Root = true
	fmt.Fprintf(&b, "as root\n  %s\n\n", MpirunLine(LibraryOpenMPI, root))
	for _, c := range []struct {
		w   World
		lib Library
	}{
		{World{Launcher: OpenMPI, Size: 4}, LibraryMPICH},
		{World{Launcher: Hydra, Size: 4}, LibraryOpenMPI},
		{World{Launcher: Srun, Size: 4, PMI: "pmix"}, LibraryMPICH},
		{World{Launcher: Srun, Size: 4, PMI: "pmi2"}, LibraryOpenMPI},
		{World{Launcher: Srun, Size: 4}, LibraryOpenMPI},
		{World{Launcher: Torchrun, Size: 4}, LibraryOpenMPI},
	} {
		b.WriteString(Mismatch(c.w, c.lib, "/usr/lib/libmpi.so", "4.1", 1, job) + "\n")
	}
	const golden = "testdata/commands.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("differs from %s (-update rewrites it):\n%s", golden, b.String())
	}
}

// A real shell splits what Shell joined.
func TestShell(t *testing.T) {
	args := []string{"plain", "", "two words", "it's", `a"b\c`, "$HOME", "*", "new\nline", "ünï", "--set=x=[1,2]", "~"}
	out, err := exec.Command("/bin/sh", "-c", "for a in "+Shell(args)+"; do printf '%s\\0' \"$a\"; done").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); fmt.Sprint(got) != fmt.Sprint(args) || len(got) != len(args) {
		t.Errorf("the shell made %q of %q", got, args)
	}
}
