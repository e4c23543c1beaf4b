package process

import (
	"context"
	"strings"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/record"
)

// bind takes the rank's share of its host's CPUs where the job asks for it and another
// launcher started the rank. The ranks compare first what they were given: a launcher that bound
// each to other CPUs has shared them out already.
func (p *process) bind(ctx context.Context, world *collectives.Comm) error {
	how := launcher.Bind(p.spec.Device.Bind)
	if p.child.Active() || how != launcher.BindCores && how != launcher.BindNUMA {
		return nil
	}
	own := record.ProbeHost(world.Rank())
	all, err := world.AllGather(ctx, []byte(own.Name+"\n"+own.Affinity))
	if err != nil {
		return err
	}
	index, here := 0, 0
	for r, b := range all {
		name, affinity, _ := strings.Cut(string(b), "\n")
		if name != own.Name {
			continue
		}
		if affinity != own.Affinity {
			return exitcode.Errorf(exitcode.Environment, "device.bind = %q: %s has bound rank %d to CPUs %s and rank %d to %s already; have it bind none (mpirun.openmpi --bind-to none, mpirun.mpich -bind-to none, srun --cpu-bind=none), or leave the key out",
				how, p.world.Launcher, world.Rank(), own.Affinity, r, affinity)
		}
		if r == world.Rank() {
			index = here
		}
		here++
	}
	return launcher.BindSelf(how, index, here)
}
