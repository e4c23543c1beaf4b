package study

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func results(t *testing.T, path string) *Results {
	t.Helper()
	r, err := ReadResults(path)
	if err != nil {
		t.Fatal(err)
	}
	r.Name = filepath.Base(path)
	return r
}

// The tables have benchstat's figures: medians, intervals, p-values with and without ties. The golden
// files are what benchstat (the version in the Makefile) printed for the same two files.
func TestTablesAreBenchstats(t *testing.T) {
	sides := []*Results{results(t, "testdata/old.txt"), results(t, "testdata/new.txt")}
	var text, csv strings.Builder
	for _, table := range Tables(sides, nil) {
		if err := table.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if err := table.WriteCSV(&csv); err != nil {
			t.Fatal(err)
		}
	}
	words := func(s string) []string { return strings.Fields(strings.NewReplacer("│", " ").Replace(s)) }
	golden := func(name string, keep func(string) bool) (lines []string) {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(string(b)) {
			if l = strings.TrimSpace(l); l != "" && keep(l) {
				lines = append(lines, strings.Join(words(l), " "))
			}
		}
		return lines
	}
	own := func(s string) (lines []string) {
		for l := range strings.Lines(s) {
			if w := words(l); len(w) > 0 {
				lines = append(lines, strings.Join(w, " "))
			}
		}
		return lines
	}
	config := func(l string) bool { return !strings.HasPrefix(l, "goos:") && !strings.HasPrefix(l, "cpu:") }
	compareLines(t, own(text.String()), golden("benchstat.golden", config))
	// benchstat pads short lines of its CSV with nothing, and adds geometric means.
	trim := func(lines []string) (out []string) {
		for _, l := range lines {
			if l = strings.TrimRight(l, ","); !strings.HasPrefix(l, "geomean") {
				out = append(out, l)
			}
		}
		return out
	}
	compareLines(t, trim(own(csv.String())), trim(golden("benchstat.csv", config)))
}

func compareLines(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := "", ""
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("line %d\n got %s\nwant %s", i+1, g, w)
		}
	}
}

