package courier

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/collectives/local"
	"github.com/pipetrain/pipetrain/collectives/transporttest"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cpu"
	"github.com/pipetrain/pipetrain/kernels/kerneltest"
)

func openCPU() (kernels.Device, error) { return cpu.New(cpu.Options{Threads: 1, BLAS: "go"}) }

// remote is a device whose memory the host cannot address, and that can do nothing beside its operations.
type remote struct{ kernels.Device }

func (remote) Host(kernels.Buffer) []byte { return nil }

// deviceAware is a transport that takes device memory.
type deviceAware struct{ collectives.Transport }

func (deviceAware) DeviceAware() (bool, string) { return true, "it says so" }

func (a deviceAware) SendDevice(to, tag int, addr uintptr, bytes int64) collectives.Request {
	return a.Isend(to, tag, unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), bytes))
}

func (a deviceAware) RecvDevice(from, tag int, addr uintptr, bytes int64) collectives.Request {
	return a.Irecv(from, tag, unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), bytes))
}

// world describes two ranks; change, if any, breaks a rank's courier.
type world struct {
	far    bool // devices that are late
	ipc    bool // that share a node
	remote bool // devices that are not, with memory of their own
	aware  bool // a transport that takes device memory
	flaw   kerneltest.Flaw
	want   string
	change func(Courier, *node) Courier
	wire   func(collectives.Transport) collectives.Transport
}

// try opens the couriers of a world and holds them to the suite. It returns the couriers' name. Where
// they fail their devices stay open: messages may still be on their way into them.
func (w world) try(t *testing.T) (name string, err error) {
	t.Helper()
	ranks := local.NewWorldWith(2, local.Options{Rendezvous: true})
	shared := &kerneltest.FarNode{}
	if !w.ipc {
		shared = nil
	}
	var nodes [2]node
	var fars []*kerneltest.Far
	for i, tp := range ranks {
		var dev kernels.Device
		if w.far {
			far, err := kerneltest.NewFar(openCPU, shared, w.flaw)
			if err != nil {
				t.Fatal(err)
			}
			fars = append(fars, far)
			dev = far
		} else if dev, err = openCPU(); err != nil {
			t.Fatal(err)
		} else if w.remote {
			dev = remote{dev}
		}
		arena, err := dev.Alloc(arenaBytes)
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = node{dev: dev, arena: arena}
		if w.aware {
			ranks[i] = deviceAware{tp}
		}
		if w.wire != nil {
			ranks[i] = w.wire(ranks[i])
		}
	}
	var both sync.WaitGroup
	var errs [2]error
	for i := range nodes {
		both.Go(func() {
			n := &nodes[i]
			n.courier, errs[i] = Open(t.Context(), Options{Transport: ranks[i], Device: n.dev, Arena: n.arena, Peers: []int{1 - i}, Want: w.want})
			if errs[i] == nil && w.change != nil {
				n.courier = w.change(n.courier, n)
			}
		})
	}
	both.Wait()
	for i, err := range errs {
		if err != nil {
			return "", fmt.Errorf("rank %d: %w", i, err)
		}
	}
	name = nodes[0].courier.Name()
	if err := conforms(nodes); err != nil {
		return name, err
	}
	for _, n := range nodes {
		if err := n.courier.Close(); err != nil {
			return name, err
		}
	}
	for _, far := range fars {
		patience := 10 * time.Second
		if w.change != nil {
			patience = time.Second
		}
		for end := time.Now().Add(patience); far.Marks() > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				return name, fmt.Errorf("%d instants were never dropped", far.Marks())
			}
		}
	}
	for _, n := range nodes {
		if err := n.dev.Close(); err != nil {
			return name, err
		}
	}
	return name, nil
}

// Every way conforms, and is the one that Open should find.
func TestCouriers(t *testing.T) {
	for _, c := range []struct {
		name string
		w    world
	}{
		{"host", world{want: "auto"}},
		{"copied", world{remote: true, want: "auto"}},
		{"staged", world{far: true, want: "auto"}},
		{"staged", world{far: true, ipc: true, aware: true, want: "staged"}},
		{"ipc", world{far: true, ipc: true, want: "auto"}},
		{"ipc", world{far: true, ipc: true, aware: true, want: "ipc"}},
		{"direct", world{far: true, aware: true, want: "auto"}},
		{"direct", world{far: true, ipc: true, aware: true, want: "direct"}},
	} {
		t.Run(fmt.Sprintf("%s of %s", c.name, c.w.want), func(t *testing.T) {
			t.Parallel()
			if name, err := c.w.try(t); err != nil || name != c.name {
				t.Errorf("messages go %q, want %q: %v", name, c.name, err)
			}
		})
	}
}

// A way that was asked for and is not there is an error that says so.
func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		w   world
		why string
	}{
		{world{want: "ipc"}, "host memory"},
		{world{far: true, want: "ipc"}, `device.transfer = "ipc" does not reach rank`},
		{world{far: true, want: "direct"}, "takes no device memory"},
	} {
		if _, err := c.w.try(t); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%+v: %v", c.w, err)
		}
	}
}

