package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/pipetrain/pipetrain/schedule"
)

// shownRanks is how many ranks the tables of the text have at most.
const shownRanks = 16

// WriteText writes the plan for people: the timeline, what it costs, and the table of all schedules.
func (p *Plan) WriteText(out io.Writer, o schedule.DrawOptions) error {
	w := &errWriter{w: out}
	async := ""
	if p.Asynchronous {
		async = ", asynchronous"
	}
	fmt.Fprintf(w, "plan of %s: %s, %d ranks, %d stages, %d micro-batches, %s%s\n", p.Name, p.Result.Name(), p.Ranks, p.Stages, p.Microbatches, p.Precision, async)
	fmt.Fprintf(w, "times from %s\n\n", p.Costs)
	if err := schedule.Draw(w, p.Timeline, o); err != nil {
		return err
	}
	p.writeFigures(w)
	p.writeIdle(w)
	p.writeMemory(w)
	if len(p.Alternatives) > 0 {
		p.writeTable(w)
		p.writeFront(w)
	}
	return w.err
}

// errWriter keeps the first error of a row of writes.
type errWriter struct {
	w   io.Writer
	err error
}

func (e *errWriter) Write(b []byte) (int, error) {
	if e.err == nil {
		_, e.err = e.w.Write(b)
	}
	return len(b), e.err
}

func (p *Plan) time(x float64) string { return formatTime(x, p.Unit) }

func (p *Plan) writeFigures(w io.Writer) {
	fmt.Fprintf(w, "\nstep         %s = makespan %s + optimizer %s\n", p.time(p.StepTime), p.time(p.Makespan), p.time(exact(p.Makespan, p.StepTime-p.Makespan)))
	if p.TokensPerSecond > 0 {
		replicas := ""
		if p.Replicas > 1 {
			replicas = fmt.Sprintf(" over %d replicas", p.Replicas)
		}
		fmt.Fprintf(w, "tokens/s     %.4g%s\n", p.TokensPerSecond, replicas)
	}
	fmt.Fprintf(w, "bubble       %.2f %% by makespan (1 - busy / (ranks × makespan)); %.2f %% within ranks (gaps between a rank's own first and last op)\n",
		100*p.Bubble, 100*p.InnerBubble)
	fmt.Fprintf(w, "lower bound  %s for any order of these stages on these ranks; this one takes %.1f %% more\n", p.time(p.LowerBound), 100*gap(p.Makespan, p.LowerBound))
	fmt.Fprintf(w, "transfers    %d tensors between ranks\n", p.Transfers)
}

func gap(x, bound float64) float64 {
	if bound <= 0 {
		return 0
	}
	return x/bound - 1
}

// ranksShown returns the ranks of the tables, and a note where some are left out.
func (p *Plan) ranksShown() ([]int, string) {
	var ranks []int
	for r := range min(p.Ranks, shownRanks) {
		ranks = append(ranks, r)
	}
	if p.Ranks <= shownRanks {
		return ranks, ""
	}
	ranks[shownRanks-1] = p.Ranks - 1
	return ranks, fmt.Sprintf("… %d more ranks; --json has all\n", p.Ranks-shownRanks)
}

