package local_test

import (
	"testing"
	"testing/synctest"

	"github.com/pipetrain/pipetrain/collectives/local"
)

// TestWaitsAreSeenBySynctest: in a world of goroutines a wait is a channel's, so
// that testing/synctest reports ranks that wait for each other at once.
func TestWaitsAreSeenBySynctest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := local.NewWorld(2)
		got := make(chan error, 1)
		go func() { got <- world[0].Irecv(1, 3, make([]byte, 100000)).Wait(t.Context()) }()
		synctest.Wait() // returns only when the goroutine is blocked for good
		select {
		case err := <-got:
			t.Fatalf("a receive nobody sent to ended: %v", err)
		default:
		}
		if err := world[1].Isend(0, 3, make([]byte, 100000)).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
	})
}
