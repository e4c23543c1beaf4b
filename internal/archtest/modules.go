package archtest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var require = regexp.MustCompile(`(?m)^(?:require)?\s+([\w.\-]+\.[\w.\-]+/[\w.\-/]+) v\S+`)

// Modules returns the modules that a go.mod requires, direct and indirect.
func Modules(gomod string) []string {
	var all []string
	for _, m := range require.FindAllStringSubmatch(gomod, -1) {
		all = append(all, m[1])
	}
	return all
}

// moduleOf returns the longest of the modules that holds an import path.
func moduleOf(modules []string, path string) string {
	best := ""
	for _, m := range modules {
		if (path == m || strings.HasPrefix(path, m+"/")) && len(m) > len(best) {
			best = m
		}
	}
	return best
}

// dependencyRow is a line of docs/dependencies.md's first table: the module in
// the first column, the packages that may use it in the second.
func dependencyRows(page string) map[string][]string {
	rows := map[string][]string{}
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if module := quoted(cells[0]); len(module) == 1 && len(cells) > 1 && strings.Contains(module[0], ".") {
			rows[module[0]] = quoted(cells[1])
		}
	}
	return rows
}

// CheckModules returns what differs between the modules that our packages
// import and the table of docs/dependencies.md: modules not listed, listed but
// not used, or used by a package that the table does not name.
func CheckModules(gomod, page, module string, packages []Package) []string {
	modules := Modules(gomod)
	listed := dependencyRows(page)
	used := map[string]bool{}
	var bad []string
	for _, p := range packages {
		for _, imp := range p.Imports {
			first, _, _ := strings.Cut(imp.Path, "/")
			if !strings.Contains(first, ".") || imp.Path == module || strings.HasPrefix(imp.Path, module+"/") {
				continue
			}
			m := moduleOf(modules, imp.Path)
			if m == "" {
				bad = append(bad, fmt.Sprintf("%s:%d: %s is in no module of go.mod", imp.File, imp.Line, imp.Path))
				continue
			}
			used[m] = true
			in, ok := listed[m]
			if !ok {
				bad = append(bad, fmt.Sprintf("%s:%d: %s is not in docs/dependencies.md: add its reason, licence, own dependencies and alternatives", imp.File, imp.Line, m))
			} else if !slices.ContainsFunc(in, func(pattern string) bool { return covers(pattern, p.Path) }) {
				bad = append(bad, fmt.Sprintf("%s:%d: %s uses %s; docs/dependencies.md has it in %s only", imp.File, imp.Line, p.Path, m, strings.Join(in, ", ")))
			}
		}
	}
	for m := range listed {
		if !used[m] {
			bad = append(bad, fmt.Sprintf("docs/dependencies.md lists %s, which no package imports", m))
		}
	}
	slices.Sort(bad)
	return slices.Compact(bad)
}

// covers says whether a pattern of a table, "a" or "a/*", stands for a package.
func covers(pattern, pkg string) bool {
	if above, wild := strings.CutSuffix(pattern, "/*"); wild {
		return strings.HasPrefix(pkg, above+"/")
	}
	return pattern == pkg
}
