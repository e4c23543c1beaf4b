package plan

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cpu"
	"github.com/pipetrain/pipetrain/rank"
	"github.com/pipetrain/pipetrain/schedule"
)

var update = flag.Bool("update", false, "rewrite the files under testdata that tests compare with")

// The planned arenas of the example jobs, and of every kind and placement on 4 ranks, have the bytes
// that they had when the file was written, rank by rank. What frees memory on purpose says so and rewrites the file (-update).
func TestSameArenas(t *testing.T) {
	dev, err := cpu.New(cpu.Options{Threads: 1, BLAS: "go", ISA: "go"})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	var out strings.Builder
	add := func(name string, spec *jobs.Spec, err error) {
		var bytes []int64
		if err == nil {
			bytes, err = arenasOf(spec, dev)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		fmt.Fprintf(&out, "%s:%s\n", name, runs(bytes))
	}
	corpus := filepath.Join(t.TempDir(), "corpus.txt")
	if err := os.WriteFile(corpus, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob("../jobs/examples/*.toml")
	if err != nil || len(paths) < 11 {
		t.Fatalf("%d examples (%v)", len(paths), err)
	}
	for _, path := range append(paths, "../jobs/testdata/rehearse.toml", "../jobs/testdata/slurm.toml") {
		spec, err := jobs.Load(path, []string{"data.path=" + corpus})
		add(strings.TrimSuffix(filepath.Base(path), ".toml"), spec, err)
	}
	for _, info := range schedule.Kinds() {
		placements := []string{"fused", "lagged", "cooldown", "cooldown concat=all", "end"}
		if info.Split {
			placements = append(placements, "native")
		}
		if info.Async {
			placements = placements[:1]
		}
		for _, p2 := range placements {
			sets := []string{"schedule.kind=" + info.Name}
			for i, s := range strings.Fields(p2) {
				sets = append(sets, "schedule."+[]string{"backward_p2=", ""}[i]+s)
			}
			spec, err := jobs.Parse("test.toml", []byte(testJob), sets, ".")
			add(info.Name+" "+p2, spec, err)
		}
	}

	path := filepath.Join("testdata", "arenas.txt")
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, old := strings.Split(out.String(), "\n"), strings.Split(string(want), "\n")
	for _, line := range got {
		if !slices.Contains(old, line) {
			t.Errorf("now      %s", line)
		}
	}
	for _, line := range old {
		if !slices.Contains(got, line) {
			t.Errorf("it was   %s", line)
		}
	}
}

// arenasOf returns the bytes that each pipeline rank of a job reserves.
func arenasOf(spec *jobs.Spec, ops kernels.Ops) (bytes []int64, err error) {
	w, err := rank.WorkOf(spec)
	if err != nil {
		return nil, err
	}
	all, err := rank.PlanMemories(w, ops)
	for _, m := range all {
		bytes = append(bytes, m.Arena)
	}
	return bytes, err
}

// runs prints numbers, those that repeat once: " 7 5×3".
func runs(x []int64) string {
	var out strings.Builder
	for i := 0; i < len(x); {
		n := 1
		for i+n < len(x) && x[i+n] == x[i] {
			n++
		}
		fmt.Fprintf(&out, " %d", x[i])
		if n > 1 {
			fmt.Fprintf(&out, "×%d", n)
		}
		i += n
	}
	return out.String()
}
