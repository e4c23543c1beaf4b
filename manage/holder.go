package manage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"

	"github.com/pipetrain/pipetrain/record"
)

// holder is the process that holds a run folder: the embedded launcher, or rank 0 under another.
type holder struct {
	pid   int
	host  string
	here  bool // on this host
	alive bool // this host's process has the folder's lock open
}

var lockText = regexp.MustCompile(`^pid (\d+) on (\S+) since`)

// holderOf reads who holds a run folder. A number in a file is no proof: another process may have it
// by now, so that one has to have the very lock open.
func holderOf(dir string) (holder, error) {
	lock := filepath.Join(dir, record.LockName)
	b, err := os.ReadFile(lock)
	if err != nil {
		return holder{}, err
	}
	m := lockText.FindSubmatch(b)
	if m == nil {
		return holder{}, fmt.Errorf("%s does not say who holds the run", lock)
	}
	h := holder{host: string(m[2])}
	if h.pid, err = strconv.Atoi(string(m[1])); err != nil {
		return h, err
	}
	if host, err := os.Hostname(); err != nil || host != h.host {
		return h, nil
	}
	h.here = true
	want, err := os.Stat(lock)
	if err != nil {
		return h, err
	}
	fds := fmt.Sprintf("/proc/%d/fd", h.pid)
	entries, err := os.ReadDir(fds)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return h, nil
	}
	if err != nil {
		return h, fmt.Errorf("pid %d is another user's: %w", h.pid, err)
	}
	for _, e := range entries {
		if got, err := os.Stat(filepath.Join(fds, e.Name())); err == nil && os.SameFile(got, want) {
			h.alive = true
			break
		}
	}
	return h, nil
}
