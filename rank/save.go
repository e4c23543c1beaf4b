package rank

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"unsafe"

	"github.com/pipetrain/pipetrain/checkpoint"
	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/model"
)

// checkpointsDir is the folder of checkpoints within a run folder.
func checkpointsDir(run string) string { return filepath.Join(run, "checkpoints") }

// savedPart is one tensor of the safetensors files: a parameter, or the rows of
// a joined one, with its place in a stage's flat buffers.
type savedPart struct {
	name  string
	shape []int
	off   int64 // elements
	n     int64
	// turned: the file has the matrix transposed, in this shape.
	turned bool
}

// savedParts lists the tensors of a parameter at an offset; owner, the first
// copy of a tie, has the names.
func savedParts(p, owner model.Param, off int64) []savedPart {
	if len(p.Parts) == 0 {
		shape := []int{p.Rows, p.Cols}
		if p.Vector {
			shape = []int{p.Cols}
		}
		if p.Transposed {
			shape = []int{p.Cols, p.Rows}
		}
		return []savedPart{{owner.Name, shape, off, p.Len(), p.Transposed}}
	}
	var parts []savedPart
	for i, part := range p.Parts {
		n := int64(part.Rows) * int64(p.Cols)
		parts = append(parts, savedPart{owner.Parts[i].Name, []int{part.Rows, p.Cols}, off, n, false})
		off += n
	}
	return parts
}

