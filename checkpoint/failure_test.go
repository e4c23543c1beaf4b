package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mountTmpfs mounts a file system of a given size, or skips the test.
func mountTmpfs(t *testing.T, path, size string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("needs root to mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// allFail saves step 2 from two ranks and checks that both say why, and that
// step 1 loads still.
func allFail(t *testing.T, dir, why, do string) {
	t.Helper()
	for rank, err := range saveAll(t.Context(), SaveConfig{Dir: dir, Step: 2, Shards: 2, Keep: 1}, 2, nil) {
		var s *SaveError
		if !errors.As(err, &s) || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), do) {
			t.Errorf("rank %d: %v\nwant %q and %q", rank, err, why, do)
		}
	}
	mustOpen(t, dir, Want{}, 1)
}

func TestDiskFull(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "small")
	mountTmpfs(t, dir, "80k") // one checkpoint takes about 40k in whole pages, with its folder
	mustSave(t, dir, 1, 2)
	// Leave one page: some rank's file does not fit.
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	fill := make([]byte, (int64(st.Bavail)-1)*int64(st.Bsize))
	if err := os.WriteFile(filepath.Join(dir, "ballast"), fill, 0o644); err != nil {
		t.Fatal(err)
	}
	allFail(t, dir, "no space left on device", "free space")
	if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
		t.Fatal(err)
	}
	// What failed left nothing behind, so that with space again it goes on.
	if left := names(t, dir); len(left) != 1 {
		t.Errorf("left %v", left)
	}
}

func TestReadOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ro")
	mountTmpfs(t, dir, "1m")
	mustSave(t, dir, 1, 2)
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	allFail(t, dir, "read-only file system", "--out")
}

func TestFileInPlaceOfFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, err := range saveAll(t.Context(), SaveConfig{Dir: dir, Step: 2, Shards: 2}, 2, nil) {
		if err == nil || !strings.Contains(err.Error(), "not a directory") {
			t.Error(err)
		}
	}
}

// failFsync makes fsync fail with EIO on the calling OS thread, by the kernel
// itself (seccomp). The goroutine must stay locked to the thread and end with it.
func failFsync() error {
	runtime.LockOSThread()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the system call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FSYNC, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(syscall.EIO)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
}

// TestDiskError: one rank's disk gives EIO on sync. All ranks must return.
func TestDiskError(t *testing.T) {
	for bad := range 2 {
		dir := t.TempDir()
		mustSave(t, dir, 1, 2)
		h := newHub(2)
		type result struct {
			err  error
			skip error
		}
		results := make([]chan result, 2)
		for rank := range 2 {
			results[rank] = make(chan result, 1)
			go func() {
				var r result
				if rank == bad {
					r.skip = failFsync()
				}
				model, optimizer := shardOf(2, rank, 2)
				r.err = Save(t.Context(), SaveConfig{Dir: dir, Step: 2, Shard: rank, Shards: 2, Keep: 1, Group: member{h, rank}}, model, optimizer, testMeta)
				results[rank] <- r
			}()
		}
		for rank := range 2 {
			r := <-results[rank]
			if r.skip != nil {
				t.Skipf("no seccomp here: %v", r.skip)
			}
			if r.err == nil || !strings.Contains(r.err.Error(), "input/output error") || !strings.Contains(r.err.Error(), "kernel's log") {
				t.Errorf("rank %d with rank %d's disk bad: %v", rank, bad, r.err)
			}
			if errors.Is(r.err, syscall.EIO) != (rank == bad) {
				t.Errorf("rank %d: errors.Is(EIO) is %v", rank, rank != bad)
			}
		}
		mustOpen(t, dir, Want{}, 1)
	}
}
