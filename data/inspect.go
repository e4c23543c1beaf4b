package data

// Files is what the files of a text or of tokens hold.
type Files struct {
	Format string // KindText, or the name of a Format
	Files  []File
	Tokens int64 // of all files
}

// File is one of them.
type File struct {
	Path   string
	Bytes  int64
	Type   string // of a token: "u16"
	Offset int64  // byte of the first token
	Tokens int64
}

// Inspect says what a kind, format and path or pattern name, or what is wrong
// with it: a FileError where it is a file.
func Inspect(kind, format, path string) (*Files, error) {
	shards, name, err := openShards(kind, format, path)
	if err != nil {
		return nil, err
	}
	f := &Files{Format: name}
	for _, s := range shards {
		f.Files = append(f.Files, File{s.path, s.size, s.code.name, s.offset, s.tokens})
		f.Tokens += s.tokens
	}
	return f, closeAll(shards)
}

// Windows returns the sequences of seq tokens with their targets that there are to
// train on, and those held out when this share is.
func (f *Files) Windows(seq int, share float64) (train, held int64) {
	var counts []int64
	for _, x := range f.Files {
		counts = append(counts, x.Tokens)
	}
	t, r := divide(counts, f.Tokens-Held(f.Tokens, share), int64(seq))
	return t.count(), r.count()
}

// Range is what a scan of tokens found.
type Range struct {
	Least, Most     int64 // token ids
	MostAt, LeastAt Place // where each stands first
}

// Place is a token's place.
type Place struct {
	Path  string
	Token int64 // its number within the file
	Byte  int64 // its offset
}

// Scan reads every token of a kind, format and path. seen is told the tokens read so far, now and then.
func Scan(kind, format, path string, seen func(tokens int64)) (*Range, error) {
	shards, _, err := openShards(kind, format, path)
	if err != nil {
		return nil, err
	}
	defer closeAll(shards)
	var r *Range
	total := int64(0)
	buffer := make([]byte, 1<<20)
	for i := range shards {
		s := &shards[i]
		for first := int64(0); first < s.tokens; {
			n := min(s.tokens-first, int64(len(buffer))/s.code.width)
			b := buffer[:n*s.code.width]
			if err := s.read(b, first); err != nil {
				return nil, err
			}
			r = r.widen(s, b, first, int(n))
			first, total = first+n, total+n
			seen(total)
		}
	}
	return r, nil
}

func (r *Range) widen(s *shard, b []byte, first int64, n int) *Range {
	for i := range n {
		v := s.code.at(b, i)
		if r != nil && v >= r.Least && v <= r.Most {
			continue
		}
		at := Place{s.path, first + int64(i), s.offset + (first+int64(i))*s.code.width}
		if r == nil {
			r = &Range{v, v, at, at}
		}
		if v < r.Least {
			r.Least, r.LeastAt = v, at
		}
		if v > r.Most {
			r.Most, r.MostAt = v, at
		}
	}
	return r
}

// Head returns the first tokens of a file that Inspect listed, at most n.
func Head(kind, format, path string, n int) ([]int64, error) {
	shards, _, err := openShards(kind, format, path)
	if err != nil {
		return nil, err
	}
	defer closeAll(shards)
	s := &shards[0]
	b := make([]byte, min(int64(n), s.tokens)*s.code.width)
	if err := s.read(b, 0); err != nil {
		return nil, err
	}
	var out []int64
	for i := range min(int64(n), s.tokens) {
		out = append(out, s.code.at(b, int(i)))
	}
	return out, nil
}
