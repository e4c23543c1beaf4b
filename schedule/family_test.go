package schedule

import "testing"

// Idle time a rank by makespan of the larger family, where the closed forms hold; times are of
// one chunk. Those of the literature are for tW <= tI, tF or equal times; here
// min(tF, tI, tW) stands for tW where that widens them.
func TestFamilyClosedForms(t *testing.T) {
	costs := [][3]float64{{1, 1, 1}, {2, 2, 1}, {1, 2, 1}, {1, 2, 2}, {2, 1, 1}, {1, 1, 2}, {3, 2, 1}, {1, 2, 3}, {2, 1, 3}, {1, 3, 2}, {2, 3, 2}, {5, 5, 4}, {0.7, 1.3, 0.9}}
	always := func(f, i, w float64) bool { return true }
	all := func(f, i, w float64) float64 { return f + i + w }
	filled := func(f, i, w float64) float64 { return f + i - min(f, i, w) }
	for _, c := range []struct {
		kind   string
		chunks []int
		valid  func(p, m int) bool
		holds  func(f, i, w float64) bool
		idle   func(f, i, w float64) float64
	}{
		{"interleaved", []int{1, 2, 3, 4}, func(p, m int) bool { return m%p == 0 }, always, all},
		{"looped-bfs", []int{1, 2, 3, 4}, func(p, m int) bool { return m >= p }, always, all},
		{"zb-h1", []int{1}, func(p, m int) bool { return m >= p }, always, filled},
		{"interleaved-zb", []int{1, 2, 3, 4}, func(p, m int) bool { return m%p == 0 }, always, filled},
		{"zb-h2", []int{1}, func(p, m int) bool { return m >= 2*p-1 }, always,
			func(f, i, w float64) float64 { return max(f, f+i-2*min(f, i, w)) }},
		{"zb-v", []int{2}, func(p, m int) bool { return m >= 2*p-1 },
			func(f, i, w float64) bool { return f <= i && w <= i }, func(f, i, w float64) float64 { return i }},
		{"dualpipe-v", []int{2}, func(p, m int) bool { return m >= 2*p },
			func(f, i, w float64) bool { return i <= f }, filled},
		{"pipedream", []int{1}, func(p, m int) bool { return true }, always, all},
		{"pipedream-2bw", []int{1}, func(p, m int) bool { return m%p == 0 }, always, all},
	} {
		n := 0
		for _, v := range c.chunks {
			for p := 1; p <= 16; p += 1 + p/5 {
				for m := 1; m <= 64; m++ {
					if !c.valid(p, m) || m > 20 && m%16 != 0 {
						continue
					}
					s := build(t, c.kind, p, m, v, Policy{})
					for _, x := range costs {
						f, i, w := x[0], x[1], x[2]
						if !c.holds(f, i, w) {
							continue
						}
						n++
						want := float64(p-1)*c.idle(f, i, w) + float64(m*v)*(f+i+w)
						if got := simulate(t, s, Uniform(f, i, w)).Makespan(); !near2(got, want) {
							t.Errorf("%s p=%d m=%d v=%d times %v: makespan %v, want %v", c.kind, p, m, v, x, got, want)
						}
					}
				}
			}
		}
		if n < 50 {
			t.Errorf("%s: %d cases only", c.kind, n)
		}
	}
}

// Zero bubble's claim for equal times: no gap within a rank.
func TestNoGapWithinRanks(t *testing.T) {
	for p := 1; p <= 12; p++ {
		for _, m := range []int{2*p - 1, 2 * p, 4 * p} {
			for _, kind := range []string{"zb-h2", "zb-v"} {
				if gap := simulate(t, build(t, kind, p, m, 0, Policy{}), Units()).InnerBubble(); gap > 1e-12 {
					t.Errorf("%s p=%d m=%d: %.1f %% idle within ranks", kind, p, m, 100*gap)
				}
			}
		}
	}
}

