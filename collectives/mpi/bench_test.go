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
	if err == nil && tr.Rank() == 0 {
		transporttest.PrintFigures(os.Stdout, figures)
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
			var figures []transporttest.Figure
			add := func(to map[string][]float64, p *transporttest.Process) {
				transporttest.Check(b, []*transporttest.Process{p})
				figures = transporttest.ParseFigures(p.Output.String())
				for _, f := range figures {
					to[f.Name] = append(to[f.Name], f.Value)
				}
			}
			for range b.N {
				add(ours, l.start(b, 2, "bench"))
				if plain != "" {
					add(c, l.startProgram(b, 2, plain, os.Environ()))
				}
			}
			for _, f := range figures {
				o := median(ours[f.Name])
				b.ReportMetric(o, f.Unit+"/"+f.Name)
				if plain == "" {
					continue
				}
				p := median(c[f.Name])
				b.ReportMetric(p, f.Unit+"/"+f.Name+"-C")
				ratio := o / p
				if f.Unit == "GB/s" {
					ratio = p / o
				}
				b.ReportMetric(ratio, "ratio/"+f.Name)
			}
		})
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	if len(v) == 0 {
		return 0
	}
	return v[len(v)/2]
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
