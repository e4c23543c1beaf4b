package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/pipetrain/pipetrain/study"
)

// markdown writes the page's tables for a merge request or a chat.
func (s *studyPage) markdown(w io.Writer) {
	fmt.Fprintf(w, "# Study %s\n\n%s\n\n", s.File.Name, s.from)
	status := s.End.Status
	if !s.Ended {
		status = "unfinished"
	}
	fmt.Fprintf(w, "**%s** (code %d), %d cases × %d\n\n", status, int(s.End.Code), len(s.Cases), s.File.Repeats)
	if len(s.End.Findings) > 0 {
		fmt.Fprintf(w, "## Verdicts against baseline %s\n\n", s.End.Gate)
		markdownTable(w, findingHead, findingRows(s.End.Findings))
	}
	var rows [][]string
	for _, p := range s.Unfinished() {
		rows = append(rows, []string{string(p.Status), p.Label, fmt.Sprint(p.Round), p.Reason, p.Folder + ".log"})
	}
	for _, c := range s.Cases {
		if c.Spec == nil {
			rows = append(rows, []string{string(study.Impossible), c.Label, "", c.Why, ""})
		}
	}
	if len(rows) > 0 {
		fmt.Fprint(w, "## Failed, missing, impossible\n\n")
		markdownTable(w, []string{"status:", "case:", "round", "reason:", "log:"}, rows)
	}
	fmt.Fprintf(w, "## Cases\n\n%s\n\n", s.caption())
	head, rows := s.caseTable()
	markdownTable(w, head, rows)
}

func markdownTable(w io.Writer, head []string, rows [][]string) {
	clean := strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;")
	line := func(cells []string) {
		for _, c := range cells {
			fmt.Fprintf(w, "| %s ", clean.Replace(c))
		}
		fmt.Fprint(w, "|\n")
	}
	names, rule := make([]string, len(head)), make([]string, len(head))
	for i, h := range head {
		names[i], rule[i] = strings.TrimSuffix(h, ":"), "---:"
		if strings.HasSuffix(h, ":") {
			rule[i] = "---"
		}
	}
	line(names)
	line(rule)
	for _, r := range rows {
		line(r)
	}
	fmt.Fprintln(w)
}

// JUnit's form, as continuous integration reads it: a case a test, failed where it regressed, is missing or failed.
type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string     `xml:"classname,attr"`
	Name    string     `xml:"name,attr"`
	Time    string     `xml:"time,attr,omitempty"`
	Failure *junitText `xml:"failure,omitempty"`
	Skipped *junitText `xml:"skipped,omitempty"`
}

type junitText struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func (s *studyPage) junit(w io.Writer) {
	suite := junitSuite{Name: s.File.Name}
	for _, c := range s.Cases {
		x := junitCase{Class: s.File.Name, Name: c.Label}
		var bad []string
		total := 0.0
		for _, p := range s.Points {
			if p.Case == c.ID && p.Seconds.Known() {
				total += float64(p.Seconds)
			}
		}
		x.Time = fmt.Sprintf("%.3f", total)
		for _, p := range s.Unfinished() {
			if p.Case == c.ID {
				bad = append(bad, fmt.Sprintf("round %d, %s: %s: %s (%s.log)", p.Round, p.Binary, p.Status, p.Reason, p.Folder))
			}
		}
		for _, f := range s.End.Findings {
			if f.Case == c.Label && (f.Verdict.Regressed() || f.Verdict.Incomplete()) {
				bad = append(bad, f.Text())
			}
		}
		switch {
		case c.Spec == nil:
			x.Skipped = &junitText{Message: c.Why}
			suite.Skipped++
		case len(bad) > 0:
			x.Failure = &junitText{Message: bad[0], Text: strings.Join(bad, "\n")}
			suite.Failures++
		}
		suite.Cases = append(suite.Cases, x)
	}
	suite.Tests = len(suite.Cases)
	b, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil { // of texts and numbers: it cannot fail
		return
	}
	fmt.Fprintf(w, "%s%s\n", xml.Header, b)
}

// Markdown writes a study's report in Markdown.
func Markdown(w io.Writer, dir string) error {
	s, err := openStudy(dir)
	if err != nil {
		return err
	}
	s.markdown(w)
	return nil
}

// Study writes a study's page.
func Study(w io.Writer, dir string) error {
	s, err := openStudy(dir)
	if err != nil {
		return err
	}
	return s.page(w, s.figures())
}
