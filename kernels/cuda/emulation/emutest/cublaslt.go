package emutest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// BuildCublasLt compiles the stand-in for cublasLt and returns its path. It computes on
// the streams of the stand-in for libcuda, which must be loaded before.
func BuildCublasLt() (string, error) {
	building.Lock()
	defer building.Unlock()
	if _, err := exec.LookPath("g++"); err != nil {
		return "", ErrNoCompiler
	}
	emulation := filepath.Join(Root(), "emulation")
	key, err := digest("", filepath.Join(emulation, "cublaslt"))
	if err != nil {
		return "", err
	}
	folder := filepath.Join(Root(), "..", "..", "build", "emulation", "cublaslt-"+key)
	library := filepath.Join(folder, "libcublasLt.so.12")
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
	cmd := exec.Command("bash", filepath.Join(emulation, "build-cublaslt.sh"), scratch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the emulated cublasLt: %w\n%s", err, out)
	}
	if err := os.Rename(scratch, folder); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, found := os.Stat(library); found != nil {
			return "", err
		}
	}
	return library, nil
}
