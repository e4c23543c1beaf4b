package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// shard is a run of tokens in one file, one behind the other.
type shard struct {
	file   *os.File
	path   string
	size   int64 // bytes of the file when it was opened
	offset int64 // of the first token
	tokens int64
	code   code
}

// code is how a token is stored, little endian.
type code struct {
	name   string
	width  int64 // bytes
	signed bool
}

var (
	codeU8  = code{"u8", 1, false}
	codeI8  = code{"i8", 1, true}
	codeU16 = code{"u16", 2, false}
	codeI16 = code{"i16", 2, true}
	codeU32 = code{"u32", 4, false}
	codeI32 = code{"i32", 4, true}
	codeI64 = code{"i64", 8, true}
)

// at returns the i-th token of b.
func (c code) at(b []byte, i int) int64 {
	switch c.width {
	case 1:
		if c.signed {
			return int64(int8(b[i]))
		}
		return int64(b[i])
	case 2:
		v := binary.LittleEndian.Uint16(b[2*i:])
		if c.signed {
			return int64(int16(v))
		}
		return int64(v)
	case 4:
		v := binary.LittleEndian.Uint32(b[4*i:])
		if c.signed {
			return int64(int32(v))
		}
		return int64(v)
	}
	return int64(binary.LittleEndian.Uint64(b[8*i:]))
}

// read fills b with the tokens from number first on; len(b) is a multiple of the code's width.
func (s *shard) read(b []byte, first int64) error {
	at := s.offset + first*s.code.width
	n, err := s.file.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		left := at + int64(n)
		if info, err := s.file.Stat(); err == nil {
			left = info.Size()
		}
		return fmt.Errorf("data: %s has shrunk since the run started: it had %d bytes and has %d now; restore it and resume", s.path, s.size, left)
	}
	return fmt.Errorf("data: %s: %d bytes at offset %d: %w", s.path, len(b), at, err)
}

func closeAll(shards []shard) error {
	var first error
	for _, s := range shards {
		if err := s.file.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
