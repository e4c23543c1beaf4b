package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// crash is called at each point of a save; tests end the process there.
var crash = func(point string) {}

// tmpSuffix marks folders that are not checkpoints: being written, replaced or removed.
const tmpSuffix = ".tmp"

var stepPattern = regexp.MustCompile(`^step-(\d{8,18})$`)

// StepDir returns the name of a step's folder.
func StepDir(step int) string { return fmt.Sprintf("step-%08d", step) }

// parseStep reads what StepDir printed.
func parseStep(name string) (int, bool) {
	m := stepPattern.FindStringSubmatch(name)
	if m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(m[1])
	return n, err == nil && StepDir(n) == name
}

// writeSum writes a file that did not exist, syncs it and returns its size and
// checksum. The checksum runs beside the write.
func writeSum(ctx context.Context, path string, parts ...[]byte) (FileSum, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return FileSum{}, err
	}
	sum := make(chan string, 1)
	go func() {
		h := sha256.New()
		for _, p := range parts {
			h.Write(p)
		}
		sum <- hex.EncodeToString(h.Sum(nil))
	}()
	var n int64
	for i := 0; err == nil && i < len(parts); i++ {
		if err = ctx.Err(); err == nil {
			var k int
			k, err = f.Write(parts[i])
			n += int64(k)
		}
		if i == len(parts)/2 {
			crash("half " + filepath.Base(path))
		}
	}
	if err == nil {
		err = f.Sync()
	}
	// Some network file systems report a failed write only here.
	if e := f.Close(); err == nil {
		err = e
	}
	// parts belong to the caller again once we return: wait for the reader.
	return FileSum{filepath.Base(path), n, <-sum}, err
}

// writeTensors writes one safetensors file of the checkpoint.
func writeTensors(ctx context.Context, path string, tensors []Tensor) (FileSum, error) {
	head, order, err := encodeHeader(map[string]string{"format": "pt"}, tensors)
	if err != nil {
		return FileSum{}, fmt.Errorf("%s: %w", path, err)
	}
	parts := [][]byte{head}
	for _, t := range order {
		parts = append(parts, t.Bytes)
	}
	return writeSum(ctx, path, parts...)
}

// fileSum reads a file and returns its size and checksum.
func fileSum(ctx context.Context, path string) (FileSum, error) {
	f, _, err := openRegular(path)
	if err != nil {
		return FileSum{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{h}, ctxReader{ctx, f}, make([]byte, 1<<20))
	return FileSum{filepath.Base(path), n, hex.EncodeToString(h.Sum(nil))}, err
}

// ctxReader ends with the context's error.
type ctxReader struct {
	ctx context.Context
	f   *os.File
}

func (r ctxReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.f.Read(b)
}

// exchange swaps two names in one step. Not every file system can: NFS cannot.
var exchange = func(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// publish gives the folder tmp its final name. A checkpoint of the same step
// that is there already (a damaged one, which a resumed run passed) is replaced
// in one exchange where the file system can, so that at no instant none exists.
func publish(tmp, final string) error {
	if _, err := os.Lstat(final); errors.Is(err, os.ErrNotExist) {
		return os.Rename(tmp, final)
	}
	if exchange(tmp, final) == nil {
		crash("exchanged")
		return os.RemoveAll(tmp)
	}
	old := final + ".old" + tmpSuffix
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(final, old); err != nil {
		return err
	}
	crash("old set aside")
	if err := os.Rename(tmp, final); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// remove deletes a checkpoint such that a crash within leaves no half folder
// under a checkpoint's name.
func remove(dir string, step int) error {
	path := filepath.Join(dir, StepDir(step))
	gone := path + ".del" + tmpSuffix
	if err := os.RemoveAll(gone); err != nil {
		return err
	}
	if err := os.Rename(path, gone); err != nil {
		return err
	}
	crash("half pruned")
	return os.RemoveAll(gone)
}

// Clean removes what a dead run left unfinished in the folder of checkpoints and
// returns the names. Call it on one rank, while nobody saves there: on the start
// of a run that holds the run folder's lock.
func Clean(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	var removed []string
	for _, e := range entries {
		name := e.Name()
		step, _, _ := strings.Cut(name, ".")
		if _, ok := parseStep(step); !ok || !strings.HasSuffix(name, tmpSuffix) {
			continue
		}
		path := filepath.Join(dir, name)
		final := filepath.Join(dir, step)
		if name == step+".old"+tmpSuffix {
			// The process died between two renames: the old checkpoint is the only one.
			if _, err := os.Lstat(final); errors.Is(err, os.ErrNotExist) {
				if err := os.Rename(path, final); err != nil {
					return removed, fmt.Errorf("checkpoints: %w", err)
				}
				continue
			}
		}
		if err := os.RemoveAll(path); err != nil {
			return removed, fmt.Errorf("checkpoints: cannot remove what an earlier run left: %w", err)
		}
		removed = append(removed, name)
	}
	return removed, nil
}

// steps lists the checkpoints in dir by step, and the names of unfinished ones.
func steps(dir string) (found []int, unfinished []string, err error) {
	entries, err := os.ReadDir(dir) // sorted by name, so also by step up to 8 digits
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if n, ok := parseStep(e.Name()); ok && !e.Type().IsRegular() {
			found = append(found, n)
		} else if head, _, cut := strings.Cut(e.Name(), "."); cut && strings.HasSuffix(e.Name(), tmpSuffix) {
			if _, ok := parseStep(head); ok {
				unfinished = append(unfinished, e.Name())
			}
		}
	}
	return found, unfinished, nil
}

// hint says what to do about a failed write.
func hint(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return " (free space there: a save needs room for one more checkpoint than checkpoint.keep)"
	case errors.Is(err, syscall.EROFS), errors.Is(err, os.ErrPermission):
		return " (choose a folder that can be written, with --out)"
	case errors.Is(err, syscall.EIO):
		return " (the disk or file system failed: see the kernel's log)"
	}
	return ""
}

// openRegular opens a file that must be one: opening a FIFO would wait for somebody to write to it.
func openRegular(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}

// readSmall reads a file that must not be large; a folder or device in its place is an error.
func readSmall(path string, limit int64) ([]byte, error) {
	f, _, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b bytes.Buffer
	if n, err := io.Copy(&b, io.LimitReader(f, limit+1)); err != nil {
		return nil, err
	} else if n > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return b.Bytes(), nil
}
