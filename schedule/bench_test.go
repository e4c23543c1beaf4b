package schedule

import (
	"fmt"
	"runtime"
	"testing"
)

// BenchmarkSimulate predicts steps of growing size: time a op should not grow.
// The largest has 12.6 million ops.
func BenchmarkSimulate(b *testing.B) {
	for _, c := range []struct{ p, m int }{{16, 64}, {64, 512}, {256, 1024}, {1024, 4096}} {
		b.Run(fmt.Sprintf("p=%d/m=%d", c.p, c.m), func(b *testing.B) {
			s := build(b, "1f1b", c.p, c.m, 0, Policy{Placement: PlaceLagged, Concat: 1})
			ops := float64(s.Ops())
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			b.ResetTimer()
			for range b.N {
				timeline := simulate(b, s, Units())
				b.StopTimer()
				runtime.ReadMemStats(&after)
				if timeline.Makespan() != float64(3*c.m+c.p-1) {
					b.Fatalf("makespan %v", timeline.Makespan())
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/ops, "ns/schedop")
			b.ReportMetric(ops, "schedops")
			b.ReportMetric(float64(after.Sys)/(1<<30), "GiB-sys")
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	s := build(b, "1f1b", 64, 512, 0, Policy{Placement: PlaceLagged, Concat: 1})
	for range b.N {
		if err := Check(s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLower(b *testing.B) {
	s := build(b, "1f1b", 64, 512, 0, Policy{Placement: PlaceLagged, Concat: 1})
	for range b.N {
		if _, err := Lower(s); err != nil {
			b.Fatal(err)
		}
	}
}
