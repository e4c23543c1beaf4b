package jobs

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// roundTrip checks that the resolved job loads back to the same Spec from
// another file in another folder, and resolves to the same text.
func roundTrip(t testing.TB, s *Spec) {
	t.Helper()
	text := s.Resolved()
	again, err := Parse("/elsewhere/resolved.toml", text, nil, "/elsewhere")
	if err != nil {
		t.Fatalf("the resolved job does not load:\n%v\n%s", err, text)
	}
	if !reflect.DeepEqual(s, again) {
		t.Fatalf("the resolved job is another one:\n%+v\n%+v\n%s", s, again, text)
	}
	if string(again.Resolved()) != string(text) {
		t.Fatal("the resolved job resolves to another text")
	}
}

func TestResolvedHasEveryKey(t *testing.T) {
	s := parse(t, minimal)
	s.Run.Dir = "/runs"
	golden(t, "testdata/resolved.golden", string(s.Resolved()))
	for _, k := range Keys() {
		if strings.Contains(string(s.Resolved()), "\n"+k.leaf()+" = ") != k.of(s.Model.Kind) && k.Name != "name" {
			t.Errorf("%s is missing, or there without being the family's", k.Name)
		}
	}
}

// Random jobs, each key with a value somewhere in its range, must survive.
func TestResolvedRoundTrip(t *testing.T) {
	dir := t.TempDir()
	corpus := filepath.Join(dir, `a "corpus" \ é😀.txt`)
	if err := os.WriteFile(corpus, make([]byte, 200_000), 0o644); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	loaded := 0
	for range 400 {
		sets := randomSets(r, corpus)
		s, err := Parse("job.toml", []byte(minimal), sets, dir)
		if err != nil {
			continue // an impossible combination; the others count
		}
		loaded++
		roundTrip(t, s)
	}
	if loaded < 100 {
		t.Errorf("only %d of 400 random jobs loaded: the test tests little", loaded)
	}
}

// randomSets overrides a random half of the keys.
func randomSets(r *rand.Rand, corpus string) []string {
	micro := 1 << r.IntN(4)
	sets := []string{fmt.Sprintf("schedule.microbatches=%d", micro), fmt.Sprintf("train.batch=%d", 16*micro)}
	add := func(key string, v any) {
		if r.IntN(2) == 0 {
			sets = append(sets, fmt.Sprintf("%s=%v", key, v))
		}
	}
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	add("name", pick("a", "x-1.2_3", "2026", "true", "1e5"))
	add("seed", int64(r.Uint64()))
	add("model.layers", 4+r.IntN(8))
	add("model.heads", 1<<r.IntN(5))
	add("model.kv_heads", 1<<r.IntN(2))
	add("model.ffn", 1+r.IntN(1000))
	add("model.tied", r.IntN(2) == 0)
	add("model.rope_base", 1+r.ExpFloat64()*1e4)
	add("model.norm_eps", r.Float64())
	if r.IntN(2) == 0 {
		sets = append(sets, "data.kind=text", "data.path="+corpus)
		add("data.holdout", r.Float64()/2)
	}
	add("optimizer.kind", pick("adamw", "sgd"))
	add("optimizer.lr", math.Exp(-20*r.Float64()))
	add("optimizer.min_lr", math.Exp(-20-9*r.Float64()))
	add("optimizer.warmup", r.IntN(10))
	add("optimizer.beta2", r.Float64())
	add("optimizer.clip", r.IntN(3))
	add("parallel.stages", 1+r.IntN(4))
	add("parallel.replicas", 1<<r.IntN(3))
	add("schedule.kind", pick("naive", "gpipe", "1f1b"))
	add("schedule.backward_p2", pick("fused", "lagged", "cooldown", "end", "native"))
	add("schedule.concat", pick("all", "1", "2"))
	add("schedule.memory_limit", pick("70GiB", "1", "1.5MiB", "3kB", "", fmt.Sprint(r.Int64()>>2)))
	add("device.blas", pick("go", "/lib/x.so", "./y.so"))
	add("device.threads", r.IntN(8))
	add("transport.libmpi", pick("libmpi.so", "a/b.so", ""))
	add("run.hello_timeout", time.Duration(1+r.Int64N(int64(time.Hour))))
	add("run.start_timeout", time.Duration(1+r.Int64N(int64(time.Hour))))
	add("run.stall_timeout", time.Duration(r.Int64N(int64(time.Hour))))
	add("slurm.time", pick("30", "04:00:00", "1-12", "UNLIMITED"))
	add("slurm.array", pick("0-9", "1,3,5%2"))
	add("slurm.requeue", r.IntN(2) == 0)
	add("slurm.signal_before", time.Duration(r.Int64N(int64(time.Hour))))
	add("slurm.modules", pick(`["gcc/12", "openmpi"]`, "[]", "gcc/12"))
	add("slurm.environment", pick(`["A=x \"y\" \\z", 'B=$(rm)']`, `["C="]`))
	add("slurm.container", pick("docker://org/image:1", "a/b.sif", "name"))
	add("checkpoint.every", r.IntN(1000))
	return sets
}

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		in   any
		want int64
	}{
		{"70GiB", 70 << 30}, {"512MiB", 512 << 20}, {"512 MiB", 512 << 20}, {"1.5KiB", 1536}, {"2GB", 2e9}, {"1TiB", 1 << 40},
		{"123456", 123456}, {int64(123456), 123456}, {"", 0}, {int64(0), 0}, {"7B", 7}, {"1e3", 1000}, {2e9, 2e9},
		{"9007199254740993", 9007199254740993}, // above 2^53: not through a float
	} {
		got, wrong := parseBytes(c.in)
		if wrong != "" || got != c.want {
			t.Errorf("%v: %d %s, want %d", c.in, got, wrong, c.want)
		}
		again, wrong := parseBytes(Bytes(got).String())
		if wrong != "" || again != got {
			t.Errorf("%v prints as %q, which reads as %d (%s)", c.in, Bytes(got), again, wrong)
		}
	}
	for _, in := range []any{"-1", int64(-1), "GiB", "70 gb", "1.5", "nan", "inf", "NaNGiB", "1e300TiB", "9999999TiB", true, []any{}, "0x10", "1GiB MiB", math.NaN(), -0.5, int64(math.MinInt64)} {
		if got, wrong := parseBytes(in); wrong == "" {
			t.Errorf("%v is read as %d bytes", in, got)
		}
	}
	for _, in := range []any{"", "soon", "1", "5 s", true, "nan", math.Inf(1), "1e30", 1e30, "9999999h"} {
		d, wrong := parseDuration(in)
		if in == "1" && d == time.Second && wrong == "" {
			continue
		}
		if wrong == "" {
			t.Errorf("%v is read as %v", in, d)
		}
	}
}
