package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/data"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/rank"
	"github.com/pipetrain/pipetrain/record"
)

// process is one rank: what it holds between its start and its end.
type process struct {
	o         Options
	spec      *jobs.Spec
	world     launcher.World
	child     *launcher.Child
	stop      atomic.Bool
	device    kernels.Device
	transport collectives.Transport
	source    data.Source
	folder    *record.Folder
	log       zerolog.Logger
	shared    string // which ranks share cores; rank 0 alone knows
	step      int
	show      func()                         // draws the end of a run; nil: nothing is to be shown
	agreed    bool                           // all ranks end for one error, which rank 0 told them
	lifeline  int                            // see launcher.OpenLifeline; 0: none
	guard     atomic.Pointer[launcher.Guard] // nil under the embedded launcher, and on all ranks of a host but one
}

// beRank is a rank's whole life.
func beRank(ctx context.Context, o Options, spec *jobs.Spec, world launcher.World) error {
	child, err := launcher.OpenChild(o.Env)
	if err != nil {
		return err
	}
	p := &process{o: o, spec: spec, world: world, child: child, log: zerolog.Nop()}
	asked := make(chan os.Signal, 4)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for s := range asked {
			p.stop.Store(true)
			p.guard.Load().Asked(s)
		}
	}()
	ctx, cancel := child.Context(ctx)
	defer cancel()
	err = p.run(ctx)
	if lost := context.Cause(ctx); err != nil && lost != nil && errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w (%v)", lost, err)
	}
	// Who lost a peer is not the one that failed: the launcher looks for another to name.
	if lost := (*collectives.PeerLostError)(nil); errors.As(err, &lost) && exitcode.Of(err) == exitcode.Unexpected {
		err = exitcode.With(exitcode.RankLost, err)
	}
	return p.end(err)
}

func (p *process) run(ctx context.Context) error {
	if err := p.prepare(); err != nil {
		return err
	}
	p.child.Ready()
	var err error
	if !p.child.Active() {
		if p.lifeline, err = launcher.OpenLifeline(); err != nil {
			return exitcode.With(exitcode.Environment, err)
		}
	}
	// What drives the transport must not wait for a long compute call to end. The
	// embedded launcher has seen to that; mpirun may have bound this rank to one core.
	if n := p.o.Backends.Threads(p.spec, p.world) + 1; runtime.GOMAXPROCS(0) < n {
		runtime.GOMAXPROCS(n)
	}
	if p.transport, err = p.o.Backends.Transport(ctx, p.spec, p.world, p.child.Segment()); err != nil {
		return err
	}
	if got, want := p.transport.Size(), p.spec.World(); got != want {
		return exitcode.Errorf(exitcode.Usage, "the job needs %d ranks (%d stages × %d replicas), the world has %d%s: start it with -n %d, or change [parallel]",
			want, p.spec.Parallel.Stages, p.spec.Parallel.Replicas, got, p.world.Doubt(), want)
	}
	world := collectives.World(p.transport)
	if err := p.openFolder(ctx, world); err != nil {
		return err
	}
	sharing, err := p.checkCards(ctx, world)
	if err != nil {
		return err
	}
	if sharing > 1 {
		text := p.o.Backends.Sharing(sharing, p.device)
		p.log.Info().Msg(text)
		if world.Rank() == 0 && !p.o.Quiet {
			fmt.Fprintln(p.o.Stderr, "pipetrain: "+text)
		}
	}
	p.child.Joined()
	if err := p.bind(ctx, world); err != nil {
		return err
	}
	if err := p.writeEnvironment(ctx, world); err != nil {
		return err
	}
	return p.train(ctx, world)
}

