package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"
)

// The safetensors format: eight bytes of header length (little endian), the
// header (a JSON object: name → dtype, shape, data_offsets), then the tensors'
// bytes without gaps. https://huggingface.co/docs/safetensors

// maxHeader is the limit of the reference implementation; a larger header is refused.
const maxHeader = 100_000_000

// metadataKey is the one name in the header that is no tensor.
const metadataKey = "__metadata__"

// Tensor is a named array to be written. Bytes holds the elements row-major and
// little endian, and must not change while it is written.
type Tensor struct {
	Name  string
	DType string // "F32", "F64", "I64", ... as in safetensors
	Shape []int  // empty for a scalar
	Bytes []byte
}

// TensorInfo describes a tensor of a safetensors file.
type TensorInfo struct {
	Name  string
	DType string
	Shape []int
	// Begin and End are byte offsets from the start of the data.
	Begin, End int64
}

// Rows returns the first dimension; a scalar has one row.
func (t TensorInfo) Rows() int {
	if len(t.Shape) == 0 {
		return 1
	}
	return t.Shape[0]
}

// dtypes are the element types in the order of the reference implementation,
// which is one of rising size.
var dtypes = []struct {
	name  string
	bytes int64
}{
	{"BOOL", 1}, {"U8", 1}, {"I8", 1}, {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
	{"I16", 2}, {"U16", 2}, {"F16", 2}, {"BF16", 2},
	{"I32", 4}, {"U32", 4}, {"F32", 4},
	{"C64", 8}, {"F64", 8}, {"I64", 8}, {"U64", 8},
}

// dtypeRank returns a type's place in dtypes, -1 for one we do not know.
func dtypeRank(dtype string) int {
	for i, d := range dtypes {
		if d.name == dtype {
			return i
		}
	}
	return -1
}

// tensorBytes returns the size of a tensor, refusing unknown types, negative
// dimensions and products that overflow.
func tensorBytes(dtype string, shape []int) (int64, error) {
	rank := dtypeRank(dtype)
	if rank < 0 {
		return 0, fmt.Errorf("unknown dtype %q", dtype)
	}
	n := uint64(dtypes[rank].bytes)
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("negative dimension %d", d)
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > 1<<62 {
			return 0, fmt.Errorf("shape %v is larger than any file", shape)
		}
		n = lo
	}
	return int64(n), nil
}

// encodeHeader returns the first bytes of the file (length and header) and the
// tensors in the order in which their bytes follow: wide types first, so that
// every tensor is aligned to its element size, then by name. It is the order of
// the reference implementation, so equal tensors give equal files.
func encodeHeader(metadata map[string]string, tensors []Tensor) ([]byte, []Tensor, error) {
	for _, t := range tensors {
		if want, err := tensorBytes(t.DType, t.Shape); err == nil && want != int64(len(t.Bytes)) {
			return nil, nil, fmt.Errorf("tensor %q: %s of shape %v has %d bytes, got %d", t.Name, t.DType, t.Shape, want, len(t.Bytes))
		}
	}
	return encodeShapes(metadata, tensors)
}

// encodeShapes is encodeHeader for tensors whose bytes are elsewhere.
func encodeShapes(metadata map[string]string, tensors []Tensor) ([]byte, []Tensor, error) {
	order := slices.Clone(tensors)
	slices.SortFunc(order, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(dtypeRank(b.DType), dtypeRank(a.DType)), cmp.Compare(a.Name, b.Name))
	})
	var h bytes.Buffer
	h.Write(make([]byte, 8))
	h.WriteByte('{')
	sep := ""
	if len(metadata) > 0 {
		h.WriteString(quote(metadataKey) + ":{")
		for i, k := range sortedKeys(metadata) {
			if i > 0 {
				h.WriteByte(',')
			}
			h.WriteString(quote(k) + ":" + quote(metadata[k]))
		}
		h.WriteByte('}')
		sep = ","
	}
	seen := make(map[string]bool, len(order))
	var at int64
	for _, t := range order {
		want, err := tensorBytes(t.DType, t.Shape)
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		case t.Name == metadataKey || t.Name == "" || !utf8.ValidString(t.Name):
			return nil, nil, fmt.Errorf("tensor name %q is not allowed", t.Name)
		case seen[t.Name]:
			return nil, nil, fmt.Errorf("tensor %q is given twice", t.Name)
		}
		seen[t.Name] = true
		h.WriteString(sep + quote(t.Name) + `:{"dtype":` + quote(t.DType) + `,"shape":[`)
		for i, d := range t.Shape {
			if i > 0 {
				h.WriteByte(',')
			}
			h.WriteString(strconv.Itoa(d))
		}
		fmt.Fprintf(&h, `],"data_offsets":[%d,%d]}`, at, at+want)
		at += want
		sep = ","
	}
	h.WriteByte('}')
	for h.Len()%8 != 0 {
		h.WriteByte(' ')
	}
	if h.Len()-8 > maxHeader {
		return nil, nil, fmt.Errorf("the header has %d bytes, the format allows %d: save in more shards", h.Len()-8, maxHeader)
	}
	b := h.Bytes()
	binary.LittleEndian.PutUint64(b, uint64(len(b)-8))
	return b, order, nil
}

