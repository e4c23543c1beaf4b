package data

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A Megatron-LM data set is a pair of files (megatron/core/datasets/indexed_dataset.py):
// PREFIX.bin holds the tokens, PREFIX.idx says where each sequence lies. The index,
// little endian: 9 bytes of magic, u64 version 1, u8 type, u64 sequences S, u64
// D; then i32[S] lengths, i64[S] byte offsets, i64[D] the first sequence of each
// document (the last is S), and for multi-modal data i8[S] modes.
const (
	megatronMagic  = "MMIDIDX\x00\x00"
	megatronHeader = 9 + 8 + 1 + 8 + 8
)

var megatronCodes = map[byte]code{1: codeU8, 2: codeI8, 3: codeI16, 4: codeI32, 5: codeI64, 8: codeU16}

var megatron = Format{
	Name: "megatron", Doc: "Megatron-LM's pair of `.idx` and `.bin`; either, or what they have in common, names it",
	claims: func(path string) bool { return string(magic(megatronPrefix(path)+".idx", 9)) == megatronMagic },
	prepare: func(paths []string) []string {
		var out []string
		for _, p := range paths {
			out = append(out, megatronPrefix(p)+".idx")
		}
		return slices.Compact(out)
	},
	open: openMegatron,
}

func megatronPrefix(path string) string {
	return strings.TrimSuffix(strings.TrimSuffix(path, ".idx"), ".bin")
}

func openMegatron(index string) (shard, error) {
	x, err := readMegatronIndex(index)
	if err != nil {
		return shard{}, err
	}
	bin := megatronPrefix(index) + ".bin"
	f, size, err := openRegular(bin)
	if err != nil {
		return shard{}, err
	}
	if want := x.tokens * x.code.width; size != want {
		f.Close()
		return shard{}, whole(bin, fmt.Sprintf("has %d bytes; its index %s counts %d tokens of %d bytes, which is %d", size, index, x.tokens, x.code.width, want), "the pair as it was written")
	}
	return shard{file: f, path: bin, size: size, tokens: x.tokens, code: x.code}, nil
}

// megatronIndex is what an index says.
type megatronIndex struct {
	code      code
	sequences int64
	documents int64
	tokens    int64
}

// readMegatronIndex reads an index and checks each entry. The sequences must lie one
// behind the other, as every tool writes them: the tokens are read as one stream.
func readMegatronIndex(path string) (megatronIndex, error) {
	var x megatronIndex
	wrong := func(at int64, what, right string) (megatronIndex, error) {
		return x, &FileError{path, at, what, right}
	}
	f, size, err := openRegular(path)
	if err != nil {
		return x, err
	}
	defer f.Close()
	var head [megatronHeader]byte
	if n, err := io.ReadFull(f, head[:]); err != nil {
		return wrong(int64(n), fmt.Sprintf("the index ends within its header of %d bytes", megatronHeader), "the whole file")
	}
	if string(head[:9]) != megatronMagic {
		return wrong(0, fmt.Sprintf("%q is not what a Megatron index begins with", head[:9]), "an .idx that preprocess_data.py wrote")
	}
	if v := binary.LittleEndian.Uint64(head[9:]); v != 1 {
		return wrong(9, fmt.Sprintf("version %d", v), "1 is read")
	}
	var ok bool
	if x.code, ok = megatronCodes[head[17]]; !ok {
		return wrong(17, fmt.Sprintf("type %d of tokens", head[17]), "1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16")
	}
	sequences, documents := binary.LittleEndian.Uint64(head[18:]), binary.LittleEndian.Uint64(head[26:])
	// Each takes bytes of the file: a number above its size would overflow below.
	if sequences > uint64(size) || documents > uint64(size) {
		return wrong(18, fmt.Sprintf("%d sequences and %d documents in an index of %d bytes", sequences, documents, size), "the whole file")
	}
	x.sequences, x.documents = int64(sequences), int64(documents)-1
	plain := megatronHeader + 12*x.sequences + 8*int64(documents)
	if size != plain && size != plain+x.sequences {
		return wrong(18, fmt.Sprintf("%d sequences and %d document bounds make an index of %d bytes; it has %d", sequences, documents, plain, size), "the whole file")
	}
	if x.documents < 0 {
		return wrong(26, "no document bounds", "at least one, 0")
	}
	lengths := bufio.NewReaderSize(io.NewSectionReader(f, megatronHeader, 4*x.sequences), 1<<16)
	offsets := bufio.NewReaderSize(io.NewSectionReader(f, megatronHeader+4*x.sequences, 8*x.sequences), 1<<16)
	var b [8]byte
	for i := range x.sequences {
		if _, err := io.ReadFull(lengths, b[:4]); err != nil {
			return x, unreadable(path, err)
		}
		n := int64(int32(binary.LittleEndian.Uint32(b[:])))
		if _, err := io.ReadFull(offsets, b[:]); err != nil {
			return x, unreadable(path, err)
		}
		at := int64(binary.LittleEndian.Uint64(b[:]))
		if n < 0 {
			return wrong(megatronHeader+4*i, fmt.Sprintf("sequence %d has %d tokens", i, n), "")
		}
		if at != x.tokens*x.code.width {
			return wrong(megatronHeader+4*x.sequences+8*i, fmt.Sprintf("sequence %d lies at byte %d of the tokens; the ones before it end at %d", i, at, x.tokens*x.code.width), "sequences one behind the other")
		}
		x.tokens += n
	}
	return x, checkDocuments(f, path, x)
}

// checkDocuments holds that the bounds of documents rise from 0 to the number of sequences.
func checkDocuments(f io.ReaderAt, path string, x megatronIndex) error {
	at := megatronHeader + 12*x.sequences
	r := bufio.NewReaderSize(io.NewSectionReader(f, at, 8*(x.documents+1)), 1<<16)
	before := int64(0)
	var b [8]byte
	for d := range x.documents + 1 {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return unreadable(path, err)
		}
		v := int64(binary.LittleEndian.Uint64(b[:]))
		if d == 0 && v != 0 || v < before || d == x.documents && v != x.sequences {
			return &FileError{path, at + 8*d, fmt.Sprintf("document %d begins at sequence %d, after %d", d, v, before), fmt.Sprintf("from 0 to the %d sequences, rising", x.sequences)}
		}
		before = v
	}
	return nil
}