// prepare opens what this rank needs by itself, before it meets the others.
func (p *process) prepare() error {
	if p.spec.Transport.Kind == "local" && !p.child.Active() {
		return exitcode.Errorf(exitcode.Usage, "transport.kind = \"local\" is for ranks that pipetrain starts itself, and %s started this one%s: run pipetrain alone, or use \"auto\" or \"mpi\"", p.world.Launcher, p.world.Doubt())
	}
	if p.child.Active() {
		f, err := record.Join(p.o.Out)
		if err != nil {
			return exitcode.With(exitcode.Environment, err)
		}
		p.folder = f
		if err := p.openLog(); err != nil {
			return err
		}
	}
	var err error
	if p.spec.Device.Kind == jobs.DeviceRehearse {
		p.device, err = p.o.Backends.Device(p.spec, p.world)
		return err
	}
	if p.source, err = data.Open(p.spec.DataConfig()); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	p.device, err = p.o.Backends.Device(p.spec, p.world)
	return err
}

func (p *process) openLog() error {
	f, err := p.folder.RankLog(p.world.Rank)
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	p.log = zerolog.New(f).With().Timestamp().Int("rank", p.world.Rank).Logger()
	return nil
}

func (p *process) writeEnvironment(ctx context.Context, world *collectives.Comm) error {
	own, err := json.Marshal(record.ProbeHost(world.Rank()))
	if err != nil {
		return err
	}
	all, err := world.Gather(ctx, 0, own)
	if err != nil {
		return err
	}
	if world.Rank() != 0 {
		return nil
	}
	hosts := make([]record.Host, len(all))
	for i, b := range all {
		if err := json.Unmarshal(b, &hosts[i]); err != nil {
			return err
		}
	}
	env := record.NewEnvironment(p.o.Version, p.o.Args, p.o.Env, hosts)
	p.shared = record.SharedCores(hosts)
	env.Device, env.Transport = p.device.Info(), p.transport.Info()
	if err := p.folder.WriteEnvironment(env); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	return nil
}

func (p *process) train(ctx context.Context, world *collectives.Comm) error {
	out := newOutput(p)
	defer out.close()
	_, commit, _ := record.BuildInfo(p.o.Version)
	p.log.Info().Str("device", p.device.Name()).Interface("info", p.device.Info()).Str("transport", p.transport.Kind()).Interface("transport_info", p.transport.Info()).Msg("starting")
	if i := p.device.Info(); world.Rank() == 0 && i["blas"] == "go" && i["isa"] == "go" {
		fmt.Fprintf(p.o.Stderr, "pipetrain: this processor has no vector instructions that the built-in kernels use, and no BLAS library was found: compute will be slow; install one (apt-get install libopenblas0)\n")
	}
	begin := time.Now()
	var rehearsal *rank.Rehearsal
	if p.spec.Device.Kind == jobs.DeviceRehearse {
		var err error
		if rehearsal, err = rank.RehearsalOf(p.spec); err != nil {
			return exitcode.With(exitcode.Usage, err)
		}
	}
	rep, err := rank.Run(ctx, rank.Config{
		Rehearsal: rehearsal,
		Spec:      p.spec, Transport: p.transport, Device: p.device, Data: p.source,
		Dir: p.folder.Path, Resume: p.o.Resume, Program: strings.TrimSpace("pipetrain " + p.o.Version + " " + commit), Log: p.log,
		StopAsked:  p.stop.Load,
		OnStart:    out.start,
		BeforeSave: out.sync,
		Held:       p.folder.Held,
		OnStep: func(s rank.StepInfo) error {
			p.step = s.Step
			p.child.Step(int64(s.Step))
			p.guard.Load().Step(int64(s.Step))
			return out.step(s)
		},
	})
	if err == nil && rep.Stopped && !p.spec.Checkpoint.Enabled {
		err = exitcode.Errorf(exitcode.Interrupted, "stopped on request after step %d of %d; nothing was saved (checkpoint.enabled = false)", rep.Steps, p.spec.Train.Steps)
	} else if err == nil && rep.Stopped {
		p.child.Stopped(int64(rep.Steps))
		err = exitcode.Errorf(exitcode.Stopped, "stopped on request after step %d of %d; the state is saved: continue with --resume --out %s", rep.Steps, p.spec.Train.Steps, p.folder.Path)
	}
	if world.Rank() == 0 {
		if ferr := out.finish(rep, err, time.Since(begin)); err == nil {
			err = ferr
		}
	}
	return err
}
