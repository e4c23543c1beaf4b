package archtest

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	link      = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	makeUse   = regexp.MustCompile("`make ([a-z][a-z-]*)")
	target    = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	notAnchor = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// prose returns the text of a Markdown page without its fenced code blocks,
// whose lines it leaves empty so that line numbers stay.
func prose(text string) string {
	var b strings.Builder
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			line = "\n"
		} else if fenced {
			line = "\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// anchors returns the link targets of a page's headings, as code forges make them.
func anchors(text string) []string {
	var all []string
	for line := range strings.Lines(prose(text)) {
		if heading := strings.TrimLeft(line, "#"); heading != line && strings.HasPrefix(heading, " ") {
			a := notAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			all = append(all, strings.ReplaceAll(a, " ", "-"))
		}
	}
	return all
}

// CheckLinks returns the links of Markdown pages that lead to no tracked file or heading.
func CheckLinks(root string, files []string) []string {
	var bad []string
	exists := func(name string) bool {
		return slices.Contains(files, name) || slices.ContainsFunc(files, func(f string) bool { return strings.HasPrefix(f, name+"/") })
	}
	for _, name := range files {
		if path.Ext(name) != ".md" || inTestdata(name) {
			continue
		}
		n := 0
		for line := range strings.Lines(prose(read(root, name))) {
			n++
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				to, anchor, hasAnchor := strings.Cut(m[1], "#")
				if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
					continue
				}
				page := name
				if to != "" {
					page = path.Join(path.Dir(name), to)
				}
				if !exists(page) {
					bad = append(bad, fmt.Sprintf("%s:%d: link to %s, which does not exist", name, n, m[1]))
				} else if hasAnchor && path.Ext(page) == ".md" && !slices.Contains(anchors(read(root, page)), anchor) {
					bad = append(bad, fmt.Sprintf("%s:%d: link to %s: the page has no such heading", name, n, m[1]))
				}
			}
		}
	}
	return bad
}

// CheckMakeTargets returns the targets that pages name and the Makefile lacks.
func CheckMakeTargets(root string, files []string) []string {
	var known []string
	for _, m := range target.FindAllStringSubmatch(read(root, "Makefile"), -1) {
		known = append(known, m[1])
	}
	var bad []string
	for _, name := range files {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, m := range makeUse.FindAllStringSubmatch(read(root, name), -1) {
			if !slices.Contains(known, m[1]) {
				bad = append(bad, fmt.Sprintf("%s: `make %s`: the Makefile has no such target", name, m[1]))
			}
		}
	}
	return bad
}

// CheckIndex returns the pages of docs/ that its index, docs/README.md, does not link.
func CheckIndex(root string, files []string) []string {
	index := read(root, "docs/README.md")
	var bad []string
	for _, name := range files {
		if path.Dir(name) == "docs" && path.Ext(name) == ".md" && name != "docs/README.md" && !strings.Contains(index, "]("+path.Base(name)) {
			bad = append(bad, fmt.Sprintf("%s is not linked from docs/README.md", name))
		}
	}
	return bad
}

// ReplaceBlock returns page with the lines between "<!-- begin name -->" and
// "<!-- end name -->" replaced by text. It fails when the marks are not there once each.
func ReplaceBlock(page, name, text string) (string, error) {
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->\n"
	if strings.Count(page, begin) != 1 || strings.Count(page, end) != 1 {
		return "", fmt.Errorf("want the lines %q and %q once each", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	before, rest, _ := strings.Cut(page, begin)
	_, after, found := strings.Cut(rest, end)
	if !found {
		return "", fmt.Errorf("%q comes before %q", strings.TrimSpace(end), strings.TrimSpace(begin))
	}
	return before + begin + strings.TrimRight(text, "\n") + "\n" + end + after, nil
}
