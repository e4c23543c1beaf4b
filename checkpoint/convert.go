package checkpoint

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pipetrain/pipetrain/durable"
)

// ConvertConfig says how a checkpoint is written anew.
type ConvertConfig struct {
	Shards int    // files of weights; 0: one
	DType  string // of the weights: "F32", "BF16"; empty: as they are. Another type than before leaves the optimizer out.
	// WeightsOnly leaves the optimizer's state and the manifest out: what remains is a
	// folder as Hugging Face tools make it, which no run continues from.
	WeightsOnly bool
}

// Convert writes an open checkpoint as the folder out, which must not exist. Tensors
// are copied in parts, never held as a whole. A conversion that fails leaves nothing.
func Convert(ctx context.Context, c *Checkpoint, out string, to ConvertConfig) (err error) {
	to.Shards = max(1, to.Shards)
	names := c.Model.Names()
	for _, name := range names {
		if t, _ := c.Model.Info(name); to.DType != "" && t.DType != to.DType {
			to.WeightsOnly = true // the optimizer's state belongs to the weights as they were
		}
	}
	if c.Manifest.Shards == 0 {
		to.WeightsOnly = true // of another tool
	}
	if to.Shards > len(names) {
		return fmt.Errorf("%d shards of %d tensors: some would be empty", to.Shards, len(names))
	}
	if _, err := os.Lstat(out); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is there already; name a folder that is not", out)
	}
	tmp := out + tmpSuffix
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(tmp)
		}
	}()
	m := c.Manifest
	m.Files, m.Shards = nil, to.Shards
	if err := convertAll(ctx, c, &m, tmp, to); err != nil {
		return err
	}
	if err := durable.SyncDir(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, out); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(out))
}

// convertAll writes the files of the new folder.
func convertAll(ctx context.Context, c *Checkpoint, m *Manifest, dir string, to ConvertConfig) error {
	fileOf, total := map[string]string{}, int64(0)
	kinds := []struct {
		name  string
		set   *Set
		dtype string
	}{{"model", c.Model, to.DType}, {"optimizer", c.Optimizer, ""}}
	if to.WeightsOnly {
		kinds = kinds[:1]
	}
	for _, k := range kinds {
		for i, tensors := range share(k.set, to.Shards) {
			name := shardName(k.name, i, to.Shards)
			sum, bytes, err := writeConverted(ctx, filepath.Join(dir, name), k.set, tensors, k.dtype)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			m.Files = append(m.Files, sum)
			if k.name == "model" {
				total += bytes
				for _, t := range tensors {
					fileOf[t.Name] = name
				}
			}
		}
	}
	small := map[string][]byte{}
	var err error
	if to.Shards > 1 {
		if small[IndexName], err = encodeIndex(total, fileOf); err != nil {
			return err
		}
	}
	if len(c.Config) > 0 {
		if small[ConfigName], err = withDType(c.Config, to.DType); err != nil {
			return err
		}
	}
	return writeSmall(ctx, dir, m, small, to.WeightsOnly)
}

// writeSmall writes the files beside the tensors, the manifest last.
func writeSmall(ctx context.Context, dir string, m *Manifest, small map[string][]byte, weightsOnly bool) error {
	for _, name := range sortedKeys(small) {
		sum, err := writeSum(ctx, filepath.Join(dir, name), small[name])
		if err != nil {
			return err
		}
		m.Files = append(m.Files, sum)
	}
	if weightsOnly {
		return nil
	}
	slices.SortFunc(m.Files, func(a, b FileSum) int { return strings.Compare(a.Name, b.Name) })
	b, err := m.encode()
	if err != nil {
		return err
	}
	_, err = writeSum(ctx, filepath.Join(dir, ManifestName), b)
	return err
}