func (p *Plan) writeIdle(w io.Writer) {
	ranks, more := p.ranksShown()
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\nidle\tall\twarm-up\tdependency\ttransfer\tother\tdrain\t\n")
	for _, r := range ranks {
		i := p.IdleParts[r]
		fmt.Fprintf(t, "rank %d\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r, p.time(p.Idle[r]), p.time(i.Warmup), p.time(i.Dependency), p.time(i.Transfer), p.time(i.Other), p.time(i.Drain))
	}
	t.Flush()
	fmt.Fprint(w, more)
}

// memoryOrder is the order of categories: what stays, then what comes and goes.
var memoryOrder = []string{"weights", "gradients", "optimizer", "activations", "p2 inputs", "transfers", "scratch"}

func (p *Plan) writeMemory(w io.Writer) {
	ranks, more := p.ranksShown()
	var others []string // "old weights", "bf16 weights": beside the weights
	for _, m := range p.Memory {
		for c := range m {
			if !slices.Contains(memoryOrder, c) && !slices.Contains(others, c) {
				others = append(others, c)
			}
		}
	}
	slices.Sort(others)
	order := slices.Insert(slices.Clone(memoryOrder), 1, others...)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\nmemory\tpeak\tmicro-batches\t")
	if p.MemoryExact {
		fmt.Fprintf(t, "%s\t", strings.Join(order, "\t"))
	}
	fmt.Fprintln(t)
	for _, r := range ranks {
		fmt.Fprintf(t, "rank %d\t%s\t%.4g\t", r, formatBytes(p.PeakBytes[r]), p.PeakMicrobatches[r])
		if p.MemoryExact {
			for _, c := range order {
				fmt.Fprintf(t, "%s\t", formatBytes(p.Memory[r][c]))
			}
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	fmt.Fprint(w, more)
	if !p.MemoryExact {
		fmt.Fprintln(w, "(estimated from what is live between the ops; a dry step of so many ranks and ops would take long)")
	}
	if p.MemoryLimit > 0 {
		if p.Fits {
			fmt.Fprintf(w, "fits the limit of %s a rank\n", formatBytes(p.MemoryLimit))
		} else {
			fmt.Fprintf(w, "DOES NOT FIT the limit of %s a rank: %s are missing; see what fits below\n", formatBytes(p.MemoryLimit), formatBytes(p.worst-p.MemoryLimit))
		}
	}
}

// writeTable writes a line a kind and a column a placement of backward-p2.
func (p *Plan) writeTable(w io.Writer) {
	var columns []string
	for _, c := range schedule.Placements() {
		columns = append(columns, string(c))
	}
	fmt.Fprintf(w, "\nall schedules: step time, peak memory of the fullest rank; the best joining of W for each\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "schedule\t%s\t\n", strings.Join(columns, "\t"))
	var rows []string
	cells := map[string]map[string]string{}
	for _, r := range p.Alternatives { // by step time: the first of a cell is its best
		row := r.Schedule
		if r.Chunks > 1 {
			row += fmt.Sprintf(" ×%d", r.Chunks)
		}
		if cells[row] == nil {
			cells[row] = map[string]string{}
			rows = append(rows, row)
		}
		if old := cells[row][r.P2]; old != "" && !r.Job {
			continue
		}
		cells[row][r.P2] = p.mark(r) + p.time(r.StepTime) + " " + formatBytes(r.worst)
	}
	for _, row := range rows {
		fmt.Fprintf(t, "%s\t", row)
		for _, c := range columns {
			text := cells[row][c]
			if text == "" {
				text = "-"
			}
			fmt.Fprintf(t, "%s\t", text)
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	limit := ""
	if p.MemoryLimit > 0 {
		limit = "   ! over the memory limit"
	}
	fmt.Fprintf(w, "> the job's own   * on the Pareto front of step time against memory%s   (by step time, best first)\n", limit)
	for _, r := range p.Alternatives {
		if r.Asynchronous {
			fmt.Fprintln(w, "asynchronous kinds train with older weights: they are not on the front")
			break
		}
	}
	seen := map[string]bool{}
	for _, i := range p.Impossible {
		if !seen[i.Schedule] {
			seen[i.Schedule] = true
			fmt.Fprintf(w, "not possible: %s: %s\n", i.Schedule, strings.TrimPrefix(i.Reason, "schedule "+i.Schedule+": "))
		}
	}
}

func (p *Plan) mark(r *Result) string {
	s := ""
	if r.Job {
		s += ">"
	}
	if r.Pareto {
		s += "*"
	}
	if !r.Fits {
		s += "!"
	}
	return s
}

func (p *Plan) writeFront(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\nPareto front\tstep\tagainst the job\tpeak memory\tbubble\tmicro-batches\t\n")
	for _, r := range p.Alternatives {
		if !r.Pareto {
			continue
		}
		live := slices.Max(r.PeakMicrobatches)
		fmt.Fprintf(t, "%s%s\t%s\t%.2f×\t%s\t%.1f %%\t%.4g\t\n", p.mark(r), r.Name(), p.time(r.StepTime), p.StepTime/r.StepTime, formatBytes(r.worst), 100*r.Bubble, live)
	}
	t.Flush()
	if p.MemoryLimit > 0 {
		for _, r := range p.Alternatives {
			if r.Fits && !r.Asynchronous {
				fmt.Fprintf(w, "fastest that fits %s: %s, %s\n", formatBytes(p.MemoryLimit), r.Name(), p.time(r.StepTime))
				return
			}
		}
		fmt.Fprintf(w, "nothing fits %s: take smaller micro-batches or more ranks\n", formatBytes(p.MemoryLimit))
	}
}
