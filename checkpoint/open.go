package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Want selects a checkpoint. The zero value is the newest that verifies.
type Want struct {
	Explicit bool // Step and no other
	Step     int
	// Quick checks the manifest and the files' sizes and headers but not their
	// checksums: for the other ranks, once rank 0 opened the same step in full.
	Quick bool
}

// AtStep wants the checkpoint of exactly this step.
func AtStep(step int) Want { return Want{Explicit: true, Step: step} }

// Skipped is a checkpoint that was passed over.
type Skipped struct {
	Path   string
	Reason error
}

func (s Skipped) String() string { return fmt.Sprintf("%s skipped: %v", s.Path, s.Reason) }

// ErrNone says that there is no checkpoint to load.
var ErrNone = errors.New("no checkpoint to load")

// Checkpoint is an open checkpoint whose files were verified. The tensors can
// be read by name whatever shard they lie in, so a job may load it under
// another number of stages than it was saved under.
type Checkpoint struct {
	Path     string
	Manifest Manifest
	// Config is config.json; nil when there is none.
	Config []byte
	// Model and Optimizer are the tensors.
	Model, Optimizer *Set
}

// Open opens the newest checkpoint in dir whose manifest and files verify, and
// names those it passed over, newest first. With Want.Explicit nothing else than
// that step is tried. It is an error (errors.Is ErrNone) when none loads.
func Open(dir string, want Want) (*Checkpoint, []Skipped, error) {
	return OpenContext(context.Background(), dir, want)
}

// OpenContext is Open that can be ended while it reads.
func OpenContext(ctx context.Context, dir string, want Want) (*Checkpoint, []Skipped, error) {
	found, unfinished, err := steps(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w: the folder %s does not exist", ErrNone, dir)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("checkpoints: %w", err)
	}
	var skipped []Skipped
	for _, name := range unfinished {
		skipped = append(skipped, Skipped{filepath.Join(dir, name), errors.New("unfinished: its save did not end")})
	}
	slices.Sort(found)
	slices.Reverse(found)
	if want.Explicit {
		if !slices.Contains(found, want.Step) {
			return nil, skipped, fmt.Errorf("%w: step %d is not in %s, which has %s", ErrNone, want.Step, dir, list(found))
		}
		found = []int{want.Step}
	}
	for _, step := range found {
		path := filepath.Join(dir, StepDir(step))
		c, err := openAt(ctx, path, step, want.Quick)
		if err == nil {
			return c, skipped, nil
		}
		if ctx.Err() != nil {
			return nil, skipped, fmt.Errorf("checkpoint %s: %w", path, context.Cause(ctx))
		}
		skipped = append(skipped, Skipped{path, err})
	}
	var why strings.Builder
	for _, s := range skipped {
		fmt.Fprintf(&why, "; %s", s)
	}
	return nil, skipped, fmt.Errorf("%w in %s%s", ErrNone, dir, why.String())
}

func list(steps []int) string {
	if len(steps) == 0 {
		return "none"
	}
	return strings.Trim(fmt.Sprint(steps), "[]")
}

// openAt verifies and opens one checkpoint. A negative step is whatever the manifest says.
func openAt(ctx context.Context, path string, step int, quick bool) (*Checkpoint, error) {
	b, err := readSmall(filepath.Join(path, ManifestName), maxHeader)
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ManifestName, err)
	}
	if step >= 0 && m.Step != step {
		return nil, fmt.Errorf("its manifest is of step %d: the folder was renamed or copied", m.Step)
	}
	if err := verify(ctx, path, m, quick); err != nil {
		return nil, err
	}
	c := &Checkpoint{Path: path, Manifest: *m}
	if m.has(ConfigName) {
		if c.Config, err = readSmall(filepath.Join(path, ConfigName), maxHeader); err != nil {
			return nil, err
		}
	}
	if c.Model, err = openSet(path, m, "model"); err != nil {
		return nil, err
	}
	if c.Optimizer, err = openSet(path, m, "optimizer"); err != nil {
		c.Model.Close()
		return nil, err
	}
	return c, nil
}

func (m *Manifest) has(name string) bool {
	return slices.ContainsFunc(m.Files, func(f FileSum) bool { return f.Name == name })
}

// verify compares the folder with its manifest. Other files than safetensors may
// be added to a checkpoint (a tokenizer, a note); an extra safetensors file is
// refused, as other tools would load it together with ours.
func verify(ctx context.Context, path string, m *Manifest, quick bool) error {
	faults, err := faultsOf(ctx, path, m, quick)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range faults {
		errs = append(errs, f)
	}
	return errors.Join(errs...)
}

// FaultError is a file of a checkpoint that is not as its manifest says.
type FaultError struct {
	File   string
	Reason string
}

func (f FaultError) Error() string { return f.File + " " + f.Reason }

// faultsOf lists the files that are not as the manifest says, by name.
func faultsOf(ctx context.Context, path string, m *Manifest, quick bool) (faults []FaultError, err error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		if (strings.HasSuffix(name, ".safetensors") || name == IndexName) && !m.has(name) {
			faults = append(faults, FaultError{name, "is not in its manifest"})
		}
	}
	var read []FileSum // those of the right size, whose content is to be judged
	for _, f := range m.Files {
		st, err := os.Stat(filepath.Join(path, f.Name))
		switch {
		case errors.Is(err, os.ErrNotExist):
			faults = append(faults, FaultError{f.Name, "is missing"})
		case err != nil:
			return nil, err
		case !st.Mode().IsRegular():
			faults = append(faults, FaultError{f.Name, "is not a regular file"})
		case st.Size() != f.Bytes:
			faults = append(faults, FaultError{f.Name, fmt.Sprintf("has %d bytes, its manifest says %d", st.Size(), f.Bytes)})
		default:
			read = append(read, f)
		}
	}
	if !quick {
		damaged, err := damagedOf(ctx, path, read)
		if err != nil {
			return nil, err
		}
		faults = append(faults, damaged...)
	}
	slices.SortFunc(faults, func(a, b FaultError) int { return strings.Compare(a.File, b.File) })
	return faults, nil
}

// damagedOf compares the checksums of files.
func damagedOf(ctx context.Context, path string, files []FileSum) (faults []FaultError, err error) {
	sums, errs := make([]FileSum, len(files)), make([]error, len(files))
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, f := range files {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			sums[i], errs[i] = fileSum(ctx, filepath.Join(path, f.Name))
		})
	}
	wg.Wait()
	for i, f := range files {
		if errs[i] == nil && sums[i] != f {
			faults = append(faults, FaultError{f.Name, "is damaged: its SHA-256 is not the manifest's"})
		}
	}
	return faults, errors.Join(errs...)
}

// Tensor returns a model tensor as float32 with its shape, from whatever shard.
func (c *Checkpoint) Tensor(name string) ([]float32, []int, error) { return c.Model.Float32(name) }

// OptimizerTensor is Tensor for the optimizer's state.
func (c *Checkpoint) OptimizerTensor(name string) ([]float32, []int, error) {
	return c.Optimizer.Float32(name)
}

// Close closes the files.
func (c *Checkpoint) Close() error { return errors.Join(c.Model.Close(), c.Optimizer.Close()) }
