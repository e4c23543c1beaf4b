package schedule

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

type autoProblem struct {
	ID                          string
	Ranks, Microbatches, Chunks int
	Limit                       *int64
	F, I, W                     []float64
	SendF                       []float64 `json:"send_f"`
	SendB                       []float64 `json:"send_b"`
	Bytes                       [][4]int64
	Concat                      int
	OneCopy                     bool `json:"one_copy"`
	Optimum, Found              float64
}

func (a *autoProblem) problem() Problem {
	c := StageCosts{F: a.F, I: a.I, W: a.W, SendF: a.SendF, SendB: a.SendB}
	var bytes []StageBytes
	for _, b := range a.Bytes {
		bytes = append(bytes, StageBytes{b[0], b[1], b[2], b[3]})
	}
	p := Problem{Ranks: a.Ranks, Microbatches: a.Microbatches, Chunks: []int{a.Chunks}, Concat: a.Concat, OneCopy: a.OneCopy,
		Model: func(stages int) (Costs, []StageBytes, bool) { return c, bytes, stages == len(a.F) }}
	if a.Limit != nil {
		p.Limit = []int64{*a.Limit}
	}
	return p
}

func autoProblems(t testing.TB) (list []autoProblem) {
	f, err := os.Open("testdata/auto-problems.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var p autoProblem
		if err := json.Unmarshal(s.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

func TestAutoOptimum(t *testing.T) {
	optimal, small, worst := 0, 0, 0.0
	for _, p := range autoProblems(t) {
		if want := os.Getenv("ONLY"); want != "" && !strings.Contains(p.ID, want) {
			continue
		}
		begin := time.Now()
		s, err := Auto(p.problem())
		if err != nil {
			t.Errorf("%s: %v", p.ID, err)
			continue
		}
		best := max(p.Optimum, p.Found)
		off := s.Makespan/best - 1
		t.Logf("%-24s %v of %v: %+.2f %%, family %v, bound %v, %s, %v", p.ID, s.Makespan, best, 100*off, s.Family, s.Bound, s.Kind, time.Since(begin))
		if s.Bound > best && best > 0 || s.Bound > s.Makespan {
			t.Errorf("%s: bound %v, but %v is known", p.ID, s.Bound, best)
		}
		if !strings.HasPrefix(p.ID, "scale") {
			small++
			worst = max(worst, off)
			if off <= 1e-9 {
				optimal++
			}
		}
	}
	t.Logf("%d of %d optimal, worst %.2f %%", optimal, small, 100*worst)
}