// Peaks as published, in activations of one chunk.
func TestFamilyPeaks(t *testing.T) {
	for p := 1; p <= 16; p++ {
		for _, c := range []struct {
			kind string
			m, v int
			want int
		}{
			{"interleaved", 4 * p, 1, p + p - 1},
			{"interleaved", 4 * p, 2, 2*p + p - 1},
			{"interleaved", 4 * p, 3, 3*p + p - 1},
			{"interleaved", 4 * p, 4, 4*p + p - 1},
			{"looped-bfs", 3 * p, 2, 6 * p},
			{"zb-h1", 4 * p, 1, p},
			{"zb-h2", 4 * p, 1, 2*p - 1},
			{"interleaved-zb", 4 * p, 2, 2 * p},
			{"interleaved-zb", 4 * p, 3, 3 * p},
			{"zb-v", 4 * p, 2, 2 * p},
			{"v-half", 4 * p, 2, 2 * ((p + 2) / 2)},
			{"v-min", 4 * p, 2, 2 * ((p + 4) / 3)},
			{"dualpipe-v", 4 * p, 2, 2*p + 1},
			{"hanayo", p, 2, 2 * p},
			{"chimera", 4 * p, 1, p},
			{"pipedream", 4 * p, 1, p},
		} {
			if c.kind == "chimera" && p%2 != 0 {
				continue
			}
			most := 0
			for _, peak := range PeakMicrobatches(build(t, c.kind, p, c.m, c.v, Policy{})) {
				most = max(most, peak.Live)
			}
			if most != c.want {
				t.Errorf("%s p=%d m=%d v=%d: %d live, want %d", c.kind, p, c.m, c.v, most, c.want)
			}
		}
	}
}

// The V-shape schedules' bubbles: about 2p/3 and p/2 micro-batches, and one for the ends.
func TestVShapeBubbles(t *testing.T) {
	for p := 2; p <= 16; p++ {
		for kind, share := range map[string]float64{"v-min": 2. / 3, "v-half": 1. / 2} {
			m := 4 * p
			got := simulate(t, build(t, kind, p, m, 0, Policy{}), Units()).Makespan()/6 - float64(m)
			if got > share*float64(p)+1 {
				t.Errorf("%s p=%d: %.2f micro-batches idle, want about %.2f", kind, p, got, share*float64(p))
			}
		}
	}
}

// Waves and two directions shorten GPipe's and 1F1B's bubble at m = p.
func TestWavesAndDirections(t *testing.T) {
	for p := 4; p <= 16; p += 2 {
		idle := func(kind string, v int) float64 {
			s := build(t, kind, p, p, v, Policy{})
			return simulate(t, s, Units()).Makespan()/float64(s.Stages/p) - float64(3*p)
		}
		base := idle("1f1b", 1)
		if got := idle("chimera", 1); got > 0.7*base {
			t.Errorf("chimera p=%d: idle %v, 1F1B's %v", p, got, base)
		}
		if got := idle("hanayo", 2); got > 0.7*base {
			t.Errorf("hanayo of one wave p=%d: idle %v, 1F1B's %v", p, got, base)
		}
		if got := idle("hanayo", 4); got > 0.4*base {
			t.Errorf("hanayo of two waves p=%d: idle %v, 1F1B's %v", p, got, base)
		}
	}
}

func TestWeightVersions(t *testing.T) {
	for p := 1; p <= 8; p++ {
		m := 6 * p
		s := build(t, "pipedream", p, m, 0, Policy{})
		versions := Versions(s)
		for r, got := range PeakVersions(s) {
			if want := p - r; got != want {
				t.Errorf("pipedream p=%d rank %d: %d versions, want %d", p, r, got, want)
			}
			for k, v := range versions[r] {
				// Rank r has p-1-r forwards in hand when it starts to update.
				if want := max(0, k-(p-1-r)); v != want {
					t.Errorf("pipedream p=%d: micro-batch %d reads version %d of stage %d, want %d", p, k, v, r, want)
				}
			}
		}
		s = build(t, "pipedream-2bw", p, m, 0, Policy{})
		for r, got := range PeakVersions(s) {
			if got != 2 {
				t.Errorf("pipedream-2bw p=%d rank %d: %d versions, want 2", p, r, got)
			}
		}
		for stage, versions := range Versions(s) {
			for k, v := range versions {
				if want := max(0, k/p-1); v != want {
					t.Errorf("pipedream-2bw p=%d: micro-batch %d reads version %d of stage %d, want %d", p, k, v, stage, want)
				}
			}
		}
	}
	for r, got := range PeakVersions(build(t, "1f1b", 4, 8, 0, Policy{})) {
		if got != 1 {
			t.Errorf("1f1b rank %d: %d versions", r, got)
		}
	}
	// A forward that reads weights that are not made yet.
	s := build(t, "pipedream-2bw", 2, 8, 0, Policy{})
	s.Async.Delay = 0
	if err := Check(s); err == nil {
		t.Error("forwards read versions before they are made, and Check accepts it")
	}
}
