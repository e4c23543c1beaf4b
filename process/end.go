package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/record"
)

// Under a launcher that is not ours the first rank that ends with an error takes the others with
// it. So the ranks decide, each for itself, which of them tells the user why, and in which order
// they go. The embedded launcher does that for its ranks.

// whose says which ranks have the error that a rank ends with.
type whose int

const (
	own        whose = iota // this one
	hosts                   // those of this host, perhaps all
	everyRanks              // all, in the same words
)

// ending is what a rank knows when it is about to end.
type ending struct {
	code   exitcode.Code
	rank   int
	whose  whose
	echo   bool // it may have failed because another rank did
	folder bool // the run folder is known
	joined bool // it has reached the others
}

// way is how a rank leaves the world.
type way string

const (
	exits  way = "exits"  // at once
	late   way = "late"   // after rank 0 had the time to end first
	meets  way = "meets"  // with all others, or as aborts where they do not come
	aborts way = "aborts" // and takes the others with it
	leaves way = "leaves" // with all others: an orderly end, MPI's included
)

// delay is what the rank whose failure it was gets to leave its record first.
func (e ending) delay() time.Duration {
	if e.folder && e.echo {
		return time.Second
	}
	return 0
}

// speaks says whether the rank tells the user; first: its exit record is the run's, or there can be none.
func (e ending) speaks(first bool) bool {
	switch {
	case e.code == exitcode.Finished:
		return false
	case e.code == exitcode.Stopped || e.whose == everyRanks:
		return e.rank == 0
	}
	return first
}

func (e ending) way() way {
	switch {
	case e.code == exitcode.Finished || e.code == exitcode.Stopped:
		return leaves
	case !e.joined && e.whose != own && e.rank > 0:
		return late
	case !e.joined:
		return exits
	case e.whose == everyRanks:
		return meets
	}
	return aborts
}

// patience is what rank 0 gets to end before the others do.
const patience = 300 * time.Millisecond

// EndedWithin waits, less long where the launcher ends this process: a rank that dies of the signal
// would hide the code of the one that failed, since srun returns the highest.
func EndedWithin(limit time.Duration) bool {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	defer signal.Stop(term)
	select {
	case <-term:
		return true
	case <-time.After(limit):
		return false
	}
}

// endEarly ends a rank that fails before it does anything, or a start without a launcher.
func endEarly(o Options, w launcher.World, which whose, err error) error {
	recordEarly(o, w, err)
	e := ending{code: exitcode.Of(err), rank: w.Rank, whose: which}
	if e.way() == late && (EndedWithin(patience) || which == everyRanks && w.Doubt() == "") {
		return &exitcode.ReportedError{Err: err}
	}
	return err
}

// recordEarly leaves the word of a rank that fails before there is a run folder of its own:
// a batch script has made it, and would not know else why the ranks came to nothing.
func recordEarly(o Options, w launcher.World, err error) {
	if !o.Auto || o.Out == "" || !w.IsRank() || record.InUse(o.Out) {
		return
	}
	if info, e := os.Stat(o.Out); e != nil || !info.IsDir() {
		return
	}
	// Without a record the launcher's code has to tell: nothing else can be done here.
	_, _ = exitcode.WriteFirst(o.Out, exitcode.Record{Code: exitcode.Of(err), Rank: w.Rank, Reason: err.Error(), Launcher: string(w.Launcher)})
}

// end tells the world how this rank ended and gives back what it holds.
func (p *process) end(err error) error {
	e := p.ending(err)
	if err == nil {
		p.log.Info().Msg("done")
		p.child.Done()
	} else {
		p.log.Error().Int("exit_code", int(e.code)).Msg(err.Error())
		if p.child.Active() && e.whose == everyRanks && e.rank > 0 {
			EndedWithin(patience) // the launcher names the first that failed
		}
		p.child.Failed(err)
	}
	if p.source != nil {
		p.source.Close()
	}
	way := e.way()
	if !p.child.Active() {
		way, err = p.endForeign(e, err)
	} else if err != nil {
		err = &exitcode.ReportedError{Err: err}
	}
	if err == nil && p.show != nil {
		p.show() // what people read comes after what says how the run ended
		p.o.Stdout.Flush(patience)
	}
	if p.transport != nil {
		if way == leaves {
			// All are here before anyone leaves, so that closing can be bounded.
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			_ = collectives.World(p.transport).Barrier(ctx) // a lost peer is the launcher's to report
			cancel()
		}
		p.transport.Close()
	}
	if p.device != nil && way == leaves {
		p.device.Close() // after the transport, which may use its memory; see rank.Run
	}
	if p.folder != nil {
		p.folder.Close()
	}
	return err
}

func (p *process) ending(err error) ending {
	lost := (*collectives.PeerLostError)(nil)
	e := ending{code: exitcode.Of(err), rank: p.world.Rank, echo: exitcode.Culprit(err, p.world.Rank) != p.world.Rank || errors.As(err, &lost) || p.o.Backends.Call(err), folder: p.folder != nil, joined: p.transport != nil}
	if p.agreed || !e.folder && (e.code == exitcode.Usage || p.o.Backends.Same(err)) {
		e.whose = everyRanks
	}
	return e
}

// endForeign ends a rank under a launcher that is not ours, but for what all ends have in common.
func (p *process) endForeign(e ending, err error) (way, error) {
	first, werr := p.leaveRecord(e, err)
	if werr != nil {
		return exits, exitcode.With(exitcode.Environment, werr)
	}
	speaks, way := e.speaks(first), e.way()
	if way == late && !EndedWithin(patience) && p.world.Doubt() != "" {
		speaks = true // there may be no rank 0
	}
	switch {
	case err == nil:
		return way, nil
	case e.code != exitcode.Stopped && speaks:
		host, _ := os.Hostname()
		fmt.Fprintf(p.o.Stderr, "pipetrain: rank %d on %s: %v\n", e.rank, host, err)
		err = &exitcode.ReportedError{Err: err}
	case !speaks:
		err = &exitcode.ReportedError{Err: err}
	}
	switch way {
	case meets:
		// Whoever ends first takes the others with it, and rank 0 has the word.
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if collectives.World(p.transport).Barrier(ctx) == nil {
			return way, err
		}
		fallthrough
	case aborts:
		if !speaks {
			// The rank whose record it is has the word, and ends the world when it has spoken.
			time.Sleep(patience)
		}
		p.o.Stderr.Flush(patience)
		p.transport.Abort(int(e.code))
	}
	return way, err
}

// leaveRecord writes the exit record of a run that finished, and of one that failed unless another
// rank has; first says whether this rank's is the run's, or there can be none.
func (p *process) leaveRecord(e ending, err error) (first bool, _ error) {
	if p.folder == nil {
		recordEarly(p.o, p.world, err)
		return true, nil
	}
	r := exitcode.Record{Code: e.code, Rank: exitcode.NoRank, Time: time.Now(), Step: int64(p.step), Launcher: string(p.world.Launcher)}
	if err == nil {
		if home := p.folder.Home(); home != "" && e.rank == 0 {
			return true, exitcode.Write(home, r)
		}
		return true, nil
	}
	r.Rank, r.Reason = exitcode.Culprit(err, e.rank), err.Error()
	time.Sleep(e.delay())
	first = true
	if home := p.folder.Home(); home != "" {
		if won, werr := exitcode.WriteFirst(home, r); werr == nil {
			first = won
		}
	}
	return first, nil
}
