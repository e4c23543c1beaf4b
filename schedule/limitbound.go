package schedule

import (
	"container/heap"
	"math"
	"slices"
)

// limitBound returns a makespan that no order can beat when stages are on ranks as s.Place says and ranks keep
// their limits (of micro-batches alone; nil: any). Where a rank has memory for K micro-batches of a stage, F of k+K waits
// for I of k, or for its W. With the longest paths before and after each op that follow, each rank's ops take
// at least as long as where it may interrupt them: Jackson's preemptive schedule.
func limitBound(s *Schedule, costs Costs, bytes []StageBytes, limit []int64) float64 {
	o := newOrders(s, costs, bytes, nil, 0)
	shorten(o, s, costs)
	head, tail := make([]float64, len(o.nodes)), make([]float64, len(o.nodes))
	order := make([]int32, 0, len(o.nodes))
	for i := range o.nodes {
		order = append(order, int32(i))
	}
	// By micro-batch, F by stage, I against it, W: no op comes before what it waits for.
	slices.SortStableFunc(order, func(i, j int32) int {
		x, y := &o.nodes[i], &o.nodes[j]
		switch {
		case x.k != y.k:
			return int(x.k - y.k)
		case x.kind != y.kind:
			return int(x.kind) - int(y.kind)
		case x.kind == BackwardInput:
			return int(y.lane - x.lane)
		}
		return int(x.lane - y.lane)
	})
	from := func(i int32) (list [5]int32, n int) {
		x := &o.nodes[i]
		add := func(j int32) { list[n] = j; n++ }
		if x.pred >= 0 {
			add(x.pred)
		}
		if x.k > 0 {
			add(i - 1)
		}
		switch {
		case x.kind == BackwardWeight:
			add(i - x.n)
		case x.kind == Forward && limit != nil:
			input, weight := o.earlier(i, limit[x.rank])
			if input == 0 {
				add(i) // there is no memory for one
			} else if input <= x.k {
				add(i + x.n - input)
			}
			if weight <= x.k {
				add(i + 2*x.n - weight)
			}
		}
		return list, n
	}
	bound := 0.0
	for _, i := range order {
		list, n := from(i)
		for _, j := range list[:n] {
			if j == i {
				return math.Inf(1)
			}
			t := head[j] + o.nodes[j].dur
			if o.nodes[i].pred == j {
				t += o.nodes[j].lag
			}
			head[i] = max(head[i], t)
		}
	}
	for at := len(order) - 1; at >= 0; at-- {
		i := order[at]
		bound = max(bound, head[i]+o.nodes[i].dur+tail[i])
		list, n := from(i)
		for _, j := range list[:n] {
			t := tail[i] + o.nodes[i].dur
			if o.nodes[i].pred == j {
				t += o.nodes[j].lag
			}
			tail[j] = max(tail[j], t)
		}
	}
	for r := range s.Ranks {
		var jobs []job
		for i := range o.nodes {
			if x := &o.nodes[i]; int(x.rank) == r {
				jobs = append(jobs, job{head[i], x.dur, tail[i]})
			}
		}
		bound = max(bound, preemptive(jobs))
	}
	return bound
}

// shorten gives ops the least time that they can take: W as many joined and backwards fused or
// split, whichever is least.
func shorten(o *orders, s *Schedule, costs Costs) {
	for d := range s.Place {
		table := stageCosts(s, costs, d)
		for i := range o.nodes {
			x := &o.nodes[i]
			if int(x.lane)/s.Stages != d {
				continue
			}
			stage := int(x.lane) % s.Stages
			c := table[stage]
			input := min(c.i, c.b)
			switch x.kind {
			case BackwardInput:
				x.dur = input
			case BackwardWeight:
				all := costs.Compute(Op{Stage: stage, Kind: BackwardWeight, First: 0, Last: s.Microbatches - 1})
				x.dur = max(0, min(c.w, c.wExtra, all/float64(s.Microbatches), c.b-input))
				if s.Microbatches == 1 {
					x.dur = max(0, min(c.w, c.b-input))
				}
			}
		}
	}
}

// earlier returns how many micro-batches before an F its rank must have finished I of, and W of, for want of memory.
// All that are begun and not that far hold memory, since a stage takes them in order.
func (o *orders) earlier(i int32, limit int64) (input, weight int32) {
	x := &o.nodes[i]
	forward, gradient := x.alloc, o.nodes[i+x.n].alloc
	least := min(forward, o.nodes[i+2*x.n].free)
	input, weight = x.n, x.n
	if forward > 0 {
		input = int32(min(int64(x.n), max(0, (limit-gradient)/forward)))
	}
	if least > 0 {
		weight = int32(min(int64(x.n), max(0, (limit-forward)/least+1)))
	}
	return input, weight
}

// job is an op of one rank: it starts at its head, takes its time, and its tail follows.
type job struct{ head, time, tail float64 }

// preemptive returns the least makespan of jobs that one rank may interrupt.
func preemptive(jobs []job) (end float64) {
	slices.SortFunc(jobs, func(a, b job) int {
		switch {
		case a.head < b.head:
			return -1
		case a.head > b.head:
			return 1
		}
		return 0
	})
	var open byTail
	now := 0.0
	for i := 0; i < len(jobs) || len(open) > 0; {
		if len(open) == 0 {
			now = max(now, jobs[i].head)
		}
		for i < len(jobs) && jobs[i].head <= now {
			heap.Push(&open, jobs[i])
			i++
		}
		next := math.Inf(1)
		if i < len(jobs) {
			next = jobs[i].head
		}
		first := &open[0]
		if t := now + first.time; t <= next {
			now = t
			end = max(end, now+first.tail)
			heap.Pop(&open)
		} else {
			first.time -= next - now
			now = next
		}
	}
	return end
}

// byTail is a heap of jobs with the longest tail on top.
type byTail []job

func (h byTail) Len() int           { return len(h) }
func (h byTail) Less(i, j int) bool { return h[i].tail > h[j].tail }
func (h byTail) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byTail) Push(x any)        { *h = append(*h, x.(job)) }
func (h *byTail) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
