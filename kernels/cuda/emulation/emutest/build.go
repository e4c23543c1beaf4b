// Package emutest builds the emulation of the CUDA kernels and runs single kernels
// on it, for tests.
package emutest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// ErrNoCompiler is Build's error where there is no g++.
var ErrNoCompiler = errors.New("the emulation of the CUDA kernels needs g++ (apt-get install g++)")

// Options of Build.
type Options struct {
	// Fast leaves out the checks of each access to memory.
	Fast bool
	// Sources is the folder of the kernels, "" for the project's own.
	Sources string
	// Flags are g++'s, such as "-DNAME".
	Flags []string
}

// Root returns the folder kernels/cuda of the source tree this program was compiled from.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

var building sync.Mutex

// Build compiles the stand-in for libcuda.so.1 with all kernels in it and returns its path. What
// was built from the same sources before, by this or another process, is used again.
func Build(o Options) (string, error) {
	building.Lock()
	defer building.Unlock()
	if _, err := exec.LookPath("g++"); err != nil {
		return "", ErrNoCompiler
	}
	emulation := filepath.Join(Root(), "emulation")
	if o.Sources == "" {
		o.Sources = filepath.Join(Root(), "src")
	}
	key, err := digest(fmt.Sprint(o.Fast, o.Flags), emulation, o.Sources)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(Root(), "..", "..", "build", "emulation", key)
	library := filepath.Join(folder, "libcuda.so.1")
	if _, err := os.Stat(library); err == nil {
		return library, nil
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", err
	}
	scratch, err := os.MkdirTemp(filepath.Dir(folder), "tmp-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	args := []string{filepath.Join(emulation, "build.sh"), scratch}
	if o.Fast {
		args = append(args, "--fast")
	}
	args = append(args, o.Flags...)
	cmd := exec.Command("bash", args...)
	cmd.Env = append(os.Environ(), "PIPETRAIN_KERNEL_SOURCES="+o.Sources)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the emulated kernels: %w\n%s", err, out)
	}
	// Another process may have been faster: then its folder stays.
	if err := os.Rename(scratch, folder); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, found := os.Stat(library); found != nil {
			return "", err
		}
	}
	return library, nil
}

// digest names a state of the sources.
func digest(options string, folders ...string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, options)
	for _, folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			if e.IsDir() || strings.HasSuffix(e.Name(), ".md") {
				continue
			}
			b, err := os.ReadFile(filepath.Join(folder, e.Name()))
			if err != nil {
				return "", err
			}
			fmt.Fprintln(h, e.Name(), len(b))
			h.Write(b)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}
