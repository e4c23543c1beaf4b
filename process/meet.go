package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/record"
)

// openFolder agrees on the run folder where no launcher of ours made it: rank 0
// makes it, the others are told its path, or why there is none.
func (p *process) openFolder(ctx context.Context, world *collectives.Comm) error {
	if p.folder != nil {
		return nil
	}
	say := introduction{Place: launcher.PlaceKey(), PID: os.Getpid(), Lifeline: p.lifeline}
	if world.Rank() == 0 {
		f, err := openFolder(&p.o, p.spec)
		if err == nil {
			p.folder = f
			if err = settle(p.spec, f, p.o.Backends.Scratch, io.Discard); err == nil {
				err = errors.Join(f.WriteJob(p.spec.Resolved(), len(p.spec.Slurm.Environment) > 0), exitcode.Clear(f.Path))
			}
		}
		if err != nil {
			say.Err = err.Error()
		} else {
			say.Path, say.Resume = f.Path, p.o.Resume
		}
	}
	b, _ := json.Marshal(say) // texts and numbers: cannot fail
	all, err := world.AllGather(ctx, b)
	if err != nil {
		return err
	}
	var here []launcher.Guarded // the ranks of this host
	place := say.Place
	for i, b := range all {
		var other introduction
		if err := json.Unmarshal(b, &other); err != nil {
			return err
		}
		if i == 0 {
			say = other
		}
		if other.Place == place {
			here = append(here, launcher.Guarded{Rank: i, PID: other.PID, Lifeline: other.Lifeline})
		}
	}
	if say.Err != "" {
		p.agreed = true
		return exitcode.With(exitcode.Environment, errors.New(say.Err))
	}
	p.o.Resume = say.Resume
	if p.folder == nil {
		if p.folder, err = record.Join(say.Path); err != nil {
			return exitcode.With(exitcode.Environment, fmt.Errorf("%w: the run folder must be on a file system that every rank sees", err))
		}
		if err := adopt(p.spec, p.folder); err != nil {
			return err
		}
	}
	if err := p.openLog(); err != nil {
		return err
	}
	if here[0].Rank == world.Rank() {
		go p.startGuard(here)
	}
	return nil
}

// introduction is what the ranks of a foreign launcher tell each other first.
type introduction struct {
	Place    string // see launcher.PlaceKey
	PID      int
	Lifeline int
	// Of rank 0: the run folder, or why there is none, and whether to resume in it.
	Path, Err string
	Resume    bool
}

// startGuard has the ranks of this host watched; beside the start, which need not wait for it.
func (p *process) startGuard(ranks []launcher.Guarded) {
	var g *launcher.Guard
	dir, err := filepath.Abs(p.folder.Path)
	if err == nil {
		g, err = launcher.StartGuard(p.o.Binary, p.o.Env, launcher.GuardConfig{RunDir: dir, Launcher: p.world.Launcher, Ranks: ranks})
	}
	if err != nil {
		p.log.Warn().Err(err).Msg("nobody watches over this host's ranks: a killed one may leave no exit record")
		return
	}
	p.guard.Store(g)
}

// checkCards finds ranks that have one GPU, whoever gave it to them, and refuses them unless the
// job allows it. Every rank calls it; it returns how many ranks share this one's.
func (p *process) checkCards(ctx context.Context, world *collectives.Comm) (int, error) {
	own := p.o.Backends.Card(p.device)
	if own != "" {
		host, err := os.Hostname()
		if err != nil {
			return 0, exitcode.With(exitcode.Environment, err)
		}
		own = host + " " + own
	}
	all, err := world.AllGather(ctx, []byte(own))
	if err != nil {
		return 0, err
	}
	first, ranks := map[string]int{}, 0
	for r, theirs := range all {
		card := string(theirs)
		if card == "" {
			continue
		}
		if card == own {
			ranks++
		}
		if f, seen := first[card]; !seen {
			first[card] = r
		} else if !p.spec.Device.Share {
			p.agreed = true
			return ranks, exitcode.With(exitcode.Environment, fmt.Errorf("cuda: ranks %d and %d have one GPU (%s): give each its own, or set device.share = true", f, r, card))
		}
	}
	return ranks, nil
}
