package report

import (
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/study"
)

// large writes the folder of a study of 200 cases × 5 repeats with made-up figures, as study leaves it.
func large(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "wide-20260101-000000")
	files := map[string]string{
		"job.toml": "[model]\nlayers = 16\ndim = 32\nheads = 4\nseq = 16\n[data]\nkind = \"synthetic\"\n[train]\nsteps = 20\nbatch = 64\n",
		"study.toml": "name = \"wide\"\njob = \"job.toml\"\nrepeats = 5\n[[axis]]\nparallel.stages = [1, 2, 4, 8, 16]\n[[axis]]\noptimizer.lr = [1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 2e-3, 2e-4, 2e-5, 2e-6, 2e-7]\n" +
			"[[axis]]\nlabel = [\"fused <b>\", \"lagged\", \"cooldown\", \"end\"]\nschedule.backward_p2 = [\"fused\", \"lagged\", \"cooldown\", \"end\"]\n",
	}
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	_, cases, err := study.Load(filepath.Join(dir, "study.toml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) != 200 {
		t.Fatalf("%d cases", len(cases))
	}
	points, _, err := study.OpenPoints(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer points.Close()
	estimates := map[string]study.Estimate{}
	for i, c := range cases {
		estimates[c.ID] = study.Estimate{StepSeconds: 0.1 / float64(c.Ranks()), Makespan: 0.1, FLOPs: 1e9, Source: "a test"}
		for r := 1; r <= 5; r++ {
			p := study.NewPoint()
			p.Case, p.Label, p.Round, p.Attempt, p.Binary, p.Status, p.ExitCode = c.ID, c.Label, r, 1, study.Candidate, study.Finished, 0
			p.Keys, p.Ranks, p.Folder = c.Keys, c.Ranks(), filepath.Join("runs", c.ID, fmt.Sprintf("r%d", r))
			p.StepSeconds = study.Number(0.1/float64(c.Ranks())*1.1 + float64(i*5+r)*1e-6)
			p.TokensPerSecond, p.Seconds, p.Bubble, p.BubblePlan = 1024/p.StepSeconds, 3, 0.2, 0.19
			p.Makespan, p.MakespanPlan, p.PeakBytes, p.PeakBytesPlan = p.StepSeconds, p.StepSeconds, study.Number(1000*i), study.Number(1000*i)
			p.LossFirst, p.LossLast, p.LossHash, p.Version, p.Commit, p.Host, p.Device, p.Started = 5.5, 4.5, "ab", "v1", "0123456789abcdef", "node<1>", "cpu", time.Unix(1, 0)
			if err := points.Append(p); err != nil {
				t.Fatal(err)
			}
		}
		// A run folder of its own for the first round, as large as real ones.
		run := filepath.Join(dir, "runs", c.ID, "r1")
		write(t, filepath.Join(run, "job.toml"), string(c.Spec.Resolved()))
		var metrics strings.Builder
		for s := 1; s <= 20; s++ {
			fmt.Fprintf(&metrics, `{"step":%d,"loss":%v,"grad_norm":1.5,"lr":0.001,"tokens":1024,"step_seconds":0.01,"tokens_per_second":1.0,"bubble":0.2,"makespan_seconds":0.01}`+"\n", s, 5.5-float64(s)/20)
		}
		write(t, filepath.Join(run, "metrics.jsonl"), metrics.String())
		write(t, filepath.Join(run, "exit.json"), `{"exit_code":0,"status":"finished"}`)
		write(t, filepath.Join(run, "summary.json"), `{"status":"finished","name":"x","version":"v1","commit":"c","device":"cpu","ranks":1,"precision":"fp32","peak_bytes_measured":[5],"peak_bytes_predicted":[5]}`)
		ops := strings.TrimSuffix(strings.Repeat(`0,0,1,1,10,20,`, 60), ",")
		write(t, filepath.Join(run, "timelines.json"), `{"measured":{"makespan_seconds":1,"bubble":0.5,"idle_seconds":{"drain":1},"kinds":["F"],"ranks":[[`+ops+`]]}}`)
	}
	b, err := json.Marshal(estimates)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "estimates.json"), string(b))
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A study of 200 cases × 5 repeats makes a page under 3 MB that loads nothing and escapes what comes from files; its
// table has every case; JUnit and Markdown have them too.
func TestLargeStudy(t *testing.T) {
	dir := large(t)
	began := time.Now()
	path, err := WriteStudy(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("made in %v", time.Since(began))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	if len(page) > 3e6 {
		t.Errorf("the page has %d bytes", len(page))
	}
	checkPage(t, page)
	for _, want := range []string{"fused &lt;b&gt;", "node&lt;1&gt;", "pipetrain v1 (0123456789ab) on", "relative to", "Speed-up: "} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "<b>, ") || strings.Contains(page, "node<1>") {
		t.Error("text of the study is markup on the page")
	}
	md, err := os.ReadFile(filepath.Join(dir, MarkdownName))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(md), "\n| parallel") + strings.Count(string(md), "\n| stages"); n != 200 {
		t.Errorf("%d cases in the Markdown", n)
	}
	var suite junitSuite
	text, err := os.ReadFile(filepath.Join(dir, JUnitName))
	if err == nil {
		err = xml.Unmarshal(text, &suite)
	}
	if err != nil || suite.Tests != 200 || len(suite.Cases) != 200 || suite.Failures != 0 {
		t.Errorf("JUnit: %d tests, %d failures, %v", suite.Tests, suite.Failures, err)
	}
	plots, _ := filepath.Glob(filepath.Join(dir, PlotsName, "*.svg"))
	if len(plots) < 4 {
		t.Errorf("plots %v", plots)
	}
	for _, p := range plots {
		b, err := os.ReadFile(p)
		if err == nil {
			err = xml.Unmarshal(b, new(struct {
				XMLName xml.Name `xml:"svg"`
			}))
		}
		if err != nil {
			t.Errorf("%s is no SVG: %v", p, err)
		}
	}
}

