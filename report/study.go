package report

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pipetrain/pipetrain/chart"
	"github.com/pipetrain/pipetrain/durable"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/study"
)

// Names of a study's reports in its folder.
const (
	PageName     = "report.html"
	MarkdownName = "report.md"
	JUnitName    = "junit.xml"
	PlotsName    = "plots"
)

// studyPage is a study with what its reports need besides.
type studyPage struct {
	*study.View
	runs map[string]*run // of each case: its first finished run of the candidate
	from string
}

func openStudy(dir string) (*studyPage, error) {
	v, err := study.Open(dir)
	if err != nil {
		return nil, err
	}
	s := &studyPage{View: v, runs: map[string]*run{}}
	for _, p := range v.Points {
		if p.Counts() && p.Binary == study.Candidate && s.runs[p.Case] == nil {
			if r, err := readRun(filepath.Join(dir, p.Folder)); err == nil { // a folder that was cleared away leaves its charts out
				s.runs[p.Case] = r
			}
		}
	}
	s.from = s.provenance()
	return s, nil
}

// provenance says what made the study's figures.
func (s *studyPage) provenance() string {
	var versions, hosts []string
	for _, p := range s.Points {
		if p.Counts() && p.Binary == study.Candidate {
			if v := versionOf(p.Version, p.Commit); !slices.Contains(versions, v) {
				versions = append(versions, v)
			}
			for _, h := range append(slices.Clone(p.Nodes), p.Host) {
				if h != "" && !slices.Contains(hosts, h) {
					hosts = append(hosts, h)
				}
			}
		}
	}
	command := launcher.Shell(s.End.Command)
	if command == "" {
		command = "pipetrain study " + s.File.Name
	}
	return fmt.Sprintf("pipetrain %s on %s: %s", strings.Join(versions, ", "), strings.Join(hosts, ", "), command)
}

// WriteStudy writes all reports of a study into its folder and returns the page's path.
func WriteStudy(dir string) (string, error) {
	s, err := openStudy(dir)
	if err != nil {
		return "", err
	}
	figures := s.figures()
	var page, text, junit strings.Builder
	if err := s.page(&page, figures); err != nil {
		return "", err
	}
	s.markdown(&text)
	s.junit(&junit)
	plots := filepath.Join(dir, PlotsName)
	if err := os.MkdirAll(plots, 0o755); err != nil {
		return "", exitcode.With(exitcode.Environment, err)
	}
	files := map[string]string{PageName: page.String(), MarkdownName: text.String(), JUnitName: junit.String()}
	for _, f := range append(figures, s.predicted()...) {
		files[filepath.Join(PlotsName, f.name+".svg")] = chart.Standalone(f.svg)
	}
	for name, content := range files {
		if err := durable.WriteFile(filepath.Join(dir, name), []byte(content)); err != nil {
			return "", exitcode.With(exitcode.Environment, err)
		}
	}
	return filepath.Join(dir, PageName), nil
}

// page writes the page: verdicts first.
func (s *studyPage) page(w io.Writer, figures []figure) error {
	p := &page{}
	p.head("Study "+s.File.Name, esc(fmt.Sprintf("%d cases × %d · %s", len(s.Cases), s.File.Repeats, s.from)))
	s.banner(p)
	if len(s.End.Findings) > 0 {
		p.h2("Verdicts against baseline " + s.End.Gate)
		p.add(`<div class="scroll">`)
		p.table(findingHead, findingRows(s.End.Findings))
		p.add(`</div>`)
	}
	s.failed(p)
	p.h2("Cases")
	p.add(`<div class="dim">%s</div><div class="scroll">`, esc(s.caption()))
	head, rows := s.caseTable()
	p.table(head, rows)
	p.add(`</div>`)
	if len(figures) > 0 {
		p.h2("Charts")
		p.add(`<div class="key dim"><i style="background:var(--F)"></i>F forward<i style="background:var(--I)"></i>I backward-p1<i style="background:var(--W)"></i>W backward-p2<i style="background:var(--B)"></i>B both</div><div class="grid">`)
		for _, f := range figures {
			p.figure(f)
		}
		p.add(`</div>`)
	}
	s.environments(p)
	p.h2("Jobs")
	p.more("the study, every key", string(s.File.Text()))
	for _, c := range s.Cases {
		if r := s.runs[c.ID]; r != nil {
			p.more("the job of "+c.Label+", every key", r.job)
		}
	}
	return p.write(w)
}

