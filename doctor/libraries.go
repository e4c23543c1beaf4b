package doctor

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// libraryFolders returns the folders that the loader searches, in its order:
// LD_LIBRARY_PATH, /etc/ld.so.conf, the built-in ones. All within the host.
func libraryFolders(h *Host) []string {
	var dirs []string
	add := func(list ...string) {
		for _, d := range list {
			if d != "" && !slices.Contains(dirs, d) {
				dirs = append(dirs, d)
			}
		}
	}
	for d := range strings.SplitSeq(h.env("LD_LIBRARY_PATH"), ":") {
		if d != "" {
			add(h.path(d))
		}
	}
	add(configured(h, "/etc/ld.so.conf", 0)...)
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	for _, d := range []string{"/lib/" + triplet, "/usr/lib/" + triplet, "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib", "/usr/local/lib64"} {
		add(h.path(d))
	}
	return dirs
}

// configured reads an ld.so.conf: a folder a line, and include lines with patterns.
func configured(h *Host, file string, depth int) []string {
	if depth > 4 {
		return nil // a file that includes itself
	}
	var dirs []string
	for line := range strings.Lines(h.read(file)) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if pattern, found := strings.CutPrefix(line, "include"); found {
			pattern = strings.TrimSpace(pattern)
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(file), pattern)
			}
			files, _ := filepath.Glob(h.path(pattern))
			for _, f := range files {
				dirs = append(dirs, configured(h, strings.TrimPrefix(f, strings.TrimSuffix(h.path("/"), "/")), depth+1)...)
			}
		} else if filepath.IsAbs(line) {
			dirs = append(dirs, h.path(line))
		}
	}
	return dirs
}

// libraries returns the files of the loader's folders that match one of the
// patterns, without those that are the same file under another name.
func libraries(h *Host, patterns ...string) []string {
	return librariesIn(libraryFolders(h), patterns...)
}

func librariesIn(dirs []string, patterns ...string) []string {
	var found []string
	seen := map[string]bool{}
	for _, dir := range dirs {
		for _, pattern := range patterns {
			matches, _ := filepath.Glob(filepath.Join(dir, pattern))
			for _, m := range matches {
				real, err := filepath.EvalSymlinks(m)
				if err != nil || seen[real] {
					continue
				}
				if info, err := os.Stat(real); err != nil || !info.Mode().IsRegular() {
					continue
				}
				seen[real] = true
				found = append(found, m)
			}
		}
	}
	return found
}

var elfMachine = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// library is what a shared library's own tables tell, without loading it.
type library struct {
	path    string
	soname  string
	symbols map[string]elf.Symbol
	file    *elf.File
}

// openLibrary reads the tables of a shared library of this processor. The
// caller closes it.
func openLibrary(path string) (*library, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s is no shared library: %w", path, err)
	}
	if want := elfMachine[runtime.GOARCH]; f.Machine != want {
		f.Close()
		return nil, fmt.Errorf("%s is for %v, this machine is %v", path, f.Machine, want)
	}
	l := &library{path: path, file: f, symbols: map[string]elf.Symbol{}}
	if names, err := f.DynString(elf.DT_SONAME); err == nil && len(names) > 0 {
		l.soname = names[0]
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s has no symbols: %w", path, err)
	}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			l.symbols[s.Name] = s
		}
	}
	return l, nil
}

func (l *library) close() { l.file.Close() }

func (l *library) has(symbol string) bool { _, found := l.symbols[symbol]; return found }

// text returns the constant string at a symbol, empty when there is none.
func (l *library) text(symbol string) string {
	s, found := l.symbols[symbol]
	if !found || int(s.Section) >= len(l.file.Sections) || s.Size == 0 || s.Size > 4096 {
		return ""
	}
	section := l.file.Sections[s.Section]
	b := make([]byte, s.Size)
	if s.Value < section.Addr {
		return ""
	}
	if _, err := section.ReadAt(b, int64(s.Value-section.Addr)); err != nil {
		return ""
	}
	text, _, _ := strings.Cut(string(b), "\x00")
	return text
}

// find returns the first group of a pattern in the library's constants.
func (l *library) find(pattern *regexp.Regexp) string {
	for _, s := range l.file.Sections {
		if s.Name != ".rodata" || s.Size > 256<<20 {
			continue
		}
		if b, err := s.Data(); err == nil {
			if m := pattern.FindSubmatch(b); m != nil {
				return string(m[1])
			}
		}
	}
	return ""
}