// WriteSafetensors writes the tensors to w as one safetensors file and returns
// the bytes written. It holds the header in memory, never a copy of the tensors.
func WriteSafetensors(w io.Writer, metadata map[string]string, tensors []Tensor) (int64, error) {
	head, order, err := encodeHeader(metadata, tensors)
	if err != nil {
		return 0, err
	}
	n, err := w.Write(head)
	total := int64(n)
	for i := 0; err == nil && i < len(order); i++ {
		n, err = w.Write(order[i].Bytes)
		total += int64(n)
	}
	return total, err
}

// quote returns s as a JSON string, escaping no more than JSON demands.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// File is an open safetensors file. Its methods may be called from several goroutines.
type File struct {
	Metadata map[string]string

	r     io.ReaderAt
	base  int64
	infos map[string]TensorInfo
	names []string // by offset
	close func() error
}

// OpenSafetensors opens and checks the header of the file at path.
func OpenSafetensors(path string) (*File, error) {
	f, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	s, err := ReadSafetensors(f, size)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s.close = f.Close
	return s, nil
}

// ReadSafetensors checks the header of a safetensors file of size bytes: every
// name once, sizes equal to dtype × shape, and data without gap, overlap or
// rest. What it returns can be read without further checks.
func ReadSafetensors(r io.ReaderAt, size int64) (*File, error) {
	var head [8]byte
	if _, err := readFullAt(r, head[:], 0); err != nil {
		return nil, fmt.Errorf("no safetensors file: %w", err)
	}
	n := binary.LittleEndian.Uint64(head[:])
	if n > maxHeader {
		return nil, fmt.Errorf("no safetensors file: header of %d bytes, the format allows %d", n, maxHeader)
	}
	if int64(n) > size-8 {
		return nil, fmt.Errorf("the file is cut: header of %d bytes in a file of %d", n, size)
	}
	text := make([]byte, n)
	if _, err := readFullAt(r, text, 8); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	f := &File{r: r, base: 8 + int64(n), close: func() error { return nil }}
	if err := f.parseHeader(text); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	var at int64
	for _, name := range f.names {
		t := f.infos[name]
		want, err := tensorBytes(t.DType, t.Shape)
		switch {
		case err != nil:
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		case t.Begin != at:
			return nil, fmt.Errorf("tensor %q: data begins at %d, the tensor before ends at %d", name, t.Begin, at)
		case t.End-t.Begin != want:
			return nil, fmt.Errorf("tensor %q: %s of shape %v has %d bytes, data_offsets give %d", name, t.DType, t.Shape, want, t.End-t.Begin)
		}
		at = t.End
	}
	if got := size - f.base; got != at {
		return nil, fmt.Errorf("the tensors have %d bytes, the file holds %d", at, got)
	}
	return f, nil
}

// Names returns the tensors' names in the order of their data.
func (f *File) Names() []string { return slices.Clone(f.names) }

// Info describes a tensor; ok is false when the file has none of this name.
func (f *File) Info(name string) (info TensorInfo, ok bool) {
	info, ok = f.infos[name]
	return info, ok
}

// ReadTensor returns the bytes of rows [from, to) of a tensor; to < 0 means to
// its end. Only those bytes are read.
func (f *File) ReadTensor(name string, from, to int) ([]byte, error) {
	t, ok := f.infos[name]
	if !ok {
		return nil, fmt.Errorf("no tensor %q", name)
	}
	rows := t.Rows()
	if to < 0 {
		to = rows
	}
	if from < 0 || from > to || to > rows {
		return nil, fmt.Errorf("tensor %q: rows %d to %d of %d", name, from, to, rows)
	}
	if from == to {
		return []byte{}, nil
	}
	width := (t.End - t.Begin) / int64(rows)
	b := make([]byte, int64(to-from)*width)
	if _, err := readFullAt(f.r, b, f.base+t.Begin+int64(from)*width); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	return b, nil
}

// Close closes the file.
func (f *File) Close() error { return f.close() }

// readFullAt is ReadAt that gives no error at the exact end and always one for fewer bytes.
func readFullAt(r io.ReaderAt, b []byte, off int64) (int, error) {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return n, nil
	}
	if err == nil || err == io.EOF {
		err = fmt.Errorf("the file is cut: %w", io.ErrUnexpectedEOF)
	}
	return n, err
}