// checkPage holds what every page has to be: nothing is loaded, every figure says what made it and has a name.
func checkPage(t *testing.T, page string) {
	t.Helper()
	for _, bad := range []string{"http:", "https:", "src=", "url(", "@import", "<link"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if !strings.Contains(page, `content="default-src 'none'`) {
		t.Error("the page has no content policy")
	}
	figures := strings.Split(page, "<figure")[1:]
	if len(figures) == 0 {
		t.Error("the page has no figure")
	}
	caption := regexp.MustCompile(`<figcaption>[^<]+<small>pipetrain [^<]+ on [^<]+: [^<]+</small>|<figcaption>[^<]+<small>pipetrain [^<]+ on [^<]+, the last night; pipetrain study [^<]+</small>|<figcaption>[^<]+<small>pipetrain [^<]+, [^<]+ on [^<]+: [^<]+</small>`)
	for _, f := range figures {
		if !strings.Contains(f, `role="img" aria-label="`) || !caption.MatchString(f) {
			t.Errorf("a figure without a name or without what made it: %.300s", f)
		}
	}
}

// The page's table of cases has the medians of summary.csv.
func TestTableIsTheCSV(t *testing.T) {
	dir := large(t)
	s, err := openStudy(dir)
	if err != nil {
		t.Fatal(err)
	}
	head, rows := s.caseTable()
	column := -1
	for i, h := range head {
		if h == "tokens/s" {
			column = i
		}
	}
	if err := s.WriteTables(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, study.SummaryCSV))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 200 || len(all) != 201 {
		t.Fatalf("%d rows, %d lines", len(rows), len(all))
	}
	index := map[string]int{}
	for i, h := range all[0] {
		index[h] = i
	}
	for i, r := range rows {
		var x float64
		if _, err := fmt.Sscan(all[i+1][index["tokens_per_second"]], &x); err != nil {
			t.Fatal(err)
		}
		if r[0] != all[i+1][index["label"]] || r[column] != formatOf("tokens/sec")(x) {
			t.Fatalf("row %v, CSV %v", r, all[i+1])
		}
	}
}

func TestNights(t *testing.T) {
	dir := t.TempDir()
	var b strings.Builder
	for i := range 20 {
		x := 0.1
		if i >= 12 {
			x = 0.12
		}
		n := study.Night{Study: "night", Night: fmt.Sprintf("night-%02d", i), Time: time.Unix(int64(i)*86400, 0).UTC(), Case: "c", Label: "1F1B", Metric: "step_seconds", Unit: "sec/step",
			Median: study.Number(x + float64(i%3)*1e-4), Lo: study.Number(x), Hi: study.Number(x + 0.001), N: 5, Version: fmt.Sprintf("v%d", i), Host: "n1"}
		line, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	write(t, filepath.Join(dir, study.HistoryName), b.String())
	var page strings.Builder
	if err := Nights(&page, dir); err != nil {
		t.Fatal(err)
	}
	checkPage(t, page.String())
	if !strings.Contains(page.String(), "on 1970-01-13 (v11 to v12)") {
		t.Errorf("the step is not found: %.3000s", page.String())
	}
	if err := Nights(&page, t.TempDir()); err == nil {
		t.Error("a folder without nights makes a page")
	}
}
