package main

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
	"github.com/pipetrain/pipetrain/collectives/mpi"
	"github.com/pipetrain/pipetrain/data"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cuda"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/rank"
	"github.com/pipetrain/pipetrain/record"
)

// process is one rank: what it holds between its start and its end.
type process struct {
	o         runOptions
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
	agreed    bool                           // all ranks end for one error, which rank 0 told them
	lifeline  int                            // see launcher.OpenLifeline; 0: none
	guard     atomic.Pointer[launcher.Guard] // nil under the embedded launcher, and on all ranks of a host but one
}

// beRank is a rank's whole life.
func beRank(ctx context.Context, o runOptions, spec *jobs.Spec, world launcher.World) error {
	child, err := launcher.OpenChild(os.Environ())
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
	if lost := (*collectives.ErrPeerLost)(nil); errors.As(err, &lost) && exitcode.Of(err) == exitcode.Unexpected {
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
	if n := threads(p.spec, p.world) + 1; runtime.GOMAXPROCS(0) < n {
		runtime.GOMAXPROCS(n)
	}
	if p.transport, err = openTransport(ctx, p.spec, p.world, p.child); err != nil {
		return err
	}
	if got, want := p.transport.Size(), p.spec.World(); got != want {
		return exitcode.Errorf(exitcode.Usage, "the job needs %d ranks (%d stages × %d replicas), the world has %d: start it with -n %d, or change [parallel]",
			want, p.spec.Parallel.Stages, p.spec.Parallel.Replicas, got, want)
	}
	world := collectives.World(p.transport)
	if err := p.openFolder(ctx, world); err != nil {
		return err
	}
	sharing, err := checkShared(ctx, world, p.spec, p.device)
	if err != nil {
		return err
	}
	if g, ok := p.device.(*cuda.Device); ok && sharing > 1 {
		text := sharingText(sharing, g.Card(), mpsRuns(os.Getenv))
		p.log.Info().Msg(text)
		if world.Rank() == 0 && !p.o.quiet {
			fmt.Fprintln(p.o.stderr, "pipetrain: "+text)
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
		return exitcode.Errorf(exitcode.Usage, "transport.kind = \"local\" is for ranks that pipetrain starts itself, and %s started this one: run pipetrain alone, or use \"auto\" or \"mpi\"", p.world.Launcher)
	}
	if p.child.Active() {
		f, err := record.Join(p.o.out)
		if err != nil {
			return exitcode.With(exitcode.Environment, err)
		}
		p.folder = f
		if err := p.openLog(); err != nil {
			return err
		}
	}
	var err error
	if p.spec.Device.Kind == "rehearse" {
		p.device, err = openDevice(p.spec, p.world)
		return err
	}
	if p.source, err = data.Open(p.spec.DataConfig()); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	p.device, err = openDevice(p.spec, p.world)
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
	env := record.NewEnvironment(version, os.Args, os.Environ(), hosts)
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
	_, commit, _ := record.BuildInfo(version)
	p.log.Info().Str("device", p.device.Name()).Interface("info", p.device.Info()).Str("transport", p.transport.Kind()).Interface("transport_info", p.transport.Info()).Msg("starting")
	if i := p.device.Info(); world.Rank() == 0 && i["blas"] == "go" && i["isa"] == "go" {
		fmt.Fprintf(p.o.stderr, "pipetrain: this processor has no vector instructions that the built-in kernels use, and no BLAS library was found: compute will be slow; install one (apt-get install libopenblas0)\n")
	}
	begin := time.Now()
	var rehearsal *rank.Rehearsal
	if p.spec.Device.Kind == "rehearse" {
		var err error
		if rehearsal, err = rank.RehearsalOf(p.spec); err != nil {
			return exitcode.With(exitcode.Usage, err)
		}
	}
	rep, err := rank.Run(ctx, rank.Config{
		Rehearsal: rehearsal,
		Spec:      p.spec, Transport: p.transport, Device: p.device, Data: p.source,
		Dir: p.folder.Path, Resume: p.o.resume, Program: strings.TrimSpace("pipetrain " + version + " " + commit), Log: p.log,
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
	if err == nil && rep.Stopped {
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

// end tells the world how this rank ended and gives back what it holds.
func (p *process) end(err error) error {
	code := exitcode.Of(err)
	if err != nil {
		p.log.Error().Int("exit_code", int(code)).Msg(err.Error())
		p.child.Failed(err)
	} else {
		p.log.Info().Msg("done")
		p.child.Done()
	}
	if p.device != nil {
		p.device.Close()
	}
	if p.source != nil {
		p.source.Close()
	}
	if !p.child.Active() {
		err = p.endForeign(err)
	} else if err != nil {
		err = &reported{err}
	}
	if p.transport != nil {
		if err == nil || code == exitcode.Stopped {
			// All are here before anyone leaves, so that closing can be bounded.
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			_ = collectives.World(p.transport).Barrier(ctx) // a lost peer is the launcher's to report
			cancel()
		}
		p.transport.Close()
	}
	if p.folder != nil {
		p.folder.Close()
	}
	return err
}

// fromPeers says whether err may be the echo of another rank's end.
func fromPeers(err error) bool {
	lost, call := (*collectives.ErrPeerLost)(nil), (*mpi.Error)(nil)
	return errors.As(err, &lost) || errors.As(err, &call)
}

// endForeign ends a rank under a launcher that is not ours: the first to fail
// writes the record and says why, and takes the world with it.
func (p *process) endForeign(err error) error {
	code := exitcode.Of(err)
	host, _ := os.Hostname()
	r := exitcode.Record{Code: code, Rank: exitcode.NoRank, Host: host, PID: os.Getpid(), Time: time.Now(), Step: int64(p.step), Launcher: string(p.world.Launcher)}
	if err == nil {
		if p.world.Rank == 0 {
			if home := p.folder.Home(); home != "" {
				if werr := exitcode.Write(home, r); werr != nil {
					return exitcode.With(exitcode.Environment, werr)
				}
			}
		}
		return nil
	}
	first := true
	if p.folder != nil {
		r.Rank, r.Reason = exitcode.Culprit(err, p.world.Rank), err.Error()
		if r.Rank != p.world.Rank || fromPeers(err) {
			// The failure may be another rank's, whose guard or own word comes first.
			time.Sleep(time.Second)
		}
		if home := p.folder.Home(); home != "" {
			if won, werr := exitcode.WriteFirst(home, r); werr == nil {
				first = won
			}
		}
	} else {
		recordEarly(p.o, p.world, err)
	}
	if code == exitcode.Stopped {
		// Every rank stops at the same step: an orderly end, MPI's included.
		if p.world.Rank != 0 {
			return &reported{err}
		}
		return err
	}
	misfit := (*mpi.Misfit)(nil)
	same := p.agreed || p.folder == nil && (code == exitcode.Usage || errors.As(err, &misfit)) // every rank sees the same mistake
	if same {
		first = p.world.Rank == 0
	}
	if first {
		fmt.Fprintf(p.o.stderr, "pipetrain: rank %d on %s: %v\n", p.world.Rank, host, err)
	}
	if same && p.transport == nil && !first {
		return giveWay(err)
	}
	if same && p.transport != nil {
		// Whoever ends first takes the others with it, and rank 0 has the word.
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if collectives.World(p.transport).Barrier(ctx) == nil {
			return &reported{err}
		}
	}
	if p.transport != nil {
		if !first {
			// The rank whose record it is has the word, and ends the world when it has spoken.
			time.Sleep(300 * time.Millisecond)
		}
		p.transport.Abort(int(code))
	}
	return &reported{err}
}
