package local_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/collectives/transporttest"
)

func benchRank(tr collectives.Transport) error {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	figures, err := transporttest.Measure(ctx, tr)
	if err != nil {
		return err
	}
	more, err := transporttest.Overlap(ctx, tr)
	if err != nil {
		return err
	}
	if tr.Rank() == 0 {
		transporttest.PrintFigures(os.Stdout, append(figures, more...))
	}
	return tr.Close()
}

// BenchmarkProcesses: two processes, memory copied from the peer or through the ring.
func BenchmarkProcesses(b *testing.B) {
	for name, mode := range map[string]string{"direct": "bench", "ring": "bench ring"} {
		b.Run(name, func(b *testing.B) {
			all := map[string][]float64{}
			units := map[string]string{}
			for range b.N {
				procs := world(b, 2, mode)
				transporttest.Check(b, procs)
				for _, f := range transporttest.ParseFigures(procs[0].Output.String()) {
					all[f.Name] = append(all[f.Name], f.Value)
					units[f.Name] = f.Unit
				}
			}
			for name, v := range all {
				slices.Sort(v)
				b.ReportMetric(v[len(v)/2], units[name]+"/"+name)
			}
		})
	}
}
