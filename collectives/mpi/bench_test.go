package mpi_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/collectives/transporttest"
)

func benchRank(ctx context.Context, tr collectives.Transport) error {
	figures, err := transporttest.Measure(ctx, tr)
	if err != nil {
		return err
	}
	more, err := transporttest.Overlap(ctx, tr)
	if err == nil && tr.Rank() == 0 {
		transporttest.PrintFigures(os.Stdout, append(figures, more...))
	}
	return err
}

// BenchmarkAgainstC measures this transport and a plain C program on the same
// MPI, in turns, two ranks, and reports both and their ratio (above 1: slower
// than C).
func BenchmarkAgainstC(b *testing.B) {
	for _, l := range launchers(b) {
		b.Run(l.name, func(b *testing.B) {
			plain := compileC(b, l)
			ours, c := map[string][]float64{}, map[string][]float64{}
			units := map[string]string{}
			add := func(to map[string][]float64, p *transporttest.Process) {
				transporttest.Check(b, []*transporttest.Process{p})
				for _, f := range transporttest.ParseFigures(p.Output.String()) {
					to[f.Name] = append(to[f.Name], f.Value)
					units[f.Name] = f.Unit
				}
			}
			for range b.N {
				add(ours, l.start(b, 2, "bench"))
				if plain != "" {
					add(c, l.startProgram(b, 2, plain, os.Environ()))
				}
			}
			for name, unit := range units {
				o := best(unit, ours[name])
				b.ReportMetric(o, unit+"/"+name)
				if len(c[name]) == 0 {
					continue
				}
				p := best(unit, c[name])
				b.ReportMetric(p, unit+"/"+name+"-C")
				ratio := o / p
				if unit == "GB/s" {
					ratio = p / o
				}
				b.ReportMetric(ratio, "ratio/"+name)
			}
		})
	}
}

// best is the run that other programs on the machine disturbed least; of shares, which err
// both ways, the median.
func best(unit string, v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	switch unit {
	case "GB/s":
		return v[len(v)-1]
	case "%":
		return v[len(v)/2]
	}
	return v[0]
}

// BenchmarkWithoutPoller shows what the background poller is for.
func BenchmarkWithoutPoller(b *testing.B) {
	for _, l := range launchers(b) {
		b.Run(l.name, func(b *testing.B) {
			for range b.N {
				p := l.start(b, 2, "bench without poller")
				transporttest.Check(b, []*transporttest.Process{p})
				for _, f := range transporttest.ParseFigures(p.Output.String()) {
					if f.Unit == "%" {
						b.ReportMetric(f.Value, f.Unit+"/"+f.Name)
					}
				}
			}
		})
	}
}

// compileC builds the C program with the compiler of this MPI; "" without one.
func compileC(t testing.TB, l launcher) string {
	cc, err := exec.LookPath("mpicc." + l.name)
	if err != nil {
		t.Logf("no mpicc.%s: no C program to compare with (install libopenmpi-dev, libmpich-dev)", l.name)
		return ""
	}
	exe := filepath.Join(t.TempDir(), "bench")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, cc, "-O2", "-o", exe, "testdata/bench.c").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cc, err, out)
	}
	return exe
}
