package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pipetrain/pipetrain/durable"
)

// SaveConfig says where a checkpoint goes and who writes it. Dir, Step, Shards,
// Keep and PruneStart are the same on every member of Group.
type SaveConfig struct {
	Dir  string // the folder of checkpoints, seen by every rank
	Step int    // optimizer steps done
	// Shard, from 0, is the file this rank writes. Negative: none; the rank takes
	// part in the agreement only (replicas other than the first).
	Shard, Shards int
	Group         Group // nil: Alone
	// Keep is how many checkpoints stay, this one included; 0 or less: all. The
	// start checkpoint (step 0) neither counts nor goes, unless PruneStart.
	Keep       int
	PruneStart bool
	// Held says whether Dir is still this run's, and is asked before anything is written or
	// removed there by its name; nil: it always is.
	Held func() error
}

// SaveError says which ranks could not save and why. Every member of the group
// gets the same text. The checkpoints saved before are as they were.
type SaveError struct {
	Step   int
	Dir    string
	Failed []RankFailure
	local  error
}

// RankFailure is one rank's reason.
type RankFailure struct {
	Rank   int    `json:"rank"`
	Reason string `json:"reason"`
}

func (e *SaveError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "checkpoint of step %d not saved in %s: ", e.Step, e.Dir)
	for i, f := range e.Failed {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "rank %d: %s", f.Rank, f.Reason)
	}
	return b.String()
}

// Unwrap returns this rank's own error, if it had one.
func (e *SaveError) Unwrap() error { return e.local }

// ErrPrune says that the checkpoint was saved but an older one could not be removed.
var ErrPrune = errors.New("an old checkpoint could not be removed")

// report is what a member tells rank 0 after writing its shard.
type report struct {
	Step   int              `json:"step"`
	Shard  int              `json:"shard"`
	Shards int              `json:"shards"`
	Files  []FileSum        `json:"files"`
	Sizes  map[string]int64 `json:"sizes"` // model tensors of this shard
	Optim  []string         `json:"optim"`
	Err    string           `json:"err,omitempty"`
}

const notShared = " (the checkpoint folder must be on a file system that all hosts share: choose one with --out)"

// verdict is what rank 0 tells all.
type verdict struct {
	Failed []RankFailure `json:"failed,omitempty"`
	Prune  string        `json:"prune,omitempty"`
}

// Save writes the checkpoint of one step together with the other members of the
// group. It returns nil on every member, or an error on every member: one that
// cannot write makes all fail, and none waits for it. The tensors' bytes must
// not change meanwhile. A nil or ErrPrune result means the checkpoint is on disk.
func Save(ctx context.Context, c SaveConfig, model, optimizer []Tensor, meta Meta) error {
	if c.Group == nil {
		c.Group = Alone{}
	}
	if c.Held == nil {
		c.Held = func() error { return nil }
	}
	if c.Step < 0 || c.Shards < 1 || c.Shard >= c.Shards {
		// The same on all ranks or a programming error: nothing was exchanged yet.
		return fmt.Errorf("checkpoint: step %d, shard %d of %d", c.Step, c.Shard, c.Shards)
	}
	s := saver{c: c, tmp: filepath.Join(c.Dir, StepDir(c.Step)+tmpSuffix)}

	var local error
	if c.Group.Rank() == 0 {
		local = s.prepare()
	}
	if err := s.agree(ctx, verdictOf(0, local), local); err != nil {
		return err
	}
	crash("prepared")

	r := report{Step: c.Step, Shard: c.Shard, Shards: c.Shards}
	local = s.writeShard(ctx, &r, model, optimizer)
	if local != nil {
		r.Err = local.Error() + hint(local)
		if errors.Is(local, os.ErrNotExist) {
			// Rank 0 made the folder a moment ago.
			r.Err += notShared
		}
	}
	crash("shard written")
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	all, err := c.Group.Gather(ctx, b)
	if err != nil {
		return fmt.Errorf("checkpoint of step %d: gathering the ranks' reports: %w", c.Step, err)
	}
	crash("gathered")
	var v verdict
	if c.Group.Rank() == 0 {
		v = s.finish(ctx, all, meta)
	}
	return s.agree(ctx, v, local)
}

