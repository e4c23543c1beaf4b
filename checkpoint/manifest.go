package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Names of the files in a checkpoint's folder.
const (
	ManifestName = "manifest.json"
	ConfigName   = "config.json"
	IndexName    = "model.safetensors.index.json"
)

// manifestVersion is raised when an older program could misread the folder.
const manifestVersion = 1

// Meta is what a checkpoint says beside its tensors. Rank 0's is written.
type Meta struct {
	Job  string
	Seed int64
	// DataPosition counts the sequences of the global batch consumed so far: where
	// the next step's data starts.
	DataPosition int64
	// Config is written as config.json, byte for byte (the model's Hugging Face
	// configuration). Empty: no such file.
	Config []byte
	// Program names what wrote it: version, commit.
	Program string
	// Extra is anything else that encodes as JSON.
	Extra map[string]any
}

// FileSum is one file of a checkpoint.
type FileSum struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Manifest is manifest.json. A checkpoint is what its manifest says, or it is not loaded.
type Manifest struct {
	Version      int                        `json:"version"`
	Program      string                     `json:"program"`
	Step         int                        `json:"step"`
	Job          string                     `json:"job"`
	Seed         int64                      `json:"seed"`
	DataPosition int64                      `json:"data_position"`
	Shards       int                        `json:"shards"`
	Files        []FileSum                  `json:"files"`
	Extra        map[string]json.RawMessage `json:"extra,omitempty"`
	// Self is the SHA-256 of the file's text with 64 zeros in this field's place.
	Self string `json:"self_sha256"`
}

var (
	zeroSum  = strings.Repeat("0", 2*sha256.Size)
	selfTail = `"self_sha256": "%s"` + "\n}\n"
)

// encode returns the text of the file. A digit flipped anywhere in it, the seed
// or the data position too, is found by decodeManifest.
func (m Manifest) encode() ([]byte, error) {
	m.Version = manifestVersion
	m.Self = zeroSum
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ManifestName, err)
	}
	b = append(b, '\n')
	sum := sha256.Sum256(b)
	tail := fmt.Sprintf(selfTail, zeroSum)
	if !bytes.HasSuffix(b, []byte(tail)) {
		return nil, fmt.Errorf("%s: its last field is not its checksum", ManifestName)
	}
	return append(b[:len(b)-len(tail)], fmt.Sprintf(selfTail, hex.EncodeToString(sum[:]))...), nil
}

func decodeManifest(b []byte) (*Manifest, error) {
	// The version comes first: a newer form may have another way to check itself.
	var v struct{ Version int }
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("torn or damaged: %w", err)
	}
	if v.Version > manifestVersion {
		return nil, fmt.Errorf("version %d, this program reads up to %d: load it with the program that wrote it", v.Version, manifestVersion)
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("torn or damaged: %w", err)
	}
	tail := fmt.Sprintf(selfTail, m.Self)
	if len(m.Self) != len(zeroSum) || !bytes.HasSuffix(b, []byte(tail)) {
		return nil, errors.New("torn or damaged: no checksum at its end")
	}
	h := sha256.New()
	h.Write(b[:len(b)-len(tail)])
	fmt.Fprintf(h, selfTail, zeroSum)
	if got := hex.EncodeToString(h.Sum(nil)); got != m.Self {
		return nil, errors.New("damaged: its text does not match its own checksum")
	}
	if m.Version < 1 || m.Step < 0 || m.Shards < 1 {
		return nil, fmt.Errorf("version %d, step %d, %d shards are not a checkpoint's", m.Version, m.Step, m.Shards)
	}
	seen := map[string]bool{}
	for _, f := range m.Files {
		if f.Name == "" || filepath.Base(f.Name) != f.Name || f.Name == "." || f.Name == ".." || seen[f.Name] {
			return nil, fmt.Errorf("file name %q", f.Name)
		}
		seen[f.Name] = true
	}
	return &m, nil
}

// shardName returns the file of one shard as Hugging Face names it; shard counts from 0.
func shardName(kind string, shard, shards int) string {
	if shards == 1 {
		return kind + ".safetensors"
	}
	return fmt.Sprintf("%s-%05d-of-%05d.safetensors", kind, shard+1, shards)
}

// encodeIndex returns model.safetensors.index.json: which shard holds which tensor.
func encodeIndex(totalBytes int64, fileOf map[string]string) ([]byte, error) {
	b, err := json.MarshalIndent(struct {
		Metadata  map[string]int64  `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}{map[string]int64{"total_size": totalBytes}, fileOf}, "", "  ")
	return append(b, '\n'), err
}
