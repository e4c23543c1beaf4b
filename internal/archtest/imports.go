package archtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Package is one package of the module as the go command sees it, with the
// imports of all its files, whatever their build tags.
type Package struct {
	Path    string // relative to the module; "." is the module's root
	Doc     string // first sentence of the package comment
	Files   int    // non-test files
	Imports []Import
}

// Import is one import of one non-test file.
type Import struct {
	File string // relative to the root
	Line int
	Path string
}

// Packages lists the module's packages with `go list` and reads the imports of
// their files, those of other systems and of build tags included.
func Packages(root string) (module string, packages []Package, err error) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Doc,Module,GoFiles,CgoFiles,IgnoredGoFiles", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", nil, fmt.Errorf("go list in %s: %w", root, err)
	}
	absolute, err := filepath.Abs(root)
	if err != nil {
		return "", nil, err
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p struct {
			ImportPath, Dir, Doc              string
			Module                            struct{ Path string }
			GoFiles, CgoFiles, IgnoredGoFiles []string
		}
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return "", nil, fmt.Errorf("go list in %s: %w", root, err)
		}
		module = p.Module.Path
		pkg := Package{Path: relative(module, p.ImportPath), Doc: p.Doc}
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles, p.IgnoredGoFiles) {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			imports, err := fileImports(absolute, filepath.Join(p.Dir, name))
			if err != nil {
				return "", nil, err
			}
			pkg.Imports = append(pkg.Imports, imports...)
			pkg.Files++
		}
		packages = append(packages, pkg)
	}
	return module, packages, nil
}

// relative returns an import path relative to the module, "." for the module itself.
func relative(module, path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

func fileImports(root, file string) ([]Import, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(root, file)
	if err != nil {
		return nil, err
	}
	var imports []Import
	for _, spec := range f.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		imports = append(imports, Import{filepath.ToSlash(rel), fset.Position(spec.Pos()).Line, path})
	}
	return imports, nil
}

// CheckImports returns the imports that the table does not allow and the
// packages it does not know.
func CheckImports(rows []Row, module string, packages []Package) []string {
	var bad []string
	for _, p := range packages {
		row, ok := lookup(rows, p.Path)
		if !ok {
			bad = append(bad, fmt.Sprintf("package %s has no row in the import table of docs/architecture.md: add one", p.Path))
			continue
		}
		for _, imp := range p.Imports {
			if imp.Path == "C" {
				bad = append(bad, fmt.Sprintf(`%s:%d: import "C": libraries are bound at run time, so that the build needs no C compiler`, imp.File, imp.Line))
			}
			if imp.Path != module && !strings.HasPrefix(imp.Path, module+"/") {
				continue
			}
			if to := relative(module, imp.Path); !allowed(rows, p.Path, to) {
				bad = append(bad, fmt.Sprintf("%s:%d: %s imports %s; %s may import %s (docs/architecture.md, import table)",
					imp.File, imp.Line, p.Path, to, row.Package, describe(row)))
			}
		}
	}
	return bad
}

func describe(r Row) string {
	if len(r.Imports) == 0 {
		return "nothing of ours"
	}
	return strings.Join(r.Imports, ", ")
}

// CheckPure returns the imports of a package that plain data has no use for:
// anything with a clock, files, the network, processes or goroutines' tools, and
// everything outside the standard library. Random numbers from a stated seed are data.
func CheckPure(pkg string, packages []Package) []string {
	impure := []string{"context", "crypto/rand", "log", "net", "os", "runtime", "sync", "syscall", "time", "unsafe"}
	var bad []string
	for _, p := range packages {
		if p.Path != pkg {
			continue
		}
		for _, imp := range p.Imports {
			first, _, _ := strings.Cut(imp.Path, "/")
			outside := strings.Contains(first, ".")
			if outside || slices.ContainsFunc(impure, func(i string) bool { return imp.Path == i || strings.HasPrefix(imp.Path, i+"/") }) {
				bad = append(bad, fmt.Sprintf("%s:%d: %s imports %s: it is plain data, without clock, I/O or goroutines", imp.File, imp.Line, pkg, imp.Path))
			}
		}
	}
	return bad
}

// CheckDocs returns the packages without a package comment.
func CheckDocs(packages []Package) []string {
	var bad []string
	for _, p := range packages {
		if p.Doc == "" && p.Files > 0 {
			bad = append(bad, fmt.Sprintf("package %s has no package comment: say in one file what lives there", p.Path))
		}
	}
	return bad
}
