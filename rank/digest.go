package rank

import (
	"context"
	"encoding/json"
	"time"

	"github.com/pipetrain/pipetrain/checkpoint"
	"github.com/pipetrain/pipetrain/data"
	"github.com/pipetrain/pipetrain/exitcode"
)

// digest is the checksum of all of the data, which rank 0 takes while the run goes on. A nil one is of
// another rank, or of a source whose fingerprint says all.
type digest struct {
	done chan struct{} // closed once sum and err are there
	sum  string
	err  error
	// want is the checksum of the checkpoint that the run goes on from, of step from; empty: it has none.
	want   string
	from   int
	budget time.Duration // for which saves wait for it, all together
}

// Reading a corpus takes as long as it takes; what saves wait for it is bounded, since other ranks wait for them.
const (
	digestBudget = 10 * time.Minute
	digestBrief  = 250 * time.Millisecond // where nothing hangs on it: small texts are read by then
)

// takeDigest begins to read the data. It ends with ctx.
func (tr *Trainer) takeDigest(ctx context.Context) {
	source, ok := tr.samples.source.(data.Digester)
	if !ok || tr.world.Rank() != 0 {
		return
	}
	d := tr.digest
	if d == nil {
		d = &digest{}
		tr.digest = d
	}
	d.done, d.budget = make(chan struct{}), digestBrief
	if d.want != "" {
		d.budget = digestBudget
		if stall := tr.spec.Run.StallTimeout; stall > 0 {
			d.budget = min(d.budget, stall/2)
		}
	}
	go func() {
		defer close(d.done)
		d.sum, d.err = source.Digest(ctx)
	}()
}

// expect tells what the data were when the checkpoint was saved.
func (tr *Trainer) expect(m checkpoint.Manifest) {
	var want string
	if raw, ok := m.Extra[digestKey]; ok && json.Unmarshal(raw, &want) == nil && want != "" {
		tr.digest = &digest{want: want, from: m.Step}
	}
}

func (d *digest) known() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// check fails where the data were found to be others.
func (d *digest) check() error {
	if d == nil || !d.known() || d.err != nil || d.want == "" || d.sum == d.want {
		return nil
	}
	return exitcode.Errorf(exitcode.Environment, "the data have changed since the checkpoint of step %d was saved: their %s was another then (%s), though their length is the same; bring them back, or start a new run", d.from, d.sum, d.want)
}

// forSave waits for the checksum as long as a save may: the first after a resume must not follow other data. It returns
// what the manifest is to say, and whether the checkpoints before may go.
func (d *digest) forSave(ctx context.Context, hurry bool) (sum string, prune bool, err error) {
	if d == nil {
		return "", true, nil
	}
	if begin := time.Now(); !d.known() && !hurry && d.budget > 0 {
		timer := time.NewTimer(d.budget)
		defer timer.Stop()
		select {
		case <-d.done:
		case <-timer.C:
		case <-ctx.Done():
			return "", false, context.Cause(ctx)
		}
		d.budget -= time.Since(begin)
	}
	if err := d.check(); err != nil {
		return "", false, err
	}
	if d.known() && d.err == nil {
		return d.sum, true, nil
	}
	return d.want, d.want == "", nil
}
