package record

import (
	"fmt"
	"strconv"
	"strings"
)

// SharedCores says where ranks have to share cores, "" where each has one: a prediction of op times
// knows nothing of the wait for a core, so that it and the measurement do not compare there.
func SharedCores(hosts []Host) string {
	ranks, cpus := map[string]int{}, map[string]map[int]bool{}
	for _, h := range hosts {
		ranks[h.Name]++
		if cpus[h.Name] == nil {
			cpus[h.Name] = map[int]bool{}
		}
		for cpu := range cpuList(h.Affinity) {
			cpus[h.Name][cpu] = true
		}
	}
	for _, h := range hosts { // the first such host in order of ranks
		if n := len(cpus[h.Name]); n > 0 && n < ranks[h.Name] {
			return fmt.Sprintf("%d ranks share %d cores on %s: op times contain the wait for a core, which the prediction does not know", ranks[h.Name], n, h.Name)
		}
	}
	return ""
}

// cpuList yields the numbers of a list as the kernel writes it, "0-3,8".
func cpuList(list string) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for part := range strings.SplitSeq(list, ",") {
			from, to, isRange := strings.Cut(part, "-")
			first, err := strconv.Atoi(from)
			if err != nil {
				continue
			}
			last := first
			if isRange {
				if last, err = strconv.Atoi(to); err != nil {
					continue
				}
			}
			for cpu := first; cpu <= last; cpu++ {
				if !yield(cpu) {
					return
				}
			}
		}
	}
}
