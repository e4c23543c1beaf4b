package archtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree writes a small repository and returns its root.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// want fails unless there is one complaint for each of the parts, which holds it.
func want(t *testing.T, got []string, parts ...string) {
	t.Helper()
	if len(got) != len(parts) {
		t.Fatalf("got %d complaints, want %d:\n%s", len(got), len(parts), strings.Join(got, "\n"))
	}
	for _, part := range parts {
		if !slices.ContainsFunc(got, func(g string) bool { return strings.Contains(g, part) }) {
			t.Errorf("no complaint has %q:\n%s", part, strings.Join(got, "\n"))
		}
	}
}

const page = `# Architecture

## Import table

Words before it.

| package | what | may import |
|---|---|---|
| ` + "`a`" + ` | bottom | nothing of ours |
| ` + "`a/*`" + ` | backends | ` + "`a`" + ` |
| ` + "`b`" + ` | middle | ` + "`a`" + ` |
| ` + "`cmd/x`" + ` | top | everything |

| ` + "`c`" + ` | another table | nothing of ours |
`

func TestParseTable(t *testing.T) {
	rows, err := ParseTable(page)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 4 || rows[2].Package != "b" || !slices.Equal(rows[2].Imports, []string{"a"}) || !rows[3].Everything {
		t.Fatalf("rows %+v", rows)
	}
	for _, c := range []struct{ from, to, err string }{
		{"## Import table", "## Imports", "no heading"},
		{"nothing of ours |\n| `a/*`", "whatever |\n| `a/*`", "nothing of ours"},
		{"| `b` | middle | `a` |", "| `b` | middle | `q` |", "no row"},
		{"| `b` | middle", "| `a` | middle", "two rows"},
		{"| `b` | middle | `a` |", "| `b` | mid | dle | `a` |", "one package"},
	} {
		bad := strings.Replace(page, c.from, c.to, 1)
		if bad == page {
			t.Fatalf("%q is not in the page", c.from)
		}
		if _, err := ParseTable(bad); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q for %q: error %v, want one with %q", c.to, c.from, err, c.err)
		}
	}
}

func TestAllowed(t *testing.T) {
	rows, err := ParseTable(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pkg, imp string
		ok       bool
	}{
		{"b", "a", true},
		{"a", "b", false},
		{"b", "a/one", false},      // only the top picks backends
		{"a", "a/one", false},      // the interface does not know its backends
		{"a/one", "a", true},       //
		{"a/one", "a/one/x", true}, // a backend's own parts
		{"a/one/x", "a/one/y", true},
		{"a/one/x", "a", true},
		{"a/one", "a/two", false},
		{"a/one", "a/onetwo", false},
		{"a/one", "b", false},
		{"cmd/x", "a/one", true},
		{"cmd/y", "a", false}, // no row
	} {
		if got := allowed(rows, c.pkg, c.imp); got != c.ok {
			t.Errorf("%s imports %s: allowed %v, want %v", c.pkg, c.imp, got, c.ok)
		}
	}
}

// TestImportsFound runs the real go command over a module that breaks each rule,
// once in a file behind a build tag and once in one for another system.
func TestImportsFound(t *testing.T) {
	root := tree(t, map[string]string{
		"go.mod":         "module example.com/m\n\ngo 1.24\n",
		"a/a.go":         "// Package a is the bottom.\npackage a\n",
		"a/tag.go":       "//go:build cuda\n\npackage a\n\nimport _ \"example.com/m/b\"\n",
		"a/a_windows.go": "package a\n\nimport _ \"time\"\n",
		"a/one/one.go":   "// Package one is a backend.\npackage one\n\nimport _ \"example.com/m/a\"\n",
		"b/b.go":         "package b\n\nimport _ \"example.com/m/a/one\"\n",
		"b/c.go":         "package b\n\nimport \"C\"\n",
		"b/b_test.go":    "package b\n\nimport _ \"example.com/m/cmd/x\"\n",
		"cmd/x/x.go":     "// Command x picks.\npackage main\n\nimport _ \"example.com/m/a/one\"\n\nfunc main() {}\n",
		"extra/extra.go": "// Package extra has no row.\npackage extra\n",
	})
	rows, err := ParseTable(page)
	if err != nil {
		t.Fatal(err)
	}
	module, all, err := Packages(root)
	if err != nil {
		t.Fatal(err)
	}
	want(t, CheckImports(rows, module, all),
		"a/tag.go:5: a imports b; a may import nothing of ours",
		"b/b.go:3: b imports a/one; b may import a ",
		`b/c.go:3: import "C"`,
		"package extra has no row")
	want(t, CheckPure("a", all), "a/tag.go:5", "a/a_windows.go:3: a imports time")
	want(t, CheckDocs(all), "package b has no package comment")
}

