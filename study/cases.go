package study

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/pipetrain/pipetrain/jobs"
)

// Case is one point of the axes: a job.
type Case struct {
	ID     string // hash of the keys that were given
	Label  string
	Keys   map[string]any // of the axes
	Points []string       // its label on each axis
	Sets   []string       // "key=value" of all that differs from the job file
	Spec   *jobs.Spec     // nil where impossible
	Why    string         // impossible: the job check's words

	index []int // on each axis
}

// Ranks of the case; 0 of an impossible one.
func (c *Case) Ranks() int {
	if c.Spec == nil {
		return 0
	}
	return c.Spec.World()
}

// studyDefaults are keys that a study sets unless [set] or an axis does: nothing is saved, and Slurm
// does not put a run back into its queue, since that would be another measurement.
var studyDefaults = []Setting{{"checkpoint.enabled", false, 0}, {"slurm.requeue", false, 0}}

// cases makes the cases, and notes every mistake in them with its line and case.
func (f *File) cases() []*Case {
	if len(f.errs) > 0 && f.Job == "" {
		return nil
	}
	given, err := readGiven(f.Job)
	if err != nil {
		line := f.line("job")
		if wrong := (*jobs.MistakesError)(nil); errors.As(err, &wrong) {
			f.errs = append(f.errs, wrong.List...)
		} else {
			f.mistake(line, "job", err.Error(), "the path of a job file, relative to the study file's folder")
		}
		return nil
	}
	if len(f.errs) > 0 {
		return nil // the cases' mistakes would follow from these
	}
	all := f.product()
	for i, a := range all {
		for _, b := range all[:i] {
			if a.Label == b.Label {
				f.mistake(0, "axis", fmt.Sprintf("two cases have the label %q", a.Label), "other labels")
				return nil
			}
		}
	}
	if len(all) == 0 {
		f.mistake(f.line("exclude"), "exclude", "leaves no case", "fewer of them")
		return nil
	}
	settings := f.settings()
	refused := &refusals{of: map[string]*refusal{}}
	for _, c := range all {
		for _, s := range settings {
			if _, isAxis := c.Keys[s.Key]; !isAxis {
				c.Sets = append(c.Sets, s.Key+"="+tomlText(f.place(s.Key, s.Value, s.Line > 0)))
			}
		}
		for _, k := range slices.Sorted(maps.Keys(c.Keys)) {
			c.Sets = append(c.Sets, k+"="+tomlText(f.place(k, c.Keys[k], true)))
		}
	}
	f.grow(all, given)
	for _, c := range all {
		f.load(c, refused)
		c.ID = caseID(given, c.Sets)
	}
	f.judgeRefusals(all, refused)
	f.checkNames(all)
	return all
}

// place makes the path of a key that names a file absolute: relative to the study file's folder.
func (f *File) place(key string, v any, inFile bool) any {
	text, ok := v.(string)
	if !ok || !inFile || !jobs.IsPath(key, text) || filepath.IsAbs(text) {
		return v
	}
	abs, err := filepath.Abs(filepath.Join(filepath.Dir(f.Path), text))
	if err != nil {
		return v
	}
	return abs
}

// settings are those of every case.
func (f *File) settings() []Setting {
	all := slices.Clone(f.Set)
	for _, d := range studyDefaults {
		if !slices.ContainsFunc(all, func(s Setting) bool { return s.Key == d.Key }) {
			all = append(all, d)
		}
	}
	return all
}

// product multiplies the axes; the last one turns fastest. Excluded points are left out.
func (f *File) product() []*Case {
	var out []*Case
	index := make([]int, len(f.Axes))
	for {
		c := &Case{Keys: map[string]any{}, index: slices.Clone(index)}
		for n, a := range f.Axes {
			for _, k := range a.Keys {
				c.Keys[k] = a.Values[k][index[n]]
			}
			c.Points = append(c.Points, a.label(index[n]))
		}
		c.Label = strings.Join(c.Points, ", ")
		if len(f.Axes) == 0 {
			c.Label = f.Name
		}
		if !f.excludes(c) {
			out = append(out, c)
		}
		n := len(index) - 1
		for ; n >= 0; n-- {
			if index[n]++; index[n] < f.Axes[n].Len() {
				break
			}
			index[n] = 0
		}
		if n < 0 {
			return out
		}
	}
}

