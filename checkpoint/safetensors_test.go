package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// f32 makes an F32 tensor.
func f32(name string, shape []int, values ...float32) Tensor {
	b := make([]byte, 0, 4*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return Tensor{Name: name, DType: "F32", Shape: shape, Bytes: b}
}

// rawFile makes the bytes of a safetensors file of any header.
func rawFile(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func read(b []byte) (*File, error) { return ReadSafetensors(bytes.NewReader(b), int64(len(b))) }

// TestPythonFile reads a file that the Python package wrote and writes the same
// tensors again: the result must be the same to the byte.
func TestPythonFile(t *testing.T) {
	path := filepath.Join("testdata", "python.safetensors")
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := OpenSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Metadata["format"] != "pt" || len(f.Names()) != 14 {
		t.Fatalf("metadata %v, %d tensors", f.Metadata, len(f.Names()))
	}
	var tensors []Tensor
	for _, name := range f.Names() {
		info, _ := f.Info(name)
		b, err := f.ReadTensor(name, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, Tensor{name, info.DType, info.Shape, b})
	}
	slices.Reverse(tensors) // the order given must not matter
	var out bytes.Buffer
	n, err := WriteSafetensors(&out, f.Metadata, tensors)
	if err != nil || n != int64(len(golden)) || !bytes.Equal(out.Bytes(), golden) {
		t.Errorf("%d bytes, error %v:\n%q\nwant %d bytes:\n%q", n, err, out.Bytes(), len(golden), golden)
	}

	s, err := openFiles("testdata", []string{"python.safetensors"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, shape, err := s.Float32("model.embed_tokens.weight")
	if err != nil || !slices.Equal(shape, []int{5, 4}) {
		t.Fatal(shape, err)
	}
	for i, v := range got {
		if v != float32(i)/7 {
			t.Errorf("element %d is %v", i, v)
		}
	}
	norm, _, err := s.Float32("model.norm.weight")
	if err != nil || math.Float32bits(norm[1]) != 1<<31 || !math.IsInf(float64(norm[2]), 1) || math.Float32bits(norm[3]) != 1 {
		t.Error(norm, err)
	}
	if _, _, err := s.Float32("b.f64"); err == nil {
		t.Error("F64 came as float32, rounded")
	}
	if _, _, err := s.Float32("model.lm_head"); err == nil || !strings.Contains(err.Error(), `no tensor "model.lm_head"`) {
		t.Error(err)
	}
}

func TestReadRows(t *testing.T) {
	var b bytes.Buffer
	if _, err := WriteSafetensors(&b, nil, []Tensor{
		f32("w", []int{3, 2}, 0, 1, 2, 3, 4, 5), f32("s", nil, 9), f32("none", []int{0, 4}), f32("flat", []int{4, 0}),
	}); err != nil {
		t.Fatal(err)
	}
	f, err := read(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		from, to int
		want     Tensor
		ok       bool
	}{
		{"w", 0, -1, f32("", nil, 0, 1, 2, 3, 4, 5), true},
		{"w", 1, 2, f32("", nil, 2, 3), true},
		{"w", 2, 2, f32("", nil), true},
		{"w", 3, 3, f32("", nil), true},
		{"s", 0, -1, f32("", nil, 9), true},
		{"none", 0, -1, f32("", nil), true},
		{"flat", 1, 3, f32("", nil), true},
		{"w", 0, 4, Tensor{}, false},
		{"w", -1, 2, Tensor{}, false},
		{"w", 2, 1, Tensor{}, false},
		{"x", 0, -1, Tensor{}, false},
	} {
		got, err := f.ReadTensor(c.name, c.from, c.to)
		if (err == nil) != c.ok || c.ok && !bytes.Equal(got, c.want.Bytes) {
			t.Errorf("%s[%d:%d] = %v, %v", c.name, c.from, c.to, got, err)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	w := f32("w", []int{2}, 1, 2)
	for _, c := range []struct {
		why     string
		tensors []Tensor
	}{
		{"twice", []Tensor{w, w}},
		{"has 12 bytes, got 8", []Tensor{{"w", "F32", []int{3}, w.Bytes}}},
		{"unknown dtype", []Tensor{{"w", "F31", []int{2}, w.Bytes}}},
		{"negative", []Tensor{{"w", "F32", []int{-2}, w.Bytes}}},
		{"larger than any file", []Tensor{{"w", "F32", []int{1 << 40, 1 << 40}, nil}}},
		{"not allowed", []Tensor{{"__metadata__", "F32", []int{2}, w.Bytes}}},
		{"not allowed", []Tensor{{"\xff", "F32", []int{2}, w.Bytes}}},
	} {
		var b bytes.Buffer
		_, err := WriteSafetensors(&b, nil, c.tensors)
		if err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%v, want %q", err, c.why)
		}
		if b.Len() > 0 {
			t.Errorf("%q: %d bytes were written before the refusal", c.why, b.Len())
		}
	}
}

func TestReadRefuses(t *testing.T) {
	const one = `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`
	if _, err := read(rawFile(one+"   ", 8)); err != nil {
		t.Fatal("the good one:", err)
	}
	huge := binary.LittleEndian.AppendUint64(nil, 1<<63)
	limit := binary.LittleEndian.AppendUint64(nil, maxHeader+1)
	for _, c := range []struct {
		why  string
		file []byte
	}{
		{"cut", nil},
		{"cut", []byte("1234567")},
		{"format allows", append(huge, one...)},
		{"format allows", append(limit, one...)},
		{"cut: header of 9 bytes in a file of 16", append([]byte{9, 0, 0, 0, 0, 0, 0, 0}, one[:8]...)},
		{"start with '{'", rawFile("", 0)},
		{"start with '{'", rawFile(" "+one, 8)},
		{"start with '{'", rawFile(`[]`, 0)},
		{"UTF-8", rawFile("{\"\xff\":1}", 0)},
		{"EOF", rawFile(one[:20], 8)},
		{"goes on", rawFile(one+"{}", 8)},
		{"holds 7", rawFile(one, 7)},
		{"holds 9", rawFile(one, 9)},
		{"there twice", rawFile(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8)},
		{"there twice", rawFile(`{"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8)},
		{"there twice", rawFile(`{"__metadata__":{"a":"b","a":"c"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8)},
		{"begins at 4", rawFile(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8)},
		{"begins at 12", rawFile(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}}`, 16)},
		{"begins at 8", rawFile(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}`, 16)},
		{"has 12 bytes", rawFile(`{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}`, 8)},
		{"larger than any file", rawFile(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0)},
		{"want [begin, end]", rawFile(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}`, 8)},
		{"want [begin, end]", rawFile(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}}`, 8)},
		{"at least 0", rawFile(`{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}`, 8)},
		{"at least 0", rawFile(`{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}`, 8)},
		{"at least 0", rawFile(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}}`, 8)},
		{"unknown dtype", rawFile(`{"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}}`, 8)},
		{"want dtype, shape", rawFile(`{"a":{"dtype":"F32","data_offsets":[0,8]}}`, 8)},
		{"unknown key", rawFile(`{"a":{"DType":"F32","shape":[2],"data_offsets":[0,8]}}`, 8)},
		{"want text", rawFile(`{"__metadata__":{"format":1}}`, 0)},
		{"want '{'", rawFile(`{"a":[]}`, 0)},
		{"an integer", rawFile(`{"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}}`, 8)},
	} {
		_, err := read(c.file)
		if err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%.70q: error %v, want %q", c.file, err, c.why)
		}
	}
}

func TestOpenSafetensorsRefuses(t *testing.T) {
	if _, err := OpenSafetensors(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
	if _, err := OpenSafetensors("/dev/null"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
}

// FuzzReadSafetensors: whatever is accepted can be read in full and, written
// again, says the same.
func FuzzReadSafetensors(f *testing.F) {
	golden, err := os.ReadFile(filepath.Join("testdata", "python.safetensors"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add(rawFile(`{}`, 0))
	f.Add(rawFile(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  `, 8))
	f.Add(rawFile(`{"__metadata__":{},"b":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]}}`, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := read(b)
		if err != nil {
			return
		}
		var tensors []Tensor
		for _, name := range s.Names() {
			info, _ := s.Info(name)
			raw, err := s.ReadTensor(name, 0, -1)
			if err != nil {
				t.Fatal(err)
			}
			if name == "" {
				return // read, as other programs may write it, but not written
			}
			tensors = append(tensors, Tensor{name, info.DType, info.Shape, raw})
		}
		var out bytes.Buffer
		if _, err := WriteSafetensors(&out, s.Metadata, tensors); err != nil {
			t.Fatal(err)
		}
		again, err := read(out.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range tensors {
			raw, err := again.ReadTensor(x.Name, 0, -1)
			info, _ := again.Info(x.Name)
			if err != nil || !bytes.Equal(raw, x.Bytes) || info.DType != x.DType || fmt.Sprint(info.Shape) != fmt.Sprint(x.Shape) {
				t.Fatalf("%q changed: %v", x.Name, err)
			}
		}
	})
}