// share divides the tensors of a set, by name, into parts of about the same size.
func share(s *Set, parts int) [][]TensorInfo {
	var all []TensorInfo
	total := int64(0)
	for _, name := range s.Names() {
		t, _ := s.Info(name)
		all = append(all, t)
		total += t.End - t.Begin
	}
	out := make([][]TensorInfo, parts)
	at, done := 0, int64(0)
	for i := range parts {
		// Each of those that follow gets one, as long as there are enough.
		for at < len(all) && (len(out[i]) == 0 || done < total*int64(i+1)/int64(parts) && len(all)-at > parts-1-i) {
			out[i] = append(out[i], all[at])
			done += all[at].End - all[at].Begin
			at++
		}
	}
	out[parts-1] = append(out[parts-1], all[at:]...)
	return out
}

// writeConverted writes one safetensors file of tensors of a set.
func writeConverted(ctx context.Context, path string, s *Set, infos []TensorInfo, dtype string) (FileSum, int64, error) {
	var tensors []Tensor
	rows := map[string]func(from, to int) ([]byte, error){}
	for _, t := range infos {
		read, become := func(from, to int) ([]byte, error) { return s.Rows(t.Name, from, to) }, t.DType
		if dtype != "" && dtype != t.DType {
			from := t.DType
			if from != "F32" && from != "BF16" || dtype != "F32" && dtype != "BF16" {
				return FileSum{}, 0, fmt.Errorf("tensor %q is %s: of F32 and BF16 one is made of the other, no more", t.Name, from)
			}
			whole := read
			become, read = dtype, func(from, to int) ([]byte, error) {
				b, err := whole(from, to)
				return recode(b, dtype), err
			}
		}
		tensors, rows[t.Name] = append(tensors, Tensor{Name: t.Name, DType: become, Shape: t.Shape}), read
	}
	head, order, err := encodeShapes(map[string]string{"format": "pt"}, tensors)
	if err != nil {
		return FileSum{}, 0, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return FileSum{}, 0, err
	}
	h := sha256.New()
	w := bufio.NewWriterSize(io.MultiWriter(f, h), 1<<20)
	n, err := writeStream(ctx, w, head, order, rows)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return FileSum{filepath.Base(path), int64(len(head)) + n, hex.EncodeToString(h.Sum(nil))}, n, err
}

// writeStream writes a header and its tensors, and returns the bytes of the latter.
func writeStream(ctx context.Context, w io.Writer, head []byte, order []Tensor, rows map[string]func(from, to int) ([]byte, error)) (n int64, err error) {
	if _, err := w.Write(head); err != nil {
		return 0, err
	}
	for _, t := range order {
		bytes, err := tensorBytes(t.DType, t.Shape)
		if err != nil {
			return n, err
		}
		if err := eachChunk(ctx, TensorInfo{Shape: t.Shape, End: bytes}, func(from, to int) error {
			b, err := rows[t.Name](from, to)
			if err == nil {
				_, err = w.Write(b)
			}
			n += int64(len(b))
			return err
		}); err != nil {
			return n, err
		}
	}
	return n, nil
}

// recode turns F32 into BF16, rounded to nearest even, or BF16 into F32.
func recode(b []byte, dtype string) []byte {
	if dtype == "F32" {
		out := make([]byte, 2*len(b))
		for i := 0; i < len(b); i += 2 {
			copy(out[2*i+2:], b[i:i+2])
		}
		return out
	}
	out := make([]byte, len(b)/2)
	for i := range len(b) / 4 {
		x := binary.LittleEndian.Uint32(b[4*i:])
		if f := math.Float32frombits(x); f != f {
			x |= 1 << 22 // stays a NaN where its last bits go
		} else {
			x += 0x7fff + x>>16&1
		}
		binary.LittleEndian.PutUint16(out[2*i:], uint16(x>>16))
	}
	return out
}

// withDType returns a config.json that says which type its weights have.
func withDType(config []byte, dtype string) ([]byte, error) {
	name, ok := map[string]string{"F32": "float32", "BF16": "bfloat16"}[dtype]
	if !ok {
		return config, nil
	}
	var c map[string]any
	d := json.NewDecoder(strings.NewReader(string(config)))
	d.UseNumber()
	if err := d.Decode(&c); err != nil {
		return nil, fmt.Errorf("%s: %w", ConfigName, err)
	}
	c["torch_dtype"] = name
	b, err := json.MarshalIndent(c, "", "  ")
	return append(b, '\n'), err
}
