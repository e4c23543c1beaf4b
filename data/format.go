package data

import (
	"fmt"
	"strings"
)

// Format is a way in which tokens are stored in files. Each is one file of this
// package, which declares itself in formats.
type Format struct {
	Name string // as data.format names it
	Doc  string // one sentence
	// claims says whether a file is in this format; nil: only when asked for by name.
	claims func(path string) bool
	// open opens the file; the caller closes the shard's.
	open func(path string) (shard, error)
	// prepare turns the files that a path or pattern names into those that open takes; nil: as they are.
	prepare func(paths []string) []string
}

// formats are tried in this order where data.format is "auto".
var formats = []Format{llmc, megatron, bare("u16", codeU16, "nanoGPT's `.bin`: tokens of 16 bits and nothing else"),
	bare("u32", codeU32, "tokens of 32 bits and nothing else")}

// FormatAuto finds the format by the file's first bytes.
const FormatAuto = "auto"

// Formats lists the formats of tokens.
func Formats() []Format { return formats }

// bare is a format without a header: it cannot be told from the file, and has to be asked for.
func bare(name string, c code, doc string) Format {
	return Format{Name: name, Doc: doc, open: func(path string) (shard, error) {
		f, size, err := openRegular(path)
		if err != nil {
			return shard{}, err
		}
		if size%c.width != 0 {
			f.Close()
			return shard{}, whole(path, fmt.Sprintf("has %d bytes, no multiple of the %d of a token", size, c.width), "another data.format, or the whole file")
		}
		return shard{file: f, path: path, size: size, tokens: size / c.width, code: c}, nil
	}}
}

// openShards opens all files of a path or pattern. The text's bytes are a format of their own.
func openShards(kind, format, path string) (shards []shard, name string, err error) {
	f := bare("text", codeU8, "")
	if kind != KindText {
		if f, err = findFormat(format, path); err != nil {
			return nil, "", err
		}
	}
	paths, err := expandFor(f, path)
	if err != nil {
		return nil, "", err
	}
	for _, p := range paths {
		s, err := f.open(p)
		if err != nil {
			closeAll(shards)
			return nil, "", err
		}
		shards = append(shards, s)
	}
	return shards, f.Name, nil
}

func expandFor(f Format, path string) ([]string, error) {
	if f.prepare == nil {
		return expand(path)
	}
	// A prefix, which is how the format's own tools name a pair of files, is no file.
	if one := f.prepare([]string{path}); one[0] != path && !strings.ContainsAny(path, "*?[") {
		return one, nil
	}
	paths, err := expand(path)
	return f.prepare(paths), err
}

// findFormat returns the format of a name, or the one that the first file is in.
func findFormat(name, path string) (Format, error) {
	var names, asked []string
	for _, f := range formats {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	if name != FormatAuto {
		return Format{}, fmt.Errorf("data: no format is called %q; known: %s, %s", name, FormatAuto, strings.Join(names, ", "))
	}
	first := path
	if paths, err := expand(path); err == nil {
		first = paths[0]
	} else {
		return Format{}, err
	}
	for _, f := range formats {
		if f.claims == nil {
			asked = append(asked, fmt.Sprintf("%q", f.Name))
		} else if f.claims(first) {
			return f, nil
		}
	}
	// What keeps the file from being read says more than that it has no header.
	f, _, err := openRegular(first)
	if err != nil {
		return Format{}, err
	}
	f.Close()
	return Format{}, whole(first, "begins with no header that is known", "data.format = "+strings.Join(asked, " or ")+" reads tokens without a header, data.kind = \"text\" bytes")
}
