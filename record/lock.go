package record

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

// acquire takes the folder's lock. It is the kernel's (flock), so it ends with
// the process however that dies; the file itself stays, as removing it would
// let two runs lock two files of the same name.
func (f *Folder) acquire() error {
	l, err := os.OpenFile(f.File(LockName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return folderError(f.Path, err)
	}
	switch err := flock(l); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		holder := holderOf(l)
		l.Close()
		return fmt.Errorf("run folder %s is in use by %s: end that run or choose another folder with --out", f.Path, holder)
	case errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.ENOLCK):
		f.Note = fmt.Sprintf("the file system of %s has no locks (%v): a second run in this folder would not be refused", f.Path, err)
	case err != nil:
		l.Close()
		return folderError(f.Path, err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "this host"
	}
	text := fmt.Sprintf("pid %d on %s since %s\n", os.Getpid(), host, time.Now().Format(time.RFC3339))
	// Writing it also tells at once whether the disk is full.
	if err = l.Truncate(0); err == nil {
		if _, err = l.WriteAt([]byte(text), 0); err == nil {
			err = l.Sync()
		}
	}
	if err != nil {
		l.Close()
		return folderError(f.Path, err)
	}
	f.lock = l
	return nil
}

// InUse says whether a living run has the folder dir.
func InUse(dir string) bool {
	l, err := os.Open((&Folder{Path: dir}).File(LockName))
	if err != nil {
		return false
	}
	defer l.Close() // and with it the lock
	return errors.Is(flock(l), syscall.EWOULDBLOCK)
}

func flock(l *os.File) error {
	for {
		err := syscall.Flock(int(l.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// holderOf reads who holds a lock; its text may not be there yet.
func holderOf(l *os.File) string {
	b, err := io.ReadAll(io.LimitReader(l, 200))
	s := strings.TrimSpace(string(b))
	if err != nil || s == "" {
		return "another process"
	}
	return s
}