// label of a point of the axis: its own, else "stages 4, microbatches 8".
func (a *Axis) label(i int) string {
	if len(a.Labels) > 0 {
		return a.Labels[i]
	}
	var parts []string
	for _, k := range a.Keys {
		v := a.Values[k][i]
		text, isText := v.(string)
		if !isText {
			text = tomlText(v)
		}
		parts = append(parts, k[strings.LastIndexByte(k, '.')+1:]+" "+text)
	}
	return strings.Join(parts, " ")
}

func (f *File) excludes(c *Case) bool {
	for _, e := range f.Excludes {
		all := true
		for k, want := range e.Keys {
			got, ok := c.Keys[k]
			switch {
			case k == "label":
				text, _ := want.(string)
				ok, got = slices.Contains(c.Points, text), want
			case !ok:
				i := slices.IndexFunc(f.Set, func(s Setting) bool { return s.Key == k })
				if ok = i >= 0; ok {
					got = f.Set[i].Value
				}
			}
			all = all && ok && reflect.DeepEqual(got, want)
		}
		if all {
			return true
		}
	}
	return false
}

// refusal is a mistake of the job check with the cases that have it.
type refusal struct {
	err   jobs.Error
	set   string // key of the study that it is about; empty: of the job file
	cases []string
}

type refusals struct {
	of    map[string]*refusal
	order []string
}

// load checks the case's job.
func (f *File) load(c *Case, refused *refusals) {
	spec, err := jobs.Load(f.Job, c.Sets)
	c.Spec, c.Why = spec, ""
	if err == nil {
		return
	}
	c.Spec = nil
	wrong := (*jobs.MistakesError)(nil)
	if !errors.As(err, &wrong) {
		wrong = &jobs.MistakesError{List: []*jobs.Error{{File: f.Job, What: err.Error()}}}
	}
	var why []string
	for _, e := range wrong.List {
		why = append(why, e.Key+": "+e.What)
		key, _, _ := strings.Cut(e.Set, "=")
		id := key + "\x00" + e.Key + "\x00" + e.What
		r := refused.of[id]
		if r == nil {
			r = &refusal{err: *e, set: key}
			refused.of[id] = r
			refused.order = append(refused.order, id)
		}
		r.cases = append(r.cases, c.Label)
	}
	c.Why = strings.Join(why, "; ")
}

// judgeRefusals decides which refused cases are mistakes of the study: all of them with impossible =
// "refuse"; else those that every case has.
func (f *File) judgeRefusals(all []*Case, refused *refusals) {
	for _, id := range refused.order {
		r := refused.of[id]
		if f.Impossible == "record" && len(r.cases) < len(all) {
			continue
		}
		e := r.err
		if r.set != "" || e.Line == 0 {
			e.File, e.Set, e.Line = f.Path, "", f.lineOf(r.set)
		}
		if len(r.cases) < len(all) {
			e.What = fmt.Sprintf("case %q%s: %s", r.cases[0], others(len(r.cases)-1), e.What)
		} else if len(all) > 1 {
			e.What = "every case: " + e.What
		}
		f.errs = append(f.errs, &e)
	}
	possible := slices.ContainsFunc(all, func(c *Case) bool { return c.Spec != nil })
	if !possible && len(f.errs) == 0 {
		for _, c := range all {
			f.mistake(f.lineOf(""), "axis", fmt.Sprintf("case %q: %s", c.Label, c.Why), "no case is possible")
		}
	}
	for _, c := range all {
		if c.Spec != nil && c.Spec.Train.Steps < LeastSteps {
			f.mistake(f.lineOf("train.steps"), "train.steps", fmt.Sprintf("case %q: is %d, and the first six steps of a run are not counted", c.Label, c.Spec.Train.Steps), fmt.Sprintf("at least %d, in [set]", LeastSteps))
			break
		}
	}
}

func others(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return " and another"
	}
	return fmt.Sprintf(" and %d others", n)
}

