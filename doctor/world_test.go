package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/collectives/local"
	"github.com/pipetrain/pipetrain/jobs"
)

// ranks performs a check in every rank of a world of its own.
func ranks(t *testing.T, n int, check func(context.Context, *Host) []Finding, change func(rank int, h *Host)) [][]Finding {
	t.Helper()
	world := local.NewWorld(n)
	all := make([][]Finding, n)
	var wg sync.WaitGroup
	for i := range n {
		h := &Host{RunDir: t.TempDir(), joined: world[i]}
		if change != nil {
			change(i, h)
		}
		wg.Go(func() { all[i] = check(t.Context(), h) })
	}
	wg.Wait()
	for _, w := range world {
		w.Close()
	}
	return all
}

func wantLevels(t *testing.T, all [][]Finding, levels string, text string) {
	t.Helper()
	for i, found := range all {
		want := map[byte]Level{'o': OK, 'w': Warning, 'f': Fails}[levels[i]]
		if len(found) != 1 || found[0].Level != want || want != OK && (!strings.Contains(found[0].Found, text) || found[0].Fix == "") {
			t.Errorf("rank %d: %+v, want %v and %q", i, found, want, text)
		}
	}
}

// deaf loses what a rank sends to another.
type deaf struct {
	collectives.Transport
	to int
}

func (d deaf) Isend(to, tag int, b []byte) collectives.Request {
	if to == d.to {
		tag += 1000
	}
	return d.Transport.Isend(to, tag, b)
}

func TestPeers(t *testing.T) {
	expect(t, &Host{}, checkPeers, OK, "not a rank")
	wantLevels(t, ranks(t, 5, checkPeers, nil), "ooooo", "")
	// Neighbours reach each other, rank 1 does not reach rank 3.
	world := local.NewWorld(4)
	world[1] = deaf{world[1], 3}
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := range world {
		wg.Go(func() { _, errs[i] = reach(t.Context(), world[i], 500*time.Millisecond) })
	}
	wg.Wait()
	if errs[3] == nil || !strings.Contains(errs[3].Error(), "gets nothing from ranks 1:") || errs[0] != nil || errs[2] != nil {
		t.Errorf("a message that is lost gives %v", errs)
	}
	for _, w := range world {
		w.Close()
	}
}

func TestSharedFolder(t *testing.T) {
	expect(t, &Host{Env: []string{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4"}}, checkSharedFolder, OK, "in no world")
	dir := t.TempDir()
	in := func(path string) func(int, *Host) { return func(_ int, h *Host) { h.RunDir = path } }
	wantLevels(t, ranks(t, 3, checkSharedFolder, in(filepath.Join(dir, "not", "yet"))), "ooo", "")
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	wantLevels(t, ranks(t, 2, checkSharedFolder, in("/proc/runs")), "ff", "rank 0 cannot write there")
	if _, err := awaitFile(filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that does not come: %v", err)
	}
}

func TestSharedGPUs(t *testing.T) {
	visible := func(values ...string) func(int, *Host) {
		return func(i int, h *Host) {
			h.Env = []string{"CUDA_VISIBLE_DEVICES=" + values[i], "OMPI_COMM_WORLD_SIZE=3", fmt.Sprint("OMPI_COMM_WORLD_RANK=", i), fmt.Sprint("OMPI_COMM_WORLD_LOCAL_RANK=", i), "OMPI_COMM_WORLD_LOCAL_SIZE=3"}
		}
	}
	wantLevels(t, ranks(t, 3, checkSharedGPUs, visible("", "-1", "NoDevFiles")), "ooo", "")
	wantLevels(t, ranks(t, 3, checkSharedGPUs, visible("0,1,2", "0,1,2", "0,1,2")), "ooo", "")
	wantLevels(t, ranks(t, 3, checkSharedGPUs, visible("0", "1", "0")), "wow", "ranks 0, 2 on")
	for kind, levels := range map[string]string{"cuda": "ffo", "cpu": "ooo"} {
		wantLevels(t, ranks(t, 3, checkSharedGPUs, func(i int, h *Host) {
			visible("GPU-1", "GPU-1", "GPU-2")(i, h)
			h.Job = job(3)
			h.Job.Device.Kind = kind
		}), levels, "have one GPU, GPU-1")
	}
	// The driver's word comes before the variable's.
	wantLevels(t, ranks(t, 3, checkSharedGPUs, func(i int, h *Host) {
		visible("0", "0", "0")(i, h)
		card := fmt.Sprint("GPU-", i/2)
		h.CUDA = func(*jobs.Spec) (CUDA, error) { return CUDA{GPUs: []GPU{{UUID: card}}}, nil }
	}), "wwo", "have one GPU, GPU-0")
}