// What --benchfmt writes reads back to the same samples.
func TestBenchmarksRoundTrip(t *testing.T) {
	r := results(t, "testdata/old.txt")
	path := filepath.Join(t.TempDir(), "again.txt")
	var b strings.Builder
	if err := r.WriteBenchmarks(&b, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	again := results(t, path)
	for key, v := range r.samples {
		if !slices.Equal(v, again.samples[key]) {
			t.Errorf("%v: %v, read back %v", key, v, again.samples[key])
		}
	}
	if got := benchmarkName("1F1B + 2BP, 4 stages"); got != "1F1B_+_2BP,_4_stages" {
		t.Errorf("name %q", got)
	}
}

func TestJudge(t *testing.T) {
	base := []float64{1, 1.01, 0.99, 1.02, 0.98}
	times := func(v []float64, by float64) []float64 {
		out := slices.Clone(v)
		for i := range out {
			out[i] *= by
		}
		return out
	}
	noisy := []float64{1, 1.4, 0.7, 1.6, 0.9}
	for _, c := range []struct {
		name      string
		new, old  []float64
		want      Verdict
		suspect   bool
		threshold float64
	}{
		{"itself", base, base, Same, false, 0.05},
		{"10 % slower", times(base, 1.1), base, Slower, true, 0.05},
		{"10 % faster", times(base, 1/1.1), base, Faster, false, 0.05},
		{"2 % slower", times(base, 1.02), base, Same, false, 0.05},
		{"4.5 % slower", times(base, 1.045), base, Unclear, true, 0.05},
		{"4.5 % slower, threshold 10 %", times(base, 1.045), base, Same, false, 0.1},
		{"noise", times(noisy, 1.1), noisy, Unclear, false, 0.05},
		{"nothing", nil, base, Missing, false, 0.05},
		{"two runs", times(base, 2)[:2], base[:2], Unclear, false, 0.05},
	} {
		j := Judge(c.new, c.old, c.threshold, 1)
		if j.Verdict != c.want || j.Suspect != c.suspect {
			t.Errorf("%s: %s, suspect %v (%+v), want %s, %v", c.name, j.Verdict, j.Suspect, j, c.want, c.suspect)
		}
	}
	if j := Judge(times(base, 1.1), base, 0.05, 1); math.Abs(j.Ratio-1.1) > 1e-12 || j.Interval.Lo > 1.1 || j.Interval.Hi < 1.1 || j.P > 0.0080 {
		t.Errorf("%+v", j)
	}
	for _, c := range []struct {
		new, old []float64
		memory   bool
		want     Verdict
	}{
		{[]float64{5, 5}, []float64{5}, true, Same}, {[]float64{6}, []float64{5}, true, More}, {[]float64{4}, []float64{5}, true, Less},
		{[]float64{2.5}, []float64{2.5000001}, false, Changed}, {[]float64{1, 2}, []float64{1, 2}, false, Unclear}, {nil, []float64{1}, true, Missing},
	} {
		if j := JudgeExact(c.new, c.old, c.memory); j.Verdict != c.want {
			t.Errorf("%v, %v: %s, want %s", c.new, c.old, j.Verdict, c.want)
		}
	}
	nights := []float64{1, 1.01, 0.99, 1, 1.02, 0.98, 1, 1.01, 0.99, 1}
	for x, want := range map[float64]Verdict{1.03: Same, 1.1: Slower, 0.9: Faster} {
		if j := JudgeHistory([]float64{x}, nights, 0.05); j.Verdict != want {
			t.Errorf("history: %v is %s, want %s", x, j.Verdict, want)
		}
	}
	if j := JudgeHistory([]float64{1}, nights[:9], 0.05); j.Verdict != New {
		t.Errorf("nine nights: %s", j.Verdict)
	}
}

// night makes the runs of candidate and control of one night: noise of a run, of the night and of the
// night for a case, as shares. Both sides of a night share the latter two.
type nights struct {
	r               *rand.Rand
	run, night, own float64
	oneSided        bool // runs are slowed down by what else happens, never sped up
}

func (n nights) sample(night float64, count int, slower float64) []float64 {
	v := make([]float64, count)
	for i := range v {
		x := n.r.NormFloat64()
		if n.oneSided {
			x = math.Abs(x)
		}
		v[i] = night * slower * math.Exp(n.run*x)
	}
	return v
}

// TestGateErrorRates simulates nights of 24 cases and five repeats, one case 10 % slower, and holds the
// rates of false alarms (nights with one) and of slowdowns found: what docs/studies.md promises, and
// why the control runs in the same rounds.
func TestGateErrorRates(t *testing.T) {
	const count, cases = 300, 24
	for _, c := range []struct {
		run, night, own float64
		oneSided        bool
		alarms          int     // nights with a false alarm, at most
		found           float64 // share, at least
		storedAlarms    float64 // share of nights of the U test against a stored night, at least
	}{{0.02, 0.01, 0.01, false, 0, 0.99, 0.7}, {0.05, 0.02, 0.02, true, 3, 0.85, 0.7}, {0.05, 0.02, 0.02, false, 9, 0.5, 0.7}} {
		n := nights{rand.New(rand.NewPCG(11, 12)), c.run, c.night, c.own, c.oneSided}
		alarms, stored, found := 0, 0, 0
		baseline := make([][]float64, cases)
		for i := range baseline {
			baseline[i] = n.sample(math.Exp(c.own*n.r.NormFloat64()), 5, 1)
		}
		for range count {
			tonight := math.Exp(c.night * n.r.NormFloat64())
			alarm, old := false, false
			for i := range cases {
				slower := 1.0
				if i == 0 {
					slower = 1.1
				}
				here := tonight * math.Exp(c.own*n.r.NormFloat64())
				candidate, control := n.sample(here, 5, slower), n.sample(here, 5, 1)
				j := quickJudge(candidate, control)
				if j.Suspect {
					candidate, control = append(candidate, n.sample(here, 5, slower)...), append(control, n.sample(here, 5, 1)...)
					j = quickJudge(candidate, control)
				}
				if i == 0 && j.Verdict == Slower {
					found++
				}
				alarm = alarm || i > 0 && j.Verdict == Slower
				old = old || i > 0 && ulow(candidate[:5], baseline[i])
			}
			if alarm {
				alarms++
			}
			if old {
				stored++
			}
		}
		t.Logf("noise %v/%v/%v: false alarm in %d of %d nights, found %d; U test against a stored night: %d", c.run, c.night, c.own, alarms, count, found, stored)
		if alarms > c.alarms || float64(found) < c.found*count || float64(stored) < c.storedAlarms*count {
			t.Errorf("noise %v: %d alarms (at most %d), %d found (at least %.0f), %d alarms against a stored night", c.run, alarms, c.alarms, found, c.found*count, stored)
		}
	}
}
