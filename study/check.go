package study

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pipetrain/pipetrain/jobs"
)

// check judges the keys of the study itself, and the values of the job's by themselves.
func (f *File) check() {
	oneOf := func(key, v string, choices ...string) {
		if !slices.Contains(choices, v) {
			f.mistake(f.line(key), key, fmt.Sprintf("no such kind: %q", v), "known: "+strings.Join(choices, ", "))
		}
	}
	inRange := func(key string, n, lo, hi int) {
		if n < lo || n > hi {
			f.mistake(f.line(key), key, fmt.Sprintf("is %d", n), fmt.Sprintf("%d to %d", lo, hi))
		}
	}
	if f.Name == "" {
		f.Name = strings.TrimSuffix(filepath.Base(f.Path), ".toml")
	}
	if strings.ContainsFunc(f.Name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
	}) || strings.HasPrefix(f.Name, ".") || len(f.Name) > 64 {
		f.mistake(f.line("name"), "name", fmt.Sprintf("%q cannot name a folder", f.Name), "letters, digits, '.', '_' and '-'")
	}
	if f.Job == "" {
		f.mistake(f.line("job"), "job", "is missing", `job = "job.toml": the job that all cases start from`)
	} else if !filepath.IsAbs(f.Job) {
		if abs, err := filepath.Abs(filepath.Join(filepath.Dir(f.Path), f.Job)); err == nil {
			f.Job = abs
		}
	}
	inRange("repeats", f.Repeats, 1, 1000)
	inRange("warmup_runs", f.WarmupRuns, 0, 100)
	inRange("retries", f.Retries, 0, 100)
	inRange("launch.max_jobs", f.Launch.MaxJobs, 1, 1<<20)
	oneOf("order", f.Order, "shuffled", "listed", "blocked")
	oneOf("impossible", f.Impossible, "record", "refuse")
	oneOf("scaling.kind", f.Scaling.Kind, "strong", "weak")
	oneOf("launch.kind", f.Launch.Kind, "auto", "local", "mpirun", "srun", "sbatch")
	for key, d := range map[string]time.Duration{"budget": f.Budget, "timeout": f.Timeout} {
		if d < 0 {
			f.mistake(f.line(key), key, "is "+d.String(), "a time above 0, or \"\" for none")
		}
	}
	if !(f.Gate.Threshold > 0) || f.Gate.Threshold > 10 {
		f.mistake(f.line("gate.threshold"), "gate.threshold", fmt.Sprintf("is %v", f.Gate.Threshold), "a share above 0, such as 0.05")
	}
	for _, m := range f.Gate.Metrics {
		if _, ok := MetricOf(m); !ok {
			f.mistake(f.line("gate.metrics"), "gate.metrics", fmt.Sprintf("no such metric: %q", m), "known: "+MetricNames())
		}
	}
	if len(f.Scaling.Grow) > 0 && f.Scaling.Kind != "weak" {
		f.mistake(f.line("scaling.grow"), "scaling.grow", "grows keys with the ranks, and scaling.kind is \"strong\"", `kind = "weak"`)
	}
	f.checkValues()
}

// checkValues judges each value of a job's key by itself.
func (f *File) checkValues() {
	one := func(key string, v any, line int, where string) {
		for _, e := range jobs.CheckSets([]string{key + "=" + tomlText(v)}) {
			e.File, e.Line, e.Set, e.Key = f.Path, line, "", where+key
			f.errs = append(f.errs, e)
		}
	}
	for _, s := range f.Set {
		one(s.Key, s.Value, s.Line, "")
	}
	used := map[string]int{}
	for _, a := range f.Axes {
		for _, k := range a.Keys {
			if before, ok := used[k]; ok {
				f.mistake(a.lines[k], "axis: "+k, fmt.Sprintf("is an axis already, on line %d", before), "one axis a key")
			}
			used[k] = a.lines[k]
			for _, v := range a.Values[k] {
				before := len(f.errs)
				one(k, v, a.lines[k], "axis: ")
				if len(f.errs) > before && strings.HasPrefix(f.errs[before].What, "no such key") {
					break // once a key is enough
				}
			}
		}
	}
	for _, s := range f.Set {
		if line, ok := used[s.Key]; ok && s.Line > 0 {
			f.mistake(s.Line, "set: "+s.Key, fmt.Sprintf("is an axis too, on line %d", line), "either")
		}
	}
	for _, e := range f.Excludes {
		for k := range e.Keys {
			if _, ok := used[k]; !ok && k != "label" && !slices.ContainsFunc(f.Set, func(s Setting) bool { return s.Key == k }) {
				f.mistake(e.Line, "exclude: "+k, "is a key of no axis", "a key of an [[axis]], or label")
			}
		}
	}
	for _, k := range f.Scaling.Grow {
		if _, ok := used[k]; ok {
			f.mistake(f.line("scaling.grow"), "scaling.grow", k+" is an axis too", "either")
		}
	}
}