// banner says how the study ended.
func (s *studyPage) banner(p *page) {
	class, text := "", "all runs are there"
	switch {
	case !s.Ended:
		class, text = " warn", "it has not come to its end: it runs, or was killed; pipetrain study --resume goes on"
	case s.End.Code == exitcode.Finished && s.End.Gate != "":
		text = "no regression against baseline " + s.End.Gate
	case s.End.Code == exitcode.Finished:
	default:
		class, text = " bad", s.End.Code.Meaning()
		if s.End.Code == exitcode.Incomplete || s.End.Code == exitcode.Stopped {
			class = " warn"
		}
	}
	status := s.End.Status
	if !s.Ended {
		status = "unfinished"
	}
	p.add(`<div class="banner%s"><b>%s</b>: %s`, class, esc(status), esc(text))
	if slices.ContainsFunc(s.End.Findings, func(f study.Finding) bool { return f.Verdict == study.Machine }) {
		p.add(`<br>The machine is not as it was: controls moved against what is stored of them.`)
	}
	for _, n := range s.End.Notes {
		p.add(`<br>%s`, esc(n))
	}
	p.add(`</div>`)
}

var findingHead = []string{"verdict:", "case:", "metric:", "new / old", "95 %", "p", "runs", "old", "new", "why:"}

func findingRows(all []study.Finding) (rows [][]string) {
	order := func(f study.Finding) int {
		switch {
		case f.Verdict.Regressed():
			return 0
		case f.Verdict.Incomplete():
			return 1
		case f.Verdict == study.Same:
			return 3
		}
		return 2
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b study.Finding) int { return order(a) - order(b) })
	for _, f := range sorted {
		format := formatOf(f.Unit)
		interval, p := "", ""
		if f.Lo.Known() && f.Hi.Known() {
			interval = fmt.Sprintf("%.3f to %.3f", float64(f.Lo), float64(f.Hi))
		}
		if f.P.Known() {
			p = fmt.Sprintf("%.3f", float64(f.P))
		}
		rows = append(rows, []string{string(f.Verdict), f.Case, f.Metric, cell(f.Ratio, func(x float64) string { return fmt.Sprintf("%.3f", x) }), interval, p,
			fmt.Sprintf("%d + %d", f.N, f.M), cell(f.Old, format), cell(f.New, format), f.Why})
	}
	return rows
}

func cell(x study.Number, f func(float64) string) string {
	if !x.Known() {
		return ""
	}
	return f(float64(x))
}

// formatOf returns how values of a unit are printed.
func formatOf(unit string) func(float64) string {
	top, _, _ := strings.Cut(unit, "/")
	switch top {
	case "sec":
		return chart.Seconds
	case "B":
		return chart.Bytes
	}
	return chart.Short
}

// failed lists runs of which no attempt finished, and cases that cannot be.
func (s *studyPage) failed(p *page) {
	var rows [][]string
	for _, x := range s.Unfinished() {
		rows = append(rows, []string{string(x.Status), x.Label, fmt.Sprint(x.Round), x.Binary, fmt.Sprint(x.ExitCode), x.Reason, x.Folder + ".log"})
	}
	for _, c := range s.Cases {
		if c.Spec == nil {
			rows = append(rows, []string{string(study.Impossible), c.Label, "", "", "", c.Why, ""})
		}
	}
	if len(rows) == 0 {
		return
	}
	p.h2("Failed, missing, impossible")
	p.add(`<div class="scroll">`)
	p.table([]string{"status:", "case:", "round", "program:", "code", "reason:", "log:"}, rows)
	p.add(`</div>`)
}

