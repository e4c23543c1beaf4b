package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"os"
	"testing"
)

// benchBytes is the model's share of a benchmark's checkpoint; the optimizer's is twice that.
const benchBytes = 32 << 20

func benchTensors() (model, optimizer []Tensor) {
	x := Tensor{Name: "w", DType: "F32", Shape: []int{benchBytes / 4}, Bytes: bytes.Repeat([]byte{1, 2, 3, 5}, benchBytes/4)}
	y := x
	y.Name = "v"
	return []Tensor{x}, []Tensor{x, y}
}

// BenchmarkSave is compared with BenchmarkWrite, the same bytes written and
// synced with no checksum, and BenchmarkSHA256, the checksum alone.
func BenchmarkSave(b *testing.B) {
	dir := b.TempDir()
	model, optimizer := benchTensors()
	b.SetBytes(3 * benchBytes)
	for b.Loop() {
		if err := Save(b.Context(), SaveConfig{Dir: dir, Step: 1, Shards: 1}, model, optimizer, Meta{}); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := os.RemoveAll(dir); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkWrite(b *testing.B) {
	path := b.TempDir() + "/file"
	model, _ := benchTensors()
	b.SetBytes(3 * benchBytes)
	for b.Loop() {
		f, err := os.Create(path)
		if err != nil {
			b.Fatal(err)
		}
		for range 3 {
			if _, err := f.Write(model[0].Bytes); err != nil {
				b.Fatal(err)
			}
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}

func BenchmarkSHA256(b *testing.B) {
	model, _ := benchTensors()
	b.SetBytes(benchBytes)
	for b.Loop() {
		sha256.Sum256(model[0].Bytes)
	}
}

func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	model, optimizer := benchTensors()
	if err := Save(b.Context(), SaveConfig{Dir: dir, Step: 1, Shards: 1}, model, optimizer, Meta{}); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(3 * benchBytes)
	for b.Loop() {
		c, _, err := Open(dir, Want{})
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}
