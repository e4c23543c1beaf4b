package transporttest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
)

// Figure is one measured value: the best of many short rounds, which is what a
// busy machine disturbs least.
type Figure struct {
	Name  string // "8B-latency"
	Value float64
	Unit  string // "µs"
}

// Measure times a transport of at least two ranks: messages to and fro between
// ranks 0 and 1, and an all-reduce of all. Rank 0 gets the figures.
func Measure(ctx context.Context, tr collectives.Transport) ([]Figure, error) {
	var out []Figure
	for _, m := range []struct {
		name          string
		bytes, rounds int
	}{{"8B-latency", 8, 300}, {"64KiB-latency", 64 << 10, 60}, {"4MiB-bandwidth", 4 << 20, 3}} {
		if err := collectives.World(tr).Barrier(ctx); err != nil {
			return nil, err
		}
		if tr.Rank() > 1 {
			continue
		}
		var times []float64
		buf := make([]byte, m.bytes)
		for batch := range 60 {
			began := time.Now()
			for range m.rounds {
				if err := toAndFro(ctx, tr, buf); err != nil {
					return nil, err
				}
			}
			if batch > 0 { // the first one warms up
				times = append(times, time.Since(began).Seconds()/float64(2*m.rounds))
			}
		}
		if m.bytes < 1<<20 {
			out = append(out, Figure{m.name, slices.Min(times) * 1e6, "µs"})
		} else {
			out = append(out, Figure{m.name, float64(m.bytes) / slices.Min(times) / 1e9, "GB/s"})
		}
	}
	sum := make([]float32, 16<<20)
	var times []float64
	for range 10 {
		if err := collectives.World(tr).Barrier(ctx); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := collectives.World(tr).AllReduceSumF32(ctx, sum); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began).Seconds()*1e3)
	}
	return append(out, Figure{"64MiB-allreduce", slices.Min(times[1:]), "ms"}), nil
}

func toAndFro(ctx context.Context, tr collectives.Transport, buf []byte) error {
	if tr.Rank() == 0 {
		if err := tr.Isend(1, 1, buf).Wait(ctx); err != nil {
			return err
		}
		return tr.Irecv(1, 1, buf).Wait(ctx)
	}
	if err := tr.Irecv(0, 1, buf).Wait(ctx); err != nil {
		return err
	}
	return tr.Isend(0, 1, buf).Wait(ctx)
}

// PrintFigures and ParseFigures pass figures from a rank to the test that
// started it; a C program prints the same lines.
func PrintFigures(w io.Writer, figures []Figure) {
	for _, f := range figures {
		fmt.Fprintf(w, "figure %s %.4f %s\n", f.Name, f.Value, f.Unit)
	}
}

// ParseFigures finds the lines of PrintFigures in a program's output.
func ParseFigures(output string) (out []Figure) {
	for line := range strings.Lines(output) {
		f := strings.Fields(line)
		if len(f) == 4 && f[0] == "figure" {
			if v, err := strconv.ParseFloat(f[2], 64); err == nil {
				out = append(out, Figure{f[1], v, f[3]})
			}
		}
	}
	return out
}
