package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// Set is the tensors of one or more safetensors files that belong together. Its
// methods may be called from several goroutines.
type Set struct {
	path  string
	files []*File
	of    map[string]*File
}

func openSet(path string, m *Manifest, kind string) (*Set, error) {
	var names []string
	for i := range m.Shards {
		name := shardName(kind, i, m.Shards)
		if !m.has(name) {
			return nil, fmt.Errorf("%s is not in its manifest", name)
		}
		names = append(names, name)
	}
	return openFiles(path, names)
}

// OpenWeights opens the model in a folder as Hugging Face tools leave it, with
// no manifest: model.safetensors, or shards with their index.
func OpenWeights(path string) (*Set, error) {
	single := filepath.Join(path, shardName("model", 0, 1))
	if _, err := os.Stat(single); err == nil {
		return openFiles(path, []string{filepath.Base(single)})
	}
	b, err := readSmall(filepath.Join(path, IndexName), maxHeader)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s holds neither %s nor %s", path, filepath.Base(single), IndexName)
	}
	if err != nil {
		return nil, err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &index); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(path, IndexName), err)
	}
	var names []string
	for _, tensor := range sortedKeys(index.WeightMap) {
		name := index.WeightMap[tensor]
		if filepath.Base(name) != name || name == ".." || name == "." {
			return nil, fmt.Errorf("%s: file name %q", filepath.Join(path, IndexName), name)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	s, err := openFiles(path, names)
	if err != nil {
		return nil, err
	}
	for _, tensor := range sortedKeys(index.WeightMap) {
		if s.of[tensor] == nil {
			s.Close()
			return nil, fmt.Errorf("%s names tensor %q, which no shard holds", filepath.Join(path, IndexName), tensor)
		}
	}
	return s, nil
}

func openFiles(path string, names []string) (*Set, error) {
	s := &Set{path: path, of: map[string]*File{}}
	for _, name := range names {
		f, err := OpenSafetensors(filepath.Join(path, name))
		if err != nil {
			s.Close()
			return nil, err
		}
		s.files = append(s.files, f)
		for _, t := range f.names {
			if s.of[t] != nil {
				s.Close()
				return nil, fmt.Errorf("tensor %q is in two files of %s, %s is the second", t, path, name)
			}
			s.of[t] = f
		}
	}
	return s, nil
}

// Names returns the tensors' names, sorted.
func (s *Set) Names() []string { return sortedKeys(s.of) }

// Info describes a tensor; ok is false when there is none of this name.
func (s *Set) Info(name string) (info TensorInfo, ok bool) {
	f, ok := s.of[name]
	if !ok {
		return TensorInfo{}, false
	}
	return f.Info(name)
}

// Rows returns the bytes of rows [from, to) of a tensor, to < 0 meaning its end.
func (s *Set) Rows(name string, from, to int) ([]byte, error) {
	f, ok := s.of[name]
	if !ok {
		return nil, fmt.Errorf("%s has no tensor %q: is it of another model?", s.path, name)
	}
	b, err := f.ReadTensor(name, from, to)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.path, err)
	}
	return b, nil
}

// Float32 returns a tensor's values and shape. F32 comes bit for bit, BF16
// exactly; other types are an error, as they would be rounded.
func (s *Set) Float32(name string) ([]float32, []int, error) {
	b, err := s.Rows(name, 0, -1)
	if err != nil {
		return nil, nil, err
	}
	info, _ := s.Info(name)
	var out []float32
	switch info.DType {
	case "F32":
		out = make([]float32, len(b)/4)
		for i := range out {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case "BF16":
		out = make([]float32, len(b)/2)
		for i := range out {
			out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16)
		}
	default:
		return nil, nil, fmt.Errorf("%s: tensor %q is %s, which float32 does not hold exactly", s.path, name, info.DType)
	}
	return out, slices.Clone(info.Shape), nil
}

// Close closes the files.
func (s *Set) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
