package archtest

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Row is one line of the import table.
type Row struct {
	Package    string   // "rank", or "kernels/*" for all packages below kernels
	Everything bool     // may import all packages of the module
	Imports    []string // packages it may import, as in Package
}

// ParseTable reads the import table from the text of docs/architecture.md: the
// first table under the heading "## Import table", with the package in the
// first column and what it may import in the last.
func ParseTable(page string) ([]Row, error) {
	_, section, found := strings.Cut(page, "\n## Import table\n")
	if !found {
		return nil, fmt.Errorf(`no heading "## Import table"`)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var rows []Row
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			if rows != nil {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		name := quoted(cells[0])
		if len(name) == 0 {
			continue // heading and rule
		}
		if len(cells) != 3 || len(name) != 1 {
			return nil, fmt.Errorf("row %q: want one package, its description, its imports", line)
		}
		row := Row{Package: name[0]}
		switch may := strings.TrimSpace(cells[2]); may {
		case "everything":
			row.Everything = true
		case "nothing of ours":
		default:
			if row.Imports = quoted(may); len(row.Imports) == 0 {
				return nil, fmt.Errorf("row %q: want `package`, … or \"nothing of ours\" or \"everything\", not %q", row.Package, may)
			}
		}
		if slices.ContainsFunc(rows, func(r Row) bool { return r.Package == row.Package }) {
			return nil, fmt.Errorf("package %q has two rows", row.Package)
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("the section has no table")
	}
	for _, r := range rows {
		for _, imp := range r.Imports {
			if _, ok := lookup(rows, imp); !ok {
				return nil, fmt.Errorf("row %q allows %q, which has no row", r.Package, imp)
			}
		}
	}
	return rows, nil
}

// quoted returns the parts of s between backquotes.
func quoted(s string) []string {
	var parts []string
	for i, part := range strings.Split(s, "`") {
		if i%2 == 1 {
			parts = append(parts, part)
		}
	}
	return parts
}

// lookup returns the row of a package: its own, or the nearest "above/*".
func lookup(rows []Row, pkg string) (Row, bool) {
	for _, r := range rows {
		if r.Package == pkg {
			return r, true
		}
	}
	for dir := path.Dir(pkg); dir != "."; dir = path.Dir(dir) {
		for _, r := range rows {
			if r.Package == dir+"/*" {
				return r, true
			}
		}
	}
	return Row{}, false
}

// allowed says whether the table lets pkg import imp, both relative to the module.
func allowed(rows []Row, pkg, imp string) bool {
	row, ok := lookup(rows, pkg)
	if !ok {
		return false
	}
	if row.Everything || slices.Contains(row.Imports, imp) {
		return true
	}
	above, wild := strings.CutSuffix(row.Package, "/*")
	if !wild {
		return false
	}
	// Parts of one backend, above/backend/…, belong together; two backends do not.
	part := func(p string) string {
		first, _, _ := strings.Cut(strings.TrimPrefix(p, above+"/"), "/")
		return first
	}
	return strings.HasPrefix(imp, above+"/") && part(imp) == part(pkg)
}
