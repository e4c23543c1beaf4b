package rank

import (
	"fmt"
	"sync"
	"testing"
	"unsafe"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/collectives/local"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cpu"
	"github.com/pipetrain/pipetrain/kernels/kerneltest"
	"github.com/pipetrain/pipetrain/schedule"
)

// A device that performs ops late, on two queues and beside copies, in memory of its
// own, trains to the same bits as the CPU that it is made of, whichever way messages go
// and wherever p2 runs.
func TestFarDevice(t *testing.T) {
	base := []string{"train.steps=6", "parallel.stages=2", "schedule.microbatches=4", "model.tied=true"}
	for _, c := range []struct {
		name string
		sets []string
		ipc  bool
		way  string
		mpi  string // "aware", "lying", "mixed": the transport says that it takes device memory
	}{
		{"staged", []string{"schedule.kind=1f1b", "schedule.backward_p2=cooldown", "parallel.replicas=2", "device.transfer=staged"}, true, "staged", ""},
		{"ipc", []string{"schedule.kind=1f1b", "schedule.backward_p2=lagged", "parallel.replicas=2"}, true, "ipc", ""},
		{"no ipc", []string{"schedule.kind=gpipe", "schedule.backward_p2=fused"}, false, "staged", ""},
		{"stream", []string{"schedule.kind=1f1b", "schedule.backward_p2=lagged", "device.p2_stream=true"}, true, "ipc", ""},
		{"graph", []string{"schedule.kind=1f1b", "schedule.backward_p2=cooldown", "schedule.concat=2", "device.p2_graph=true"}, true, "ipc", ""},
		{"stream of graphs, zero bubble", []string{"schedule.kind=zb-h1", "schedule.backward_p2=native", "device.p2_stream=true", "device.p2_graph=true"}, true, "ipc", ""},
		{"stream of graphs, interleaved", []string{"schedule.kind=interleaved-zb", "schedule.backward_p2=native", "schedule.chunks=2", "device.p2_stream=true", "device.p2_graph=true", "device.transfer=staged"}, true, "staged", ""},
		{"chimera", []string{"schedule.kind=chimera", "schedule.backward_p2=end", "model.tied=false", "device.p2_stream=true"}, true, "ipc", ""},
		{"pipedream", []string{"schedule.kind=pipedream", "model.tied=false", "optimizer.clip=0"}, true, "ipc", ""},
		{"bf16, staged", []string{"schedule.kind=1f1b", "schedule.backward_p2=cooldown", "train.precision=bf16", "parallel.replicas=2", "device.transfer=staged"}, true, "staged", ""},
		{"bf16, stream of graphs", []string{"schedule.kind=1f1b", "schedule.backward_p2=lagged", "train.precision=bf16", "device.p2_stream=true", "device.p2_graph=true"}, true, "ipc", ""},
		{"direct", []string{"schedule.kind=1f1b", "schedule.backward_p2=cooldown", "parallel.replicas=2", "device.transfer=direct"}, true, "direct", "aware"},
		{"direct, three ranks", []string{"parallel.stages=4", "schedule.kind=1f1b", "schedule.backward_p2=cooldown"}, false, "direct", "aware"},
		{"an MPI that lies", []string{"schedule.kind=1f1b", "schedule.backward_p2=cooldown"}, false, "staged", "lying"},
		{"one end is aware", []string{"schedule.kind=1f1b", "schedule.backward_p2=cooldown"}, false, "staged", "mixed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sets := append(append([]string{}, base...), c.sets...)
			plain := sets
			for i, s := range sets {
				if len(s) > 7 && s[:7] == "device." {
					plain = sets[:i]
					break
				}
			}
			host := parse(t, parityJob, plain...)
			want := train(t, host, local.NewWorld(host.World()))
			node := &kerneltest.FarNode{}
			if !c.ipc {
				node = nil
			}
			var mu sync.Mutex
			var all []*Trainer
			got := trainWith(t, parse(t, parityJob, append(sets, "device.kind=cuda")...), aware(local.NewWorld(host.World()), c.mpi),
				func(kernels.Device) kernels.Device { return openFar(t, node) },
				func(tr *Trainer) {
					if name := tr.m.courier.Name(); name != c.way {
						t.Errorf("messages go %s, want %s", name, c.way)
					}
					mu.Lock()
					all = append(all, tr)
					mu.Unlock()
				})
			if d := differ(got, want, 0); d != "" {
				t.Error(d)
			}
			for _, tr := range all {
				if tr.m.graphs != nil {
					w := 0
					for _, op := range tr.m.program {
						if op.Kind == schedule.BackwardWeight {
							w++
						}
					}
					if tr.m.graphs.count != w {
						t.Errorf("rank %d: %d recordings of %d W: the addresses change from step to step", tr.world.Rank(), tr.m.graphs.count, w)
					}
				}
			}
		})
	}
}

func openFar(t testing.TB, node *kerneltest.FarNode) kernels.Device {
	f, err := kerneltest.NewFar(func() (kernels.Device, error) { return cpu.New(cpu.Options{Threads: 1, BLAS: "go"}) }, node, kerneltest.Sound)
	if err != nil {
		panic(fmt.Sprint("far device: ", err))
	}
	t.Cleanup(func() {
		if n := f.Marks(); n > 0 {
			t.Errorf("%d instants were never dropped", n)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// deviceAware is a transport that takes device memory, or says so.
type deviceAware struct {
	collectives.Transport
	lies bool
}

func (a deviceAware) DeviceAware() (bool, string) { return true, "it says so" }

func (a deviceAware) SendDevice(to, tag int, addr uintptr, bytes int64) collectives.Request {
	b := unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), bytes)
	if a.lies {
		b = make([]byte, bytes)
	}
	return a.Isend(to, tag, b)
}

func (a deviceAware) RecvDevice(from, tag int, addr uintptr, bytes int64) collectives.Request {
	return a.Irecv(from, tag, unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), bytes))
}

func aware(world []collectives.Transport, how string) []collectives.Transport {
	for i := range world {
		if how == "aware" || how == "lying" || how == "mixed" && i == 0 {
			world[i] = deviceAware{world[i], how == "lying"}
		}
	}
	return world
}
