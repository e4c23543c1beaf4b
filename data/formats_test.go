package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// le writes values one behind the other, little endian, without padding.
func le(values ...any) []byte {
	var b bytes.Buffer
	for _, v := range values {
		if s, ok := v.(string); ok {
			b.WriteString(s)
		} else if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

func put(t testing.TB, path string, b []byte) string {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// llmcFile is an llm.c file as its data scripts write it: 256 int32, then the tokens.
func llmcFile(magic, version, count int32, tokens []byte) []byte {
	head := make([]int32, 256)
	head[0], head[1], head[2] = magic, version, count
	return append(le(head), tokens...)
}

// megatronPair is an index and its tokens: documents of these lengths, one sequence each.
func megatronPair(kind byte, lengths []int32, tokens []byte, width int64) (idx, bin []byte) {
	var offsets, documents []int64
	at := int64(0)
	for i, n := range lengths {
		offsets, documents = append(offsets, at), append(documents, int64(i))
		at += int64(n) * width
	}
	documents = append(documents, int64(len(lengths)))
	return le(megatronMagic, uint64(1), kind, uint64(len(lengths)), uint64(len(documents)), lengths, offsets, documents), tokens
}

// count returns the numbers from first on.
func count[T uint8 | uint16 | int16 | int32 | uint32 | int64](first, n int) []T {
	var out []T
	for i := range n {
		out = append(out, T(first+i))
	}
	return out
}

// Every format gives the tokens that were written, in windows that cover each file once.
func TestFormats(t *testing.T) {
	dir := t.TempDir()
	pair := func(name string, kind byte, tokens []byte, width int64) string {
		idx, bin := megatronPair(kind, []int32{5, 0, 20, 8}, tokens, width)
		put(t, filepath.Join(dir, name+".idx"), idx)
		put(t, filepath.Join(dir, name+".bin"), bin)
		return filepath.Join(dir, name)
	}
	for _, c := range []struct {
		path, ask, format, typ string
	}{
		{put(t, filepath.Join(dir, "gpt2.bin"), llmcFile(llmcGPT2, 1, 33, le(count[uint16](700, 33)))), "auto", "llmc", "u16"},
		{put(t, filepath.Join(dir, "llama3.bin"), llmcFile(llmcLlama3, 7, 33, le(count[uint32](700, 33)))), "auto", "llmc", "u32"},
		{put(t, filepath.Join(dir, "nano.bin"), le(count[uint16](700, 33))), "u16", "u16", "u16"},
		{put(t, filepath.Join(dir, "wide.bin"), le(count[uint32](700, 33))), "u32", "u32", "u32"},
		{pair("m16", 8, le(count[uint16](700, 33)), 2) + ".bin", "auto", "megatron", "u16"},
		{pair("m16", 8, le(count[uint16](700, 33)), 2), "auto", "megatron", "u16"},
		{pair("m16", 8, le(count[uint16](700, 33)), 2), "megatron", "megatron", "u16"},
		{pair("m32", 4, le(count[int32](700, 33)), 4) + ".idx", "auto", "megatron", "i32"},
		{pair("m64", 5, le(count[int64](700, 33)), 8) + ".idx", "megatron", "megatron", "i64"},
		{pair("mi16", 3, le(count[int16](700, 33)), 2) + ".bin", "auto", "megatron", "i16"},
	} {
		f, err := Inspect(KindTokens, c.ask, c.path)
		if err != nil {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		if f.Format != c.format || f.Tokens != 33 || len(f.Files) != 1 || f.Files[0].Type != c.typ {
			t.Errorf("%s: %+v", c.path, f)
		}
		s := open(t, Config{Kind: KindTokens, Format: c.ask, Path: c.path, Seq: 4, Vocab: 733})
		if got := all(t, s); !slices.Equal(got, count[int32](700, 33)) {
			t.Errorf("%s: %v", c.path, got)
		}
	}
}

// all puts an epoch's windows together again, by their first tokens.
func all(t testing.TB, s Source) []int32 {
	t.Helper()
	var windows [][]int32
	for n := range s.Epoch() {
		ids, targets := make([]int32, s.Fields()[0].Len), make([]int32, s.Fields()[0].Len)
		if err := sequence(s, n, ids, targets); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(ids[1:], targets[:s.Fields()[0].Len-1]) {
			t.Fatalf("targets %v of %v", targets, ids)
		}
		windows = append(windows, append(ids, targets[s.Fields()[0].Len-1]))
	}
	slices.SortFunc(windows, func(a, b []int32) int { return int(a[0] - b[0]) })
	var out []int32
	for i, w := range windows {
		if i == 0 || out[len(out)-1] != w[0] {
			out = append(out, w...)
		} else {
			out = append(out, w[1:]...)
		}
	}
	return out
}

// Shards are read by name; no window crosses from one into the next, and the held-out part is the end of all.
func TestShards(t *testing.T) {
	dir := t.TempDir()
	for i, n := range []int{13, 3, 21} {
		put(t, filepath.Join(dir, fmt.Sprintf("part_%d.bin", i)), le(count[uint16](100*i, n)))
	}
	s := open(t, Config{Kind: KindTokens, Format: "u16", Path: filepath.Join(dir, "part_*.bin"), Seq: 4, Vocab: 300, Holdout: 0.25})
	if s.Epoch() != 3+0+2 || s.Holdout() != 2 { // 37 tokens, of which 9 are held out: 12 of the last shard are trained on
		t.Fatalf("%d windows, %d held out", s.Epoch(), s.Holdout())
	}
	want := append(count[int32](0, 13), count[int32](200, 9)...)
	if got := all(t, s); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	ids := make([]int32, 4)
	for n := range s.Holdout() {
		if err := holdout(s, n, ids, nil); err != nil || ids[0] != int32(212+4*n) {
			t.Errorf("held-out %d: %v, %v", n, ids, err)
		}
	}
	texts := open(t, Config{Kind: KindText, Path: filepath.Join(dir, "part_[02].bin"), Seq: 5, Vocab: 256})
	if texts.Epoch() != (26-1)/5+(42-1)/5 {
		t.Errorf("%d windows in two texts", texts.Epoch())
	}
	one := open(t, Config{Kind: KindText, Path: filepath.Join(dir, "part_0.bin"), Seq: 5, Vocab: 256})
	if one.Fingerprint() == texts.Fingerprint() {
		t.Error("one file and two have the same fingerprint")
	}
}

// A file whose name looks like a pattern is that file.
func TestPatternThatIsAFile(t *testing.T) {
	path := put(t, filepath.Join(t.TempDir(), "a[1]*.txt"), []byte("some text, long enough"))
	if f, err := Inspect(KindText, FormatAuto, path); err != nil || f.Tokens != 22 {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestTokenAboveVocabulary(t *testing.T) {
	path := put(t, filepath.Join(t.TempDir(), "x.bin"), llmcFile(llmcGPT2, 1, 9, le([]uint16{1, 2, 3, 4, 5, 6, 70, 8, 9})))
	s := open(t, Config{Kind: KindTokens, Format: FormatAuto, Path: path, Seq: 8, Vocab: 70})
	err := sequence(s, 0, make([]int32, 8), nil)
	if want := "at byte 1036: token 6 is 70, and the vocabulary ends at 69"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// Each damage is one error that names file, byte and reason.
func TestDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	idx, bin := megatronPair(8, []int32{5, 0, 20, 8}, le(count[uint16](0, 33)), 2)
	// at returns the index with other bytes somewhere.
	at := func(offset int, v any) []byte {
		b := slices.Clone(idx)
		copy(b[offset:], le(v))
		return b
	}
	const lengths, offsets, documents = megatronHeader, megatronHeader + 16, megatronHeader + 48
	for i, c := range []struct {
		bin, idx []byte
		format   string
		offset   int64
		what     string
	}{
		{llmcFile(llmcGPT2, 1, 33, make([]byte, 65)), nil, "llmc", 8, "counts 33 tokens, which make a file of 1090 bytes; it has 1089"},
		{llmcFile(llmcGPT2, 7, 33, make([]byte, 66)), nil, "llmc", 4, "version 7"},
		{llmcFile(llmcGPT2, 1, -1, nil), nil, "llmc", 8, "counts -1 tokens"},
		{llmcFile(5, 1, 0, nil), nil, "llmc", 0, "5 is not the number"},
		{llmcFile(llmcGPT2, 1, 33, nil)[:1000], nil, "llmc", 1000, "ends within the header"},
		{llmcFile(llmcGPT2, 1, 33, nil)[:5], nil, "auto", 5, "ends within the header"},
		{make([]byte, 33), nil, "u16", -1, "33 bytes, no multiple of the 2"},
		{make([]byte, 33), nil, "auto", -1, "begins with no header that is known"},
		{nil, nil, "auto", -1, "begins with no header that is known"},
		{bin, idx[:20], "auto", 20, "ends within its header of 34"},
		{bin, at(0, uint8('m')), "megatron", 0, "is not what a Megatron index begins with"},
		{bin, at(9, uint64(2)), "auto", 9, "version 2"},
		{bin, at(17, uint8(6)), "auto", 17, "type 6 of tokens"},
		{bin, at(18, uint64(1<<63)), "auto", 18, "9223372036854775808 sequences"},
		{bin, at(18, uint64(3)), "auto", 18, "3 sequences and 5 document bounds"},
		{bin, idx[:len(idx)-1], "auto", 18, "make an index of"},
		{bin, at(lengths+4, int32(-1)), "auto", lengths + 4, "sequence 1 has -1 tokens"},
		{bin, at(offsets+16, int64(12)), "auto", offsets + 16, "sequence 2 lies at byte 12 of the tokens; the ones before it end at 10"},
		{bin, at(documents, int64(1)), "auto", documents, "document 0 begins at sequence 1"},
		{bin, at(documents+16, int64(0)), "auto", documents + 16, "document 2 begins at sequence 0, after 1"},
		{bin, at(documents+32, int64(3)), "auto", documents + 32, "document 4 begins at sequence 3"},
		{bin[:65], idx, "auto", -1, "has 65 bytes; its index"},
	} {
		path := put(t, filepath.Join(dir, fmt.Sprintf("%02d.bin", i)), c.bin)
		if c.idx != nil {
			put(t, filepath.Join(dir, fmt.Sprintf("%02d.idx", i)), c.idx)
		}
		_, err := Inspect(KindTokens, c.format, path)
		var bad *FileError
		if !errors.As(err, &bad) || bad.Offset != c.offset || !strings.Contains(bad.What, c.what) || !strings.HasPrefix(bad.Path, filepath.Join(dir, fmt.Sprintf("%02d", i))) {
			t.Errorf("%d: %v; want at byte %d %q", i, err, c.offset, c.what)
		}
	}
	if _, err := Inspect(KindTokens, "auto", filepath.Join(dir, "none_*")); err == nil || !strings.Contains(err.Error(), "matches no file") {
		t.Error(err)
	}
	if _, err := Inspect(KindTokens, "auto", dir+"/[a"); err == nil || !strings.Contains(err.Error(), "no valid pattern") {
		t.Error(err)
	}
}

// Whatever the bytes of a file: an error, or tokens that can all be read.
func FuzzFormats(f *testing.F) {
	idx, bin := megatronPair(8, []int32{5, 20}, le(count[uint16](0, 25)), 2)
	f.Add(idx, bin)
	f.Add([]byte(nil), llmcFile(llmcGPT2, 1, 9, le(count[uint16](0, 9))))
	f.Add([]byte(nil), llmcFile(llmcLlama3, 7, 9, le(count[uint32](0, 9))))
	f.Add([]byte("MMIDIDX\x00\x00"), []byte("abc"))
	f.Fuzz(func(t *testing.T, idx, bin []byte) {
		dir := t.TempDir()
		path := put(t, filepath.Join(dir, "x.bin"), bin)
		if idx != nil {
			put(t, filepath.Join(dir, "x.idx"), idx)
		}
		for _, format := range []string{"auto", "llmc", "megatron", "u16", "u32"} {
			s, err := Open(Config{Kind: KindTokens, Format: format, Path: path, Seq: 3, Vocab: 1 << 30})
			if err != nil {
				continue
			}
			for n := range min(s.Epoch(), 50) {
				if err := sequence(s, n, make([]int32, 3), nil); err != nil && !strings.Contains(err.Error(), "the vocabulary ends at") {
					t.Errorf("%s: %v", format, err)
				}
			}
			s.Close()
		}
	})
}