// caption says what the table's figures are relative to.
func (s *studyPage) caption() string {
	text := "Medians over runs; a run's value is the median of its counted steps. ± is the 95 % interval of the median, or the range (r) of fewer than 6 runs."
	if b := s.Base(); b != nil {
		text += fmt.Sprintf(" Speed-up and efficiency are of the work rate, relative to %q (%d ranks, %s a step); scaling is %s.", b.Label, b.Ranks, seconds(b.StepSeconds), s.File.Scaling.Kind)
		if b.Estimate.Source != "" {
			text += " Predicted speed-ups take times from " + b.Estimate.Source + "."
		}
		for _, r := range s.runs {
			text += " Data type " + r.summary.Precision + "."
			break
		}
	}
	return text
}

// caseTable has the figures of summary.csv for people.
func (s *studyPage) caseTable() (head []string, rows [][]string) {
	head = []string{"case:", "ranks", "runs", "step", "±", "tokens/s", "speed-up", "efficiency", "bubble", "predicted", "makespan", "predicted", "memory", "loss"}
	for _, x := range s.Summaries {
		if x.N == 0 {
			continue
		}
		label := x.Label
		if x.Binary == study.Control {
			label += " (control)"
		}
		spread := ""
		if x.StepSeconds > 0 {
			spread = fmt.Sprintf("%.1f %%", 100*max(x.Interval.Hi/float64(x.StepSeconds)-1, 1-x.Interval.Lo/float64(x.StepSeconds)))
			if x.Interval.Level == 0 {
				spread += " r"
			}
		}
		two := func(v float64) string { return fmt.Sprintf("%.2f", v) }
		rows = append(rows, []string{label, fmt.Sprint(x.Ranks), fmt.Sprint(x.N), cell(x.StepSeconds, chart.Seconds), spread, cell(x.TokensPerSecond, chart.Short), cell(x.SpeedUp, two), cell(x.Efficiency, chart.Percent),
			cell(x.Bubble, chart.Percent), cell(x.BubblePlan, chart.Percent), cell(x.Makespan, chart.Seconds), cell(x.MakespanPlan, chart.Seconds), cell(x.PeakBytes, chart.Bytes), cell(x.LossLast, func(v float64) string { return fmt.Sprintf("%.4f", v) })})
	}
	return dropEmpty(head, rows)
}

// dropEmpty leaves out columns in which no row has anything: a rehearsal has no loss.
func dropEmpty(head []string, rows [][]string) ([]string, [][]string) {
	keep := func(line []string) (out []string) {
		for i, c := range line {
			if slices.ContainsFunc(rows, func(r []string) bool { return r[i] != "" }) {
				out = append(out, c)
			}
		}
		return out
	}
	names, lines := keep(head), make([][]string, len(rows))
	for i, r := range rows {
		lines[i] = keep(r)
	}
	return names, lines
}

// environments says where runs were not made alike.
func (s *studyPage) environments(p *page) {
	seen := map[string]string{}
	var order []string
	for _, x := range s.Points {
		if x.Counts() && x.EnvironmentHash != "" {
			if seen[x.EnvironmentHash] == "" {
				order = append(order, x.EnvironmentHash)
				seen[x.EnvironmentHash] = x.Folder
			}
		}
	}
	p.h2("Environment")
	for i, h := range order {
		if i == 8 {
			p.add(`<p class="dim">and %d others: environment_hash in points.csv tells them apart</p>`, len(order)-i)
			break
		}
		e, err := record.ReadEnvironment(filepath.Join(s.Dir, seen[h], record.EnvironmentName))
		if err != nil {
			continue
		}
		title := "where the runs were"
		if len(order) > 1 {
			title = fmt.Sprintf("environment %s, as of %s", h, seen[h])
		}
		p.add(`<h3 class="dim">%s</h3><div class="scroll">`, esc(title))
		r := &run{environment: e}
		p.table([]string{"what:", "value:"}, r.environmentRows())
		p.add(`</div>`)
	}
}