// each calls f for every saved part of the stages here. owned says whether this
// rank's copy is the one that is saved.
func (tr *Trainer) each(f func(st *stage, part savedPart, owned bool) error) error {
	refs := tr.work.Model.Params()
	for _, i := range tr.m.order() {
		st := tr.m.stages[i]
		first := tr.work.Schedule.Holders(i)[0] == tr.m.me
		for k, p := range st.params.Params {
			for _, part := range savedParts(p.Param, refs[p.Owner].Param, st.params.Offsets[k]) {
				if err := f(st, part, first && p.Owned()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Save writes a checkpoint of the state after `step` steps, all ranks together.
func (tr *Trainer) Save(ctx context.Context, dir string, step int, program string, warn func(string)) error {
	var weights, state []checkpoint.Tensor
	states := tr.work.Optim.States()
	err := tr.each(func(st *stage, part savedPart, owned bool) error {
		if !owned || tr.place.Replica != 0 {
			return nil
		}
		weights = append(weights, checkpoint.Tensor{Name: part.name, DType: "F32", Shape: part.shape, Bytes: tr.stored(st.weights, part)})
		for k, name := range states {
			state = append(state, checkpoint.Tensor{Name: part.name + "." + name, DType: "F32", Shape: part.shape, Bytes: tr.stored(st.states[k], part)})
		}
		return nil
	})
	if err != nil {
		return err
	}
	config, err := json.MarshalIndent(tr.work.Model.HFConfig(), "", "  ")
	if err != nil {
		return err
	}
	c := checkpoint.SaveConfig{
		Dir: checkpointsDir(dir), Step: step, Shard: -1, Shards: tr.spec.Parallel.Stages,
		Group: savers{tr.world}, Keep: tr.spec.Checkpoint.Keep, Held: tr.held,
	}
	if tr.place.Replica == 0 {
		c.Shard = tr.place.Stage
	}
	sum, prune, err := tr.digest.forSave(ctx, tr.hurry)
	if err != nil {
		return err
	}
	if !prune {
		c.Keep = 0
	}
	extra := map[string]any{dataKey: tr.samples.source.Fingerprint(), settingsKey: tr.spec.Lasting()}
	if sum != "" {
		extra[digestKey] = sum
	}
	if tr.u.opt.updates != step {
		extra[updatesKey] = tr.u.opt.updates
	}
	err = checkpoint.Save(ctx, c, weights, state, checkpoint.Meta{
		Job: tr.spec.Name, Seed: tr.spec.Seed, Config: append(config, '\n'), Program: program,
		DataPosition: tr.position(step), Extra: extra,
	})
	if errors.Is(err, checkpoint.ErrPrune) { // saved all the same
		warn(err.Error())
		return nil
	}
	if failed := (*checkpoint.SaveError)(nil); errors.As(err, &failed) {
		return exitcode.With(exitcode.Environment, tr.blame(failed))
	}
	return err
}

// blame says whose failure a save's was, where it was not this rank's.
func (tr *Trainer) blame(err *checkpoint.SaveError) error {
	if slices.ContainsFunc(err.Failed, func(f checkpoint.RankFailure) bool { return f.Rank == tr.world.Rank() }) {
		return err
	}
	return &exitcode.BlamedError{Rank: err.Failed[0].Rank, Err: err}
}

// stored returns the bytes of a part as its file has them.
func (tr *Trainer) stored(b kernels.Block, part savedPart) []byte {
	host := tr.hostCopy(b, part)
	if !part.turned {
		return host
	}
	values := unsafe.Slice((*float32)(unsafe.Pointer(&host[0])), part.n)
	return float32Bytes(transpose(values, part.shape[1], part.shape[0]))
}

// transpose returns a matrix of rows × cols as cols × rows.
func transpose(x []float32, rows, cols int) []float32 {
	out := make([]float32, len(x))
	for i := range rows {
		for j := range cols {
			out[j*rows+i] = x[i*cols+j]
		}
	}
	return out
}

// hostCopy returns the bytes of a part: in place where the host can address them.
func (tr *Trainer) hostCopy(b kernels.Block, part savedPart) []byte {
	view := b.As(kernels.F32).Slice(part.off, part.n)
	if host := tr.dev.Host(view); host != nil {
		return host
	}
	out := make([]byte, view.Bytes())
	tr.dev.CopyOut(out, view)
	return out
}

// Load brings back the state of a checkpoint: the given step, or the newest
// that verifies (step < 0). It returns the steps done. All ranks call it together and
// load the same one, whatever the number of stages and replicas was when it was saved.
func (tr *Trainer) Load(ctx context.Context, dir string, step int, warn func(string)) (int, error) {
	// Rank 0 chooses; the others are told which one, or why there is none.
	var chosen struct {
		Step int
		Err  string
	}
	var first *checkpoint.Checkpoint
	if tr.world.Rank() == 0 {
		c, err := tr.choose(dir, step, warn)
		if err != nil {
			chosen.Err = err.Error()
		} else {
			first, chosen.Step = c, c.Manifest.Step
			defer c.Close()
		}
	}
	b, err := json.Marshal(chosen)
	if err != nil {
		return 0, err
	}
	if b, err = (savers{tr.world}).Broadcast(ctx, b); err != nil {
		return 0, err
	}
	if err := json.Unmarshal(b, &chosen); err != nil {
		return 0, err
	}
	if chosen.Err != "" {
		return 0, exitcode.With(exitcode.Environment, errors.New(chosen.Err))
	}
	at := chosen.Step
	c := first
	if c == nil {
		var err error
		if c, _, err = checkpoint.Open(checkpointsDir(dir), checkpoint.Want{Explicit: true, Step: at, Quick: true}); err != nil {
			return 0, exitcode.With(exitcode.Environment, fmt.Errorf("rank %d cannot read the checkpoint that rank 0 found: %w", tr.world.Rank(), err))
		}
		defer c.Close()
	}
	if err := tr.restore(c); err != nil {
		return 0, exitcode.With(exitcode.Environment, err)
	}
	for _, i := range tr.m.order() {
		tr.m.stages[i].round()
	}
	tr.u.opt.step, tr.u.opt.updates = at, updatesOf(c.Manifest)
	return at, tr.dev.Sync()
}

// choose opens the checkpoint to go on from.
func (tr *Trainer) choose(dir string, step int, warn func(string)) (*checkpoint.Checkpoint, error) {
	gone, err := checkpoint.Clean(checkpointsDir(dir))
	for _, name := range gone {
		warn("left by a run that was killed, removed: " + name)
	}
	if err != nil {
		warn(err.Error())
	}
	want := checkpoint.Want{}
	if step >= 0 {
		want = checkpoint.AtStep(step)
	}
	c, skipped, err := checkpoint.Open(checkpointsDir(dir), want)
	for _, s := range skipped {
		warn(s.String())
	}
	if err != nil {
		return nil, err
	}
	if err := tr.sameRun(c); err != nil {
		c.Close()
		return nil, err
	}
	tr.expect(c.Manifest)
	return c, nil
}

func (tr *Trainer) restore(c *checkpoint.Checkpoint) error {
	states := tr.work.Optim.States()
	return tr.each(func(st *stage, part savedPart, _ bool) error {
		put := func(b kernels.Block, name string, read func(string) ([]float32, []int, error)) error {
			x, shape, err := read(name)
			if err != nil {
				return err
			}
			if !slices.Equal(shape, part.shape) {
				return fmt.Errorf("checkpoint: %s has shape %v, the job's model wants %v: the checkpoint is of another model", name, shape, part.shape)
			}
			if part.turned {
				x = transpose(x, part.shape[0], part.shape[1])
			}
			tr.dev.CopyIn(b.As(kernels.F32).Slice(part.off, part.n), float32Bytes(x))
			return nil
		}
		if err := put(st.weights, part.name, c.Tensor); err != nil {
			return err
		}
		for k, name := range states {
			if err := put(st.states[k], part.name+"."+name, c.OptimizerTensor); err != nil {
				return err
			}
		}
		return nil
	})
}

// savers lets the checkpoint package talk through a communicator.
type savers struct{ c *collectives.Comm }

func (g savers) Rank() int { return g.c.Rank() }
func (g savers) Size() int { return g.c.Size() }

func (g savers) Gather(ctx context.Context, b []byte) ([][]byte, error) { return g.c.Gather(ctx, 0, b) }

func (g savers) Broadcast(ctx context.Context, b []byte) ([]byte, error) {
	n := make([]byte, 8)
	binary.LittleEndian.PutUint64(n, uint64(len(b)))
	if err := g.c.Broadcast(ctx, 0, n); err != nil {
		return nil, err
	}
	out := make([]byte, binary.LittleEndian.Uint64(n))
	if g.c.Rank() == 0 {
		copy(out, b)
	}
	return out, g.c.Broadcast(ctx, 0, out)
}

// Weights returns copies of this rank's weights by the names they are saved under.
func (tr *Trainer) Weights() map[string][]float32 {
	out := map[string][]float32{}
	_ = tr.each(func(st *stage, part savedPart, owned bool) error {
		if owned {
			host := tr.hostCopy(st.weights, part)
			x := make([]float32, part.n)
			copy(x, unsafe.Slice((*float32)(unsafe.Pointer(&host[0])), part.n))
			out[part.name] = x
		}
		return nil
	})
	return out
}