type saver struct {
	c   SaveConfig
	tmp string
}

// agree gives every member rank 0's verdict.
func (s *saver) agree(ctx context.Context, v verdict, local error) error {
	var b []byte
	var err error
	if s.c.Group.Rank() == 0 {
		if b, err = json.Marshal(v); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
	}
	if b, err = s.c.Group.Broadcast(ctx, b); err != nil {
		return fmt.Errorf("checkpoint of step %d: waiting for rank 0: %w", s.c.Step, err)
	}
	v = verdict{}
	if err := json.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("checkpoint of step %d: rank 0's answer: %w", s.c.Step, err)
	}
	if len(v.Failed) > 0 {
		return &SaveError{Step: s.c.Step, Dir: s.c.Dir, Failed: v.Failed, local: local}
	}
	if v.Prune != "" {
		return fmt.Errorf("checkpoint of step %d is saved: %w: %s", s.c.Step, ErrPrune, v.Prune)
	}
	return nil
}

func verdictOf(rank int, err error) verdict {
	if err == nil {
		return verdict{}
	}
	return verdict{Failed: []RankFailure{{rank, err.Error() + hint(err)}}}
}

func (s *saver) prepare() error {
	if err := s.c.Held(); err != nil {
		return err
	}
	if err := os.MkdirAll(s.c.Dir, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(s.tmp); err != nil {
		return err
	}
	return os.Mkdir(s.tmp, 0o755)
}

func (s *saver) writeShard(ctx context.Context, r *report, model, optimizer []Tensor) error {
	if s.c.Shard < 0 {
		return nil
	}
	if err := s.c.Held(); err != nil {
		return err
	}
	r.Sizes = make(map[string]int64, len(model))
	for _, t := range model {
		r.Sizes[t.Name] = int64(len(t.Bytes))
	}
	for _, t := range optimizer {
		r.Optim = append(r.Optim, t.Name)
	}
	for _, part := range []struct {
		kind    string
		tensors []Tensor
	}{{"model", model}, {"optimizer", optimizer}} {
		path := filepath.Join(s.tmp, shardName(part.kind, s.c.Shard, s.c.Shards))
		sum, err := writeTensors(ctx, path, part.tensors)
		if err != nil {
			return err
		}
		r.Files = append(r.Files, sum)
		crash(part.kind + " written")
	}
	return nil
}

// finish turns the shards into a checkpoint, or removes them.
func (s *saver) finish(ctx context.Context, all [][]byte, meta Meta) verdict {
	v := s.commit(ctx, all, meta)
	if len(v.Failed) > 0 {
		if s.c.Held() == nil {
			_ = os.RemoveAll(s.tmp) // the failure itself is what to tell; Clean removes the rest
		}
		return v
	}
	err := s.c.Held()
	if err == nil {
		err = s.prune()
	}
	if err != nil {
		v.Prune = err.Error()
	}
	return v
}

func (s *saver) commit(ctx context.Context, all [][]byte, meta Meta) (v verdict) {
	reports := make([]report, len(all))
	for i, b := range all {
		if err := json.Unmarshal(b, &reports[i]); err != nil {
			reports[i].Err = fmt.Sprintf("its report cannot be read: %v", err)
		}
		if reports[i].Err != "" {
			v.Failed = append(v.Failed, RankFailure{i, reports[i].Err})
		}
	}
	if len(v.Failed) > 0 {
		return v
	}
	m := Manifest{Program: meta.Program, Step: s.c.Step, Job: meta.Job, Seed: meta.Seed,
		DataPosition: meta.DataPosition, Shards: s.c.Shards}
	fileOf, total, failed := s.collect(reports, &m)
	if failed != nil {
		return verdict{Failed: failed}
	}
	return verdictOf(0, s.seal(ctx, &m, meta, fileOf, total))
}

// collect checks the reports against each other and against the folder.
func (s *saver) collect(reports []report, m *Manifest) (fileOf map[string]string, total int64, failed []RankFailure) {
	fail := func(rank int, format string, a ...any) {
		failed = append(failed, RankFailure{rank, fmt.Sprintf(format, a...)})
	}
	fileOf = map[string]string{}
	writer := map[int]int{}
	optim := map[string]int{}
	for rank, r := range reports {
		if r.Step != s.c.Step || r.Shards != s.c.Shards {
			fail(rank, "saves step %d in %d shards, rank 0 saves step %d in %d", r.Step, r.Shards, s.c.Step, s.c.Shards)
		}
		if r.Shard < 0 {
			continue
		}
		if other, ok := writer[r.Shard]; ok {
			fail(rank, "writes shard %d, as rank %d does", r.Shard, other)
			continue
		}
		writer[r.Shard] = rank
		for _, f := range r.Files {
			path := filepath.Join(s.tmp, f.Name)
			switch st, err := os.Stat(path); {
			case err != nil:
				fail(rank, "wrote %s, which rank 0 does not see (%v)%s", path, err, notShared)
			case st.Size() != f.Bytes:
				fail(rank, "wrote %d bytes to %s, rank 0 sees %d", f.Bytes, path, st.Size())
			}
		}
		m.Files = append(m.Files, r.Files...)
		for _, name := range sortedKeys(r.Sizes) {
			if other, ok := fileOf[name]; ok {
				fail(rank, "tensor %q is in %s too", name, other)
			}
			fileOf[name] = shardName("model", r.Shard, s.c.Shards)
			total += r.Sizes[name]
		}
		for _, name := range r.Optim {
			if other, ok := optim[name]; ok {
				fail(rank, "optimizer tensor %q is saved by rank %d too", name, other)
			}
			optim[name] = rank
		}
	}
	for i := range s.c.Shards {
		if _, ok := writer[i]; !ok {
			fail(0, "no rank wrote shard %d of %d", i, s.c.Shards)
		}
	}
	return fileOf, total, failed
}

// seal writes what rank 0 writes and publishes the folder.
func (s *saver) seal(ctx context.Context, m *Manifest, meta Meta, fileOf map[string]string, total int64) error {
	put := func(name string, b []byte) error {
		sum, err := writeSum(ctx, filepath.Join(s.tmp, name), b)
		m.Files = append(m.Files, sum)
		crash(name + " written")
		return err
	}
	if s.c.Shards > 1 {
		b, err := encodeIndex(total, fileOf)
		if err == nil {
			err = put(IndexName, b)
		}
		if err != nil {
			return err
		}
	}
	if len(meta.Config) > 0 {
		if err := put(ConfigName, meta.Config); err != nil {
			return err
		}
	}
	for k, v := range meta.Extra {
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("meta.Extra[%q]: %w", k, err)
		}
		if m.Extra == nil {
			m.Extra = map[string]json.RawMessage{}
		}
		m.Extra[k] = b
	}
	slices.SortFunc(m.Files, func(a, b FileSum) int { return strings.Compare(a.Name, b.Name) })
	b, err := m.encode()
	if err != nil {
		return err
	}
	if err := put(ManifestName, b); err != nil {
		return err
	}
	if err := durable.SyncDir(s.tmp); err != nil {
		return err
	}
	crash("folder synced")
	if err := s.c.Held(); err != nil {
		return err
	}
	if err := publish(s.tmp, filepath.Join(s.c.Dir, StepDir(s.c.Step))); err != nil {
		return err
	}
	crash("renamed")
	if err := durable.SyncDir(s.c.Dir); err != nil {
		return err
	}
	crash("parent synced")
	return nil
}

// prune removes the oldest checkpoints beyond Keep, never the one just written.
func (s *saver) prune() error {
	if s.c.Keep <= 0 {
		return nil
	}
	found, _, err := steps(s.c.Dir)
	if err != nil {
		return err
	}
	old := slices.DeleteFunc(found, func(n int) bool {
		return n == s.c.Step || n == 0 && !s.c.PruneStart
	})
	slices.Sort(old)
	for len(old) > s.c.Keep-1 {
		if err := remove(s.c.Dir, old[0]); err != nil {
			return err
		}
		crash("pruned one")
		old = old[1:]
	}
	return nil
}