// wrapped changes what a courier does with messages.
type wrapped struct {
	Courier
	recv, send func(ctx context.Context, peer, tag int, b kernels.Buffer) (Parcel, error)
}

func (w wrapped) Recv(ctx context.Context, from, tag int, to kernels.Buffer) (Parcel, error) {
	if w.recv == nil {
		return w.Courier.Recv(ctx, from, tag, to)
	}
	return w.recv(ctx, from, tag, to)
}

func (w wrapped) Send(ctx context.Context, to, tag int, b kernels.Buffer) (Parcel, error) {
	if w.send == nil {
		return w.Courier.Send(ctx, to, tag, b)
	}
	return w.send(ctx, to, tag, b)
}

// waits is a parcel that waits in another way.
type waits func(ctx context.Context) error

func (w waits) Wait(ctx context.Context) error { return w(ctx) }

// tagless is a transport that tells no messages apart.
type tagless struct{ collectives.Transport }

func (t tagless) Isend(to, tag int, b []byte) collectives.Request { return t.Transport.Isend(to, 0, b) }
func (t tagless) Irecv(from, tag int, b []byte) collectives.Request {
	return t.Transport.Irecv(from, 0, b)
}

// The suite finds couriers that are broken on purpose.
func TestSuiteFindsBroken(t *testing.T) {
	far := world{far: true, want: "staged"}
	with := func(w world, change func(Courier, *node) Courier) world { w.change = change; return w }
	flawed := func(w world, f kerneltest.Flaw) world { w.flaw = f; return w }
	ipc, direct := world{far: true, ipc: true, want: "ipc"}, world{far: true, aware: true, want: "direct"}
	for name, w := range map[string]world{
		"no messages at all": with(world{want: "auto"}, func(Courier, *node) Courier { return Null{} }),
		"tags are ignored":   {want: "auto", wire: func(t collectives.Transport) collectives.Transport { return tagless{t} }},
		"the end of long messages is left out": with(far, func(c Courier, _ *node) Courier {
			cut := func(b kernels.Buffer) kernels.Buffer { return b.As(kernels.U8).Slice(0, min(b.Bytes(), stageBytes)) }
			return wrapped{c, func(ctx context.Context, peer, tag int, b kernels.Buffer) (Parcel, error) {
				return c.Recv(ctx, peer, tag, cut(b))
			}, func(ctx context.Context, peer, tag int, b kernels.Buffer) (Parcel, error) {
				return c.Send(ctx, peer, tag, cut(b))
			}}
		}),
		"an instant is kept": with(far, func(c Courier, n *node) Courier {
			return wrapped{Courier: c, send: func(ctx context.Context, peer, tag int, b kernels.Buffer) (Parcel, error) {
				n.dev.(kernels.Marker).Mark()
				return c.Send(ctx, peer, tag, b)
			}}
		}),
		"a received message is not waited for": with(far, func(c Courier, _ *node) Courier {
			return wrapped{Courier: c, recv: func(ctx context.Context, peer, tag int, b kernels.Buffer) (Parcel, error) {
				p, err := c.Recv(ctx, peer, tag, b)
				return waits(func(ctx context.Context) error { go p.Wait(ctx); return nil }), err
			}}
		}),
		"a send is not waited for": with(world{remote: true, want: "auto"}, func(c Courier, _ *node) Courier {
			var late []func(ctx context.Context) // sends begin with the next wait for a receive, and read what ops have left by then
			return wrapped{c, func(ctx context.Context, peer, tag int, b kernels.Buffer) (Parcel, error) {
				p, err := c.Recv(ctx, peer, tag, b)
				return waits(func(ctx context.Context) error {
					for _, send := range late {
						send(ctx)
					}
					late = nil
					return p.Wait(ctx)
				}), err
			}, func(ctx context.Context, peer, tag int, b kernels.Buffer) (Parcel, error) {
				late = append(late, func(ctx context.Context) { _, _ = c.Send(ctx, peer, tag, b) })
				return Null{}, nil
			}}
		}),
		"the wait has no end": with(world{want: "auto"}, func(c Courier, _ *node) Courier {
			return wrapped{Courier: c, recv: func(ctx context.Context, peer, tag int, b kernels.Buffer) (Parcel, error) {
				p, err := c.Recv(ctx, peer, tag, b)
				return waits(func(context.Context) error { return p.Wait(ctx) }), err
			}}
		}),
		"staged: copies begin too early":        flawed(far, kerneltest.CopyTooEarly),
		"staged: ops do not wait for copies":    flawed(far, kerneltest.AfterNothing),
		"staged: the host waits for no copy":    flawed(far, kerneltest.AwaitNothing),
		"ipc: copies begin too early":           flawed(ipc, kerneltest.CopyTooEarly),
		"ipc: the host waits for no instant":    flawed(ipc, kerneltest.AwaitNothing),
		"direct: the host waits for no instant": flawed(direct, kerneltest.AwaitNothing),
	} {
		if transporttest.Race {
			continue // most of them are data races, which it would find first
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := w.try(t)
			if err == nil {
				t.Error("it is not found")
			}
			t.Log(err)
		})
	}
}
