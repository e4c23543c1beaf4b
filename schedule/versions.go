package schedule

// Versions returns, for each stage and micro-batch, which version of the stage's
// weights F reads (and I and W after it): 0 is what the step started with, n what
// the n-th Update made. Synchronous schedules have version 0 throughout.
func Versions(s *Schedule) [][]int {
	versions := make([][]int, s.Stages)
	for stage := range versions {
		versions[stage] = make([]int, s.Microbatches)
	}
	if s.Async == nil {
		return versions
	}
	for _, program := range s.Programs {
		newest := map[int]int{}
		for _, o := range program {
			switch {
			case o.Kind == Update:
				newest[o.Stage]++
			case o.Kind == Forward && s.Async.Delay < 0:
				versions[o.Stage][o.First] = newest[o.Stage]
			case o.Kind == Forward:
				versions[o.Stage][o.First] = max(0, o.First/s.Async.Every-s.Async.Delay)
			}
		}
	}
	return versions
}

// PeakVersions returns how many versions of one stage's weights each rank holds
// at most: the newest, those of the micro-batches between F and W, and those that
// later forwards read.
func PeakVersions(s *Schedule) []int {
	versions := Versions(s)
	peaks := make([]int, s.Ranks)
	for r, program := range s.Programs {
		newest := map[int]int{}
		live := map[int]map[int]int{} // stage → version → micro-batches between F and W
		for _, o := range program {
			users := live[o.Stage]
			if users == nil {
				users = map[int]int{}
				live[o.Stage] = users
			}
			switch o.Kind {
			case Forward:
				users[versions[o.Stage][o.First]]++
			case Backward, BackwardWeight:
				for k := o.First; k <= o.Last; k++ {
					if v := versions[o.Stage][k]; users[v] > 1 {
						users[v]--
					} else {
						delete(users, v)
					}
				}
			case Update:
				newest[o.Stage]++
			}
			held := len(users)
			oldest := newest[o.Stage] // that a later F reads
			if s.Async != nil && s.Async.Delay > 0 {
				oldest = max(0, oldest-s.Async.Delay)
			}
			for v := oldest; v <= newest[o.Stage]; v++ {
				if users[v] == 0 {
					held++
				}
			}
			peaks[r] = max(peaks[r], held)
		}
	}
	return peaks
}
