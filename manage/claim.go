package manage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/slurm"
)

// claim is a run folder that this process alone hands to Slurm.
type claim struct {
	dir  string
	lock *os.File
	made bool // the folder holds nothing but what this process wrote, and Slurm was not asked yet
}

// claimFolder makes a run folder, or takes one that is there. With unused it makes one that
// was not there, under the name dir or dir-2, dir-3, …
func claimFolder(dir string, unused bool) (*claim, error) {
	c := &claim{dir: dir}
	err := os.MkdirAll(filepath.Dir(dir), 0o755)
	for n := 2; err == nil && !c.made; n++ {
		if err = os.Mkdir(c.dir, 0o755); err == nil {
			c.made = true
		} else if errors.Is(err, fs.ErrExist) {
			if err = nil; !unused {
				break
			}
			c.dir = fmt.Sprintf("%s-%d", dir, n)
		}
	}
	if err == nil {
		c.lock, err = os.OpenFile(filepath.Join(c.dir, slurm.LockName), os.O_RDWR|os.O_CREATE, 0o644)
	}
	if err == nil {
		err = syscall.Flock(int(c.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		c.lock.Close() // and leaves the folder to whoever has it
		return nil, exitcode.Errorf(exitcode.Usage, "%s is another job's now, or another pipetrain submit's: choose another folder with --out", c.dir)
	case errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.ENOLCK): // no locks here
	case err != nil:
		c.release()
		return nil, exitcode.With(exitcode.Environment, cannotUse(c.dir, err))
	}
	return c, nil
}

func cannotUse(dir string, err error) error {
	return fmt.Errorf("run folder %s cannot be made: %w: choose another with --out", dir, err)
}

// release gives the folder up. One that came to nothing goes.
func (c *claim) release() {
	if c.made {
		_ = os.RemoveAll(c.dir)
	}
	if c.lock != nil {
		c.lock.Close()
	}
}

// handOver gives a script to sbatch and notes the job in the folder. Once sbatch runs, the
// folder stays, unless Slurm has refused the job: sbatch may fail and the job be accepted.
func (c *claim) handOver(ctx context.Context, script string, t ticket, tools slurm.Tools, options ...string) (id string, err error) {
	old, oldErr := readTicket(ctx, c.dir, tools)
	t.Submitted = time.Now()
	// Noted before: a process that ends between here and the answer leaves a folder in which the job is found.
	if err := writeTicket(c.dir, t); err != nil {
		return "", err
	}
	made := c.made
	c.made = false
	id, err = tools.Submit(ctx, script, options...)
	if uncertain := (*slurm.UncertainError)(nil); errors.As(err, &uncertain) {
		if found, e := tools.JobOf(ctx, script); e == nil && found != old.Job {
			id, err = found, nil
		} else {
			return "", fmt.Errorf("%w; the job may have been accepted all the same: pipetrain status %s tells", err, c.dir)
		}
	}
	if err != nil {
		c.made = made
		if oldErr == nil {
			_ = writeTicket(c.dir, old)
		} else {
			_ = os.Remove(filepath.Join(c.dir, ticketName))
		}
		return "", err
	}
	if t.Job = id; t.Task != "" {
		t.Job += "_" + t.Task
	}
	_ = writeTicket(c.dir, t) // the job is on its way; without its number it is looked for
	return t.Job, nil
}
