package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRunFolder(t *testing.T) {
	h := &Host{RunDir: filepath.Join(t.TempDir(), "not", "yet", "there")}
	found := checkRunFolder(t.Context(), h)
	if found[0].Level == Fails || !strings.Contains(found[0].Found, "free") {
		t.Errorf("a folder that can be made: %+v", found)
	}
	if s, measured := found[0].Values["save_seconds_median"].(float64); !measured || s <= 0 {
		t.Errorf("no time measured: %+v", found[0].Values)
	}
	if _, err := os.Stat(h.RunDir); err == nil {
		t.Error("the check made the run folder")
	}

	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	h.RunDir = filepath.Join(file, "runs")
	expect(t, h, checkRunFolder, Fails, "not a folder")
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	h.RunDir = filepath.Join(dir, "dangling")
	expect(t, h, checkRunFolder, Fails, "dangling is not a folder")
	h.RunDir = "/proc/runs"
	expect(t, h, checkRunFolder, Fails, "saving would fail")
	if left, _ := filepath.Glob(filepath.Join(dir, ".pipetrain-doctor-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestFullFileSystem needs root: it mounts file systems of a few kilobytes, one full, one read-only.
func TestFullFileSystem(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	mount := func(options string, flags uintptr) string {
		dir := t.TempDir()
		if err := unix.Mount("none", dir, "tmpfs", flags, options); err != nil {
			t.Skipf("mounting is not allowed here: %v", err)
		}
		t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
		return dir
	}
	full := mount("size=64k", 0)
	expect(t, &Host{RunDir: full}, checkRunFolder, Fails, "no space left", "free space")
	if left, _ := os.ReadDir(full); len(left) > 0 {
		t.Errorf("left behind on the full file system: %v", left)
	}
	expect(t, &Host{RunDir: mount("size=64k", unix.MS_RDONLY)}, checkRunFolder, Fails, "read-only")
	found := expect(t, &Host{RunDir: mount("size=64m", 0)}, checkRunFolder, Warning, "live in memory", "little space")
	if found[0].Values["file_system"] != "tmpfs" {
		t.Errorf("file system %v", found[0].Values["file_system"])
	}
	few := mount("size=64m,nr_inodes=100", 0)
	expect(t, &Host{RunDir: few}, checkRunFolder, Warning, "files can still be made")
}

func TestTempFolder(t *testing.T) {
	expect(t, &Host{Env: []string{"TMPDIR=" + t.TempDir() + "/gone"}}, checkTempFolder, Fails, "no such file", "export TMPDIR=/tmp")
	expect(t, &Host{}, checkTempFolder, OK, "/tmp")
	long := filepath.Join(t.TempDir(), strings.Repeat("x", maxTempPath))
	if err := os.Mkdir(long, 0o755); err != nil {
		t.Fatal(err)
	}
	expect(t, &Host{Env: []string{"TMPDIR=" + long}}, checkTempFolder, Warning, "bytes long")
}
