package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Entry is a checkpoint in a folder of them.
type Entry struct {
	Path   string
	Step   int
	Bytes  int64 // of the files that the manifest names
	Shards int
	Saved  time.Time // when its manifest was written
	// Wrong says why it cannot be loaded; empty where manifest and sizes agree.
	Wrong string
}

// List returns the checkpoints of a folder by step, those that are damaged too.
// Checksums are not compared.
func List(dir string) ([]Entry, error) {
	found, unfinished, err := steps(dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(found)
	var out []Entry
	for _, step := range found {
		e := Entry{Path: filepath.Join(dir, StepDir(step)), Step: step}
		if st, err := os.Stat(filepath.Join(e.Path, ManifestName)); err == nil {
			e.Saved = st.ModTime()
		}
		c, err := openAt(context.Background(), e.Path, step, true)
		if err != nil {
			e.Wrong = err.Error()
		} else {
			e.Shards = c.Manifest.Shards
			for _, f := range c.Manifest.Files {
				e.Bytes += f.Bytes
			}
			c.Close()
		}
		out = append(out, e)
	}
	for _, name := range unfinished {
		out = append(out, Entry{Path: filepath.Join(dir, name), Step: -1, Wrong: "unfinished: its save did not end"})
	}
	return out, nil
}

// Verify reads all files of one checkpoint and lists what is not as its manifest says.
func Verify(ctx context.Context, path string) ([]FaultError, error) {
	b, err := readSmall(filepath.Join(path, ManifestName), maxHeader)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s is no checkpoint: it has no %s", path, ManifestName)
	}
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(b)
	if err != nil {
		return []FaultError{{ManifestName, "is " + err.Error()}}, nil
	}
	faults, err := faultsOf(ctx, path, m, false)
	if err != nil || len(faults) > 0 {
		return faults, err
	}
	// Sound files may still not be a checkpoint: a shard that lacks, a name that is there twice.
	c, err := openAt(ctx, path, -1, true)
	if err != nil {
		return []FaultError{{ManifestName, err.Error()}}, nil
	}
	return nil, c.Close()
}

// OpenPath opens a checkpoint, or the model in a folder of other tools, which has no
// manifest: its Manifest is zero and its Optimizer empty. Full compares checksums where
// there are some.
func OpenPath(ctx context.Context, path string, full bool) (*Checkpoint, error) {
	if _, err := os.Stat(filepath.Join(path, ManifestName)); err == nil {
		c, err := openAt(ctx, path, -1, !full)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return c, nil
	}
	model, err := OpenWeights(path)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{Path: path, Model: model, Optimizer: &Set{path: path}}
	if c.Config, err = readSmall(filepath.Join(path, ConfigName), maxHeader); err != nil && !errors.Is(err, os.ErrNotExist) {
		model.Close()
		return nil, err
	}
	return c, nil
}
