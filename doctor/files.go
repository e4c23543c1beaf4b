package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/pipetrain/pipetrain/durable"
)

// fileSystems names the types that matter; the numbers are statfs(2)'s.
var fileSystems = map[int64]string{
	0x6969: "NFS", 0x0BD00BD0: "Lustre", 0x47504653: "GPFS", 0x19830326: "BeeGFS", 0x65735546: "FUSE", 0xFF534D42: "CIFS",
	0x00C36400: "CephFS", 0x5346414F: "AFS", 0x01021997: "9p", 0xEF53: "ext4", 0x58465342: "XFS", 0x9123683E: "btrfs", 0x2FC12FC1: "ZFS",
	0x01021994: "tmpfs", 0x858458F6: "ramfs", 0x794C7630: "overlay",
}

// existing returns the nearest folder at or above path that exists.
func existing(path string) string {
	for {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return path
		}
		up := filepath.Dir(path)
		if up == path {
			return path
		}
		path = up
	}
}

// checkRunFolder does in the run folder what a checkpoint does: write, sync, rename, sync the folder.
func checkRunFolder(_ context.Context, h *Host) []Finding {
	run, err := filepath.Abs(h.runDir())
	if err != nil {
		return []Finding{fails("", "%v", err)}
	}
	dir := existing(run)
	// A file where a folder should be stops MkdirAll later; existing would step over it.
	for p := run; p != dir; p = filepath.Dir(p) {
		if _, err := os.Lstat(p); err == nil {
			return []Finding{fails("remove it, or name another folder with --out", "%s is not a folder", p)}
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return []Finding{fails("name another folder with --out", "%v", err)}
		}
	}
	st, err := statfs(dir)
	if err != nil {
		return []Finding{fails("name another folder with --out", "%s: %v", dir, err)}
	}
	kind := fileSystems[int64(uint32(st.Type))]
	if kind == "" {
		kind = fmt.Sprintf("file system %#x", uint32(st.Type))
	}
	free := int64(st.Bavail) * st.Bsize
	where := fmt.Sprintf("%s (%s, %s free)", dir, kind, size(free))

	times, err := trySave(dir)
	if err != nil {
		fix := "name a folder you may write to with --out"
		switch {
		case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
			fix = "free space (or quota), or name another folder with --out"
		case errors.Is(err, syscall.EROFS):
			fix = "the file system is read-only: name another folder with --out"
		}
		return []Finding{fails(fix, "%s: saving would fail: %v", where, err)}
	}
	slices.Sort(times)
	median := times[len(times)/2]
	figure := func(f Finding) Finding {
		return f.with("save_seconds_median", median.Seconds()).with("free_bytes", free).with("file_system", kind)
	}
	all := []Finding{}
	if free < 1<<30 {
		all = append(all, figure(warn("free space or name another folder with --out; a checkpoint is 12 bytes a parameter", "%s: little space for checkpoints", where)))
	}
	if st.Files > 0 && st.Ffree < 1000 {
		all = append(all, warn("remove files, or name another folder with --out", "%s: only %d files can still be made", where, st.Ffree))
	}
	if kind == "tmpfs" || kind == "ramfs" {
		all = append(all, figure(warn("name a folder on disk with --out", "%s: runs there live in memory and are gone after a restart", where)))
	}
	if median > 500*time.Millisecond {
		all = append(all, figure(warn("save less often (checkpoint.every), or to a faster file system with --out", "%s: write, sync and rename of 1 MiB take %v", where, median.Round(time.Millisecond))))
	}
	if len(all) == 0 {
		all = append(all, figure(ok("%s: write, sync and rename of 1 MiB take %v", where, median.Round(10*time.Microsecond))))
	}
	return all
}

// trySave performs a checkpoint in small, five times: a folder with a file,
// both synced, renamed, the parent synced. It leaves nothing behind.
func trySave(dir string) (times []time.Duration, err error) {
	work, err := os.MkdirTemp(dir, ".pipetrain-doctor-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := os.RemoveAll(work); err == nil {
			err = e
		}
	}()
	block := make([]byte, 1<<20)
	for i := range 5 {
		begin := time.Now()
		tmp, final := filepath.Join(work, "step.tmp"), filepath.Join(work, fmt.Sprint("step-", i))
		if err := os.Mkdir(tmp, 0o777); err != nil {
			return nil, err
		}
		if err := writeSynced(filepath.Join(tmp, "model"), block); err != nil {
			return nil, err
		}
		if err := durable.SyncDir(tmp); err != nil {
			return nil, err
		}
		if err := os.Rename(tmp, final); err != nil {
			return nil, err
		}
		if err := durable.SyncDir(work); err != nil {
			return nil, err
		}
		if b, err := os.ReadFile(filepath.Join(final, "model")); err != nil {
			return nil, err
		} else if len(b) != len(block) {
			return nil, fmt.Errorf("a file of %d bytes has %d after the rename", len(block), len(b))
		}
		times = append(times, time.Since(begin))
	}
	return times, nil
}

func writeSynced(path string, b []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := f.Write(b); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// maxTempPath is where launchers begin to fail: they put Unix sockets, whose
// paths have 107 bytes at most, some 60 bytes below the temporary folder.
const maxTempPath = 48

// checkTempFolder tries TMPDIR, where MPI launchers keep their sessions.
func checkTempFolder(_ context.Context, h *Host) []Finding {
	dir := h.env("TMPDIR")
	if dir == "" {
		dir = "/tmp"
	}
	path := h.path(dir)
	f, err := os.CreateTemp(path, "pipetrain-doctor-")
	if err != nil {
		return []Finding{fails("export TMPDIR=/tmp, or make the folder", "temporary files: %v: MPI launchers will not start", err)}
	}
	_, err = f.WriteString("x")
	f.Close()
	os.Remove(f.Name())
	if err != nil {
		return []Finding{fails("free space there, or set TMPDIR to another folder", "temporary files in %s: %v", dir, err)}
	}
	if len(dir) > maxTempPath {
		return []Finding{warn("export TMPDIR=/tmp", "TMPDIR is %d bytes long (%s): Open MPI's sockets below it may get too long a path", len(dir), dir)}
	}
	return []Finding{ok("%s can be written to", dir)}
}
