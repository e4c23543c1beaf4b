package cpu

import (
	"sync"
	"sync/atomic"
)

// pool runs the parts of an operation on a fixed number of goroutines. Idle
// workers sleep on a channel: ranks that wait for messages leave the cores to
// those that compute. A pool of one thread has no goroutine at all.
type pool struct {
	threads int
	jobs    chan *poolJob
	done    sync.WaitGroup
}

type poolJob struct {
	parts int
	next  atomic.Int64
	slot  atomic.Int64
	fn    func(worker, part int)
	wait  sync.WaitGroup
	panic atomic.Pointer[any]
}

func newPool(threads int) *pool {
	p := &pool{threads: threads}
	if threads > 1 {
		p.jobs = make(chan *poolJob, threads-1)
		for range threads - 1 {
			p.done.Add(1)
			go func() {
				defer p.done.Done()
				for j := range p.jobs {
					j.work()
					j.wait.Done()
				}
			}()
		}
	}
	return p
}

// run calls fn(worker, part) once for each part in [0, parts) and returns when
// all have ended. worker is in [0, threads) and no two calls that run at the same time
// share it. Which worker gets which part is not determined: a part's result must not
// depend on it.
func (p *pool) run(parts int, fn func(worker, part int)) {
	if parts == 0 {
		return
	}
	if p.threads == 1 || parts == 1 {
		for i := range parts {
			fn(0, i)
		}
		return
	}
	j := &poolJob{parts: parts, fn: fn}
	helpers := min(p.threads, parts) - 1
	j.wait.Add(helpers)
	for range helpers {
		p.jobs <- j
	}
	j.work()
	j.wait.Wait()
	if r := j.panic.Load(); r != nil {
		panic(*r)
	}
}

func (j *poolJob) work() {
	defer func() {
		if r := recover(); r != nil {
			j.panic.CompareAndSwap(nil, &r) // handed to the caller of run
		}
	}()
	worker := int(j.slot.Add(1)) - 1
	for {
		i := int(j.next.Add(1)) - 1
		if i >= j.parts {
			return
		}
		j.fn(worker, i)
	}
}

func (p *pool) close() {
	if p.jobs != nil {
		close(p.jobs)
		p.done.Wait()
	}
}

// split cuts [0, n) into pieces at multiples of grain, shares them out, and runs
// fn on each, with the scratch of its thread. Only for work whose result does not depend on where it is cut.
// Pieces are short even on one thread: assembly cannot be preempted, and a long
// stretch of it would hold up the garbage collector and every goroutine with it.
func (d *Device) split(n, grain int, fn func(w *workerScratch, from, to int)) {
	size := grain * 16
	if d.threads > 1 {
		each := (n + d.threads - 1) / d.threads
		size = min(size, roundUp(max(each, 1), grain))
	}
	pieces := (n + size - 1) / size
	if d.threads == 1 || pieces == 1 {
		for i := range pieces {
			fn(&d.work[0], i*size, min(n, (i+1)*size))
		}
		return
	}
	d.pool.run(pieces, func(worker, i int) { fn(&d.work[worker], i*size, min(n, (i+1)*size)) })
}

// splitRows is split for rows of the given width: pieces of at least about 8192 elements,
// below which waking a worker costs more than it helps.
func (d *Device) splitRows(rows, width int, fn func(w *workerScratch, from, to int)) {
	d.split(rows, max(1, 8192/max(1, width)), fn)
}
