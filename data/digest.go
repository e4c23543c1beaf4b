package data

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"runtime"
	"syscall"
)

// Digester is a source whose fingerprint does not cover all of its content. Digest reads all of it, which
// for a large corpus takes minutes; it does so with the lowest priority, for callers that train meanwhile.
type Digester interface {
	Digest(ctx context.Context) (string, error)
}

// Digest returns the SHA-256 of the files, one behind the other, as long as they were when they were opened.
func (t *tokens) Digest(ctx context.Context) (string, error) {
	h := sha256.New()
	done := make(chan error)
	go func() {
		// The thread's own priority; never unlocked, so that the thread ends with the goroutine.
		runtime.LockOSThread()
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, syscall.Gettid(), 19) // refused: it competes
		var err error
		for i := 0; err == nil && i < len(t.shards); i++ {
			err = t.shards[i].digest(ctx, h)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return "", err
	}
	return fmt.Sprintf("sha256=%x", h.Sum(nil)), nil
}

// digest adds all of the file.
func (s *shard) digest(ctx context.Context, h io.Writer) error {
	whole := shard{file: s.file, path: s.path, size: s.size, code: codeU8}
	b := make([]byte, 1<<20)
	for at := int64(0); at < s.size; at += int64(len(b)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		b = b[:min(int64(len(b)), s.size-at)]
		if err := whole.read(b, at); err != nil {
			return err
		}
		if _, err := h.Write(b); err != nil {
			return err
		}
		runtime.Gosched() // ranks have few processors of Go's, and a step waits for none
	}
	return nil
}
