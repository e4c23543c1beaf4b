package rank

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
)

// The watchdog ends what does not advance, and nothing else.
func TestWatchdog(t *testing.T) {
	what := func(i int) string { return fmt.Sprintf("at op %d", i) }
	w := &watchdog{allowed: 50 * time.Millisecond}
	ctx, end := w.guard(t.Context(), what)
	defer end()
	time.Sleep(150 * time.Millisecond) // no step is performed
	if ctx.Err() != nil {
		t.Fatal("ended before a step began")
	}
	w.step.Store(7)
	w.advance(3)
	select {
	case <-ctx.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("an op took 30 s and nobody minded")
	}
	err := stalled(ctx, fmt.Errorf("rank 1: %w", ctx.Err()))
	if exitcode.Of(err) != exitcode.Stalled || !strings.Contains(err.Error(), "step 7") || !strings.Contains(err.Error(), "at op 3") {
		t.Errorf("it says %v", err)
	}
	if other := errors.New("disk full"); stalled(ctx, other) != other {
		t.Error("another error was hidden")
	}

	var off watchdog
	ctx, end = off.guard(t.Context(), what)
	off.advance(1)
	time.Sleep(100 * time.Millisecond)
	if ctx.Err() != nil {
		t.Errorf("off: %v", context.Cause(ctx))
	}
	if end(); ctx.Err() == nil || stalled(ctx, ctx.Err()) != ctx.Err() {
		t.Errorf("the end of the watch is %v", context.Cause(ctx))
	}
}
