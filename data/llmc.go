package data

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

// The header of llm.c's token files (github.com/karpathy/llm.c, dev/data): 256
// little-endian int32, of which the first three are magic number, version and count.
const (
	llmcHeader   = 1024
	llmcGPT2     = 20240520 // version 1: 16-bit tokens
	llmcLlama3   = 20240801 // version 7: 32-bit tokens
	llmcVersion1 = 1
	llmcVersion7 = 7
)

var llmc = Format{
	Name: "llmc", Doc: "llm.c's `.bin`: a header of 1024 bytes, then tokens of 16 or 32 bits",
	claims: func(path string) bool {
		m := magic(path, 4)
		return len(m) == 4 && (binary.LittleEndian.Uint32(m) == llmcGPT2 || binary.LittleEndian.Uint32(m) == llmcLlama3)
	},
	open: openLLMC,
}

func openLLMC(path string) (shard, error) {
	f, size, err := openRegular(path)
	if err != nil {
		return shard{}, err
	}
	s := shard{file: f, path: path, size: size, offset: llmcHeader}
	if err := s.readLLMC(); err != nil {
		f.Close()
		return shard{}, err
	}
	return s, nil
}

func (s *shard) readLLMC() error {
	wrong := func(at int64, what, right string) error { return &FileError{s.path, at, what, right} }
	if s.size < llmcHeader {
		return wrong(s.size, fmt.Sprintf("the file ends within the header of %d bytes", llmcHeader), "the whole file")
	}
	var head [12]byte
	if _, err := s.file.ReadAt(head[:], 0); err != nil {
		return unreadable(s.path, err)
	}
	word := func(i int) int32 { return int32(binary.LittleEndian.Uint32(head[4*i:])) }
	want := int32(0)
	switch word(0) {
	case llmcGPT2:
		s.code, want = codeU16, llmcVersion1
	case llmcLlama3:
		s.code, want = codeU32, llmcVersion7
	default:
		return wrong(0, fmt.Sprintf("%d is not the number that an llm.c file begins with", word(0)), fmt.Sprintf("%d or %d", llmcGPT2, llmcLlama3))
	}
	if word(1) != want {
		return wrong(4, fmt.Sprintf("version %d", word(1)), fmt.Sprintf("%d is read", want))
	}
	s.tokens = int64(word(2))
	if size := llmcHeader + s.tokens*s.code.width; s.tokens < 0 || size != s.size {
		return wrong(8, fmt.Sprintf("the header counts %d tokens, which make a file of %d bytes; it has %d", s.tokens, size, s.size), "the whole file")
	}
	return nil
}

// magic returns the first n bytes of a regular file; fewer where it has not so many, or cannot be read.
func magic(path string, n int) []byte {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, n)
	got, _ := io.ReadFull(f, b)
	return b[:got]
}