// lineOf returns the line on which a key of the job is set or varied.
func (f *File) lineOf(key string) int {
	for _, a := range f.Axes {
		if l, ok := a.lines[key]; ok {
			return l
		}
	}
	for _, s := range f.Set {
		if s.Key == key {
			return s.Line
		}
	}
	return f.line("job")
}

// grow scales the keys of scaling.grow with the ranks, for weak scaling: before the job check, which may refuse
// a case whose keys have not grown.
func (f *File) grow(all []*Case, given map[string]any) {
	if len(f.Scaling.Grow) == 0 {
		return
	}
	number := func(c *Case, key string, or int64) int64 {
		v := given[key]
		if i := slices.IndexFunc(f.Set, func(s Setting) bool { return s.Key == key }); i >= 0 {
			v = f.Set[i].Value
		}
		if x, ok := c.Keys[key]; ok {
			v = x
		}
		if n, ok := v.(int64); ok && n > 0 {
			return n
		}
		return or
	}
	ranks := func(c *Case) int64 {
		return number(c, "parallel.stages", 1) * number(c, "parallel.replicas", 1) * number(c, "parallel.tensor", 1)
	}
	base := ranks(all[0])
	for _, c := range all {
		base = min(base, ranks(c))
	}
	for _, key := range f.Scaling.Grow {
		for _, c := range all {
			x := number(c, key, 0)
			if x == 0 {
				f.mistake(f.line("scaling.grow"), "scaling.grow", key+" is given as a whole number neither by the job file nor in [set]", "train.batch, model.layers, …")
				break
			}
			grown := x * ranks(c)
			if grown%base != 0 {
				f.mistake(f.line("scaling.grow"), "scaling.grow", fmt.Sprintf("case %q: %s = %d × %d ranks / %d is not whole", c.Label, key, x, ranks(c), base), "a multiple of the ranks of the smallest case")
				continue
			}
			c.Sets = append(slices.DeleteFunc(c.Sets, func(s string) bool { return strings.HasPrefix(s, key+"=") }), fmt.Sprintf("%s=%d", key, grown/base))
		}
	}
}

// checkNames judges labels that other keys name.
func (f *File) checkNames(all []*Case) {
	known := func(label string) bool {
		return slices.ContainsFunc(all, func(c *Case) bool { return c.Label == label })
	}
	for _, label := range f.Gate.Cases {
		if !known(label) {
			f.mistake(f.line("gate.cases"), "gate.cases", fmt.Sprintf("no case is called %q", label), "labels, as --dry-run prints them")
		}
	}
	if b := f.Scaling.Base; b != "" && !known(b) {
		f.mistake(f.line("scaling.base"), "scaling.base", fmt.Sprintf("no case is called %q", b), "a label, as --dry-run prints them")
	}
}

// readGiven returns the keys that a job file gives, by dotted name.
func readGiven(path string) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, errors.Unwrap(err))
	}
	var tree map[string]any
	if _, err := toml.Decode(string(text), &tree); err != nil {
		if _, e := jobs.Load(path, nil); e != nil {
			return nil, e // with line and excerpt
		}
		return nil, err
	}
	flat := map[string]any{}
	flatten("", tree, flat)
	return flat, nil
}

// notTheWork are keys that name or place a run: they do not make another case.
func notTheWork(key string) bool {
	return key == "name" || strings.HasPrefix(key, "run.") || strings.HasPrefix(key, "checkpoint.") || strings.HasPrefix(key, "slurm.")
}

// caseID hashes the keys that the job file and the study give. Defaults stay out, so that a new one does
// not end a history.
func caseID(given map[string]any, sets []string) string {
	all := map[string]string{}
	for k, v := range given {
		all[k] = tomlText(v)
	}
	for _, s := range sets {
		k, v, _ := strings.Cut(s, "=")
		all[k] = v
	}
	h := sha256.New()
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if notTheWork(k) {
			continue
		}
		v := all[k]
		if text, err := strconv.Unquote(v); err == nil && jobs.IsPath(k, text) {
			v = filepath.Base(text) // the same file lies elsewhere on other machines
		}
		fmt.Fprintf(h, "%s=%s\n", k, v)
	}
	return hex.EncodeToString(h.Sum(nil)[:5])
}
