package doctor

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// checkSignals sends this process the two signals that ask a run to save. INT
// and TERM are left out: whoever runs the doctor listens to them itself.
//
// What the parent blocked or ignored is not looked at: Go's signal.Notify takes
// a signal back from both.
func checkSignals(ctx context.Context, _ *Host) []Finding {
	deliver := func(s syscall.Signal) error { return syscall.Kill(os.Getpid(), s) }
	return []Finding{trySignals(ctx, deliver, 2*time.Second)}
}

// trySignals sends USR1 and USR2 and waits for their arrival.
func trySignals(ctx context.Context, deliver func(syscall.Signal) error, patience time.Duration) Finding {
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2} {
		arrived := make(chan os.Signal, 1)
		signal.Notify(arrived, s)
		begin := time.Now()
		err := deliver(s)
		if err == nil {
			select {
			case <-arrived:
			case <-ctx.Done():
				err = ctx.Err()
			case <-time.After(patience):
				err = fmt.Errorf("did not arrive within %v", time.Since(begin).Round(time.Millisecond))
			}
		}
		signal.Stop(arrived)
		if err != nil {
			return fails("find out which library or parent took the handler; a run could not save when asked to stop", "%s sent to this process: %v", unix.SignalName(s), err)
		}
	}
	return ok("USR1 and USR2 arrive")
}