func TestModulesFound(t *testing.T) {
	gomod := "module example.com/m\n\nrequire (\n\tgithub.com/x/one v1.0.0\n\tgithub.com/x/one/v2 v2.0.0 // indirect\n\tgolang.org/x/sys v0.1.0\n)\n\nrequire github.com/y/three v0.0.1\n"
	if got := Modules(gomod); !slices.Equal(got, []string{"github.com/x/one", "github.com/x/one/v2", "golang.org/x/sys", "github.com/y/three"}) {
		t.Fatalf("modules %v", got)
	}
	page := "| module | used in |\n|---|---|\n| `github.com/x/one/v2` | `a`, `b/*` |\n| `github.com/z/unused` | `a` |\n"
	imp := func(paths ...string) (list []Import) {
		for i, p := range paths {
			list = append(list, Import{"f.go", i + 1, p})
		}
		return list
	}
	want(t, CheckModules(gomod, page, "example.com/m", []Package{
		{Path: "a", Imports: imp("fmt", "github.com/x/one/v2/sub", "example.com/m/b")},
		{Path: "b", Imports: imp("github.com/x/one/v2")},
		{Path: "b/c", Imports: imp("github.com/x/one/v2")},
		{Path: "c", Imports: imp("golang.org/x/sys/unix", "github.com/q/none")},
	}),
		"b uses github.com/x/one/v2; docs/dependencies.md has it in a, b/* only",
		"golang.org/x/sys is not in docs/dependencies.md",
		"github.com/q/none is in no module",
		"lists github.com/z/unused, which no package imports")
}

func TestFilesFound(t *testing.T) {
	lines := func(n int) string { return strings.Repeat("x\n", n) }
	root := tree(t, map[string]string{
		"long.go":           lines(MaxLines + 1),
		"close.go":          lines(WarnLines + 1),
		"fine.go":           lines(WarnLines),
		"made.go":           "// Code generated by x. DO NOT EDIT.\n" + lines(MaxLines),
		"a/testdata/big.go": lines(MaxLines + 1),
		"data.csv":          lines(MaxLines + 1),
		"path.md":           "fine\nsee /" + "work/main/x\n",
		"fine.md":           "net" + "work/ and ~/" + "work/ and https://x/" + "work/1\n",
		"merge.txt":         "<<<<<<" + "< HEAD\n",
		"proxy.sh":          "#!/usr/bin/env bash\nset -euo pipefail\nexport GOPROXY=" + "http://127.0.0.1\n",
		"loose.sh":          "#!/bin/bash\necho\n",
		"binary":            "\x00/" + "work/\n",
		"huge.txt":          strings.Repeat("y", MaxFileBytes+1),
		"bin/pipetrain":     lines(MaxLines + 1),
	})
	if err := os.Chmod(filepath.Join(root, "proxy.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	all, err := Files(root)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(all, "bin/pipetrain") {
		t.Error("the build's output is taken for a source")
	}
	bad, warn := CheckLengths(root, all)
	want(t, bad, "long.go has 501 lines")
	want(t, warn, "close.go has 401 lines")
	want(t, CheckForbidden(root, all), "path.md:2: the path", "merge.txt:1: a merge", "proxy.sh:3: a package registry")
	want(t, CheckSizes(root, all), "huge.txt")
	want(t, CheckScripts(root, all), "loose.sh has a #! line", "loose.sh: no `set")
	want(t, CheckLicense(root), "LICENSE")
}

func TestPagesFound(t *testing.T) {
	root := tree(t, map[string]string{
		"Makefile":       "test: ## all\n\tgo test\n",
		"README.md":      "# Top\n\n## Two words: `code`!\n\n[a](docs/a.md) [dir](docs) [here](#two-words-code) [no](#three) [web](https://x.y/z)\n\n```\n[x](nowhere.md)\n```\n`make test`, `make tea`\n",
		"docs/README.md": "[a](a.md)\n",
		"docs/a.md":      "# A\n\n[up](../README.md#top) [no](b.md) [gone](../README.md#gone)\n",
		"docs/lost.md":   "# Lost\n",
	})
	all, err := Files(root)
	if err != nil {
		t.Fatal(err)
	}
	want(t, CheckLinks(root, all), "README.md:5: link to #three", "docs/a.md:3: link to b.md, which does not exist", "docs/a.md:3: link to ../README.md#gone")
	want(t, CheckMakeTargets(root, all), "`make tea`")
	want(t, CheckIndex(root, all), "docs/lost.md")
}

func TestReplaceBlock(t *testing.T) {
	page := "a\n<!-- begin t -->\nold\n<!-- end t -->\nb\n"
	got, err := ReplaceBlock(page, "t", "new\nlines\n")
	if want := "a\n<!-- begin t -->\nnew\nlines\n<!-- end t -->\nb\n"; err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	for _, bad := range []string{"", page + page, "<!-- end t -->\n<!-- begin t -->\n"} {
		if _, err := ReplaceBlock(bad, "t", "x"); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}
