package record

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	text := fmt.Sprintf("pid %d on %s since %s\n", os.Getpid(), host, time.Now().Format(time.RFC3339Nano))
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
	f.lock, f.text = l, text
	return nil
}

// join opens the lock that another process of this run holds, without taking it.
func (f *Folder) join() error {
	l, err := os.Open(f.File(LockName))
	if err != nil {
		return folderError(f.Path, err)
	}
	if f.text, err = textOf(l); err != nil {
		l.Close()
		return folderError(f.Path, err)
	}
	f.lock = l
	return nil
}

// Held says whether the folder at Path is still this run's. A folder that was renamed goes on being
// locked under its new name, and another run may have taken the old one: whoever writes by names asks first.
func (f *Folder) Held() error {
	if f.lock == nil {
		return nil // given up
	}
	held, err := f.lock.Stat()
	if err != nil {
		return folderError(f.Path, err)
	}
	l, err := os.Open(f.File(LockName))
	if errors.Is(err, os.ErrNotExist) {
		return f.lost("is gone", "nothing more is written")
	}
	if err != nil {
		return folderError(f.Path, err)
	}
	defer l.Close()
	there, err := l.Stat()
	if err != nil {
		return folderError(f.Path, err)
	}
	if os.SameFile(held, there) {
		return nil
	}
	// Some network file systems number a file anew; whoever takes the lock writes its own text.
	if text, err := textOf(l); err != nil || text != f.text {
		return f.lost("is another run's now, "+holderOf(l), "nothing is written there")
	}
	return nil
}

// lost is the error of a folder that is not this run's any more.
func (f *Folder) lost(how, then string) error {
	where := ""
	if home := f.Home(); home != "" {
		where = "; this run's folder is now " + home
	}
	return fmt.Errorf("run folder %s %s: it was moved or removed while the run lived, so %s%s; continue with --resume --out and the folder's new name", f.Path, how, then, where)
}

// Home is where this run's folder is: Path, or where it was moved to; empty where that cannot be told.
func (f *Folder) Home() string {
	if f.lock == nil {
		return f.Path
	}
	held, err := f.lock.Stat()
	if err != nil {
		return ""
	}
	dirs := []string{f.Path}
	if now, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.lock.Fd())); err == nil {
		dirs = append(dirs, filepath.Dir(now))
	}
	for _, dir := range dirs {
		if there, err := os.Stat(filepath.Join(dir, LockName)); err == nil && os.SameFile(held, there) {
			return dir
		}
	}
	return ""
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

// textOf reads a lock's text from its start.
func textOf(l *os.File) (string, error) {
	b, err := io.ReadAll(io.NewSectionReader(l, 0, 200))
	return string(b), err
}

// holderOf reads who holds a lock; its text may not be there yet.
func holderOf(l *os.File) string {
	b, err := textOf(l)
	s := strings.TrimSpace(b)
	if err != nil || s == "" {
		return "another process"
	}
	return s
}
