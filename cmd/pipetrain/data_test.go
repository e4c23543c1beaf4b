package main

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The same bytes as a text, as 16-bit tokens and as an llm.c file train to the same bits.
func TestTokenFiles(t *testing.T) {
	dir := t.TempDir()
	text := make([]byte, 3000)
	wide := make([]byte, 2*len(text))
	for i := range text {
		text[i] = byte(i * i / 7)
		binary.LittleEndian.PutUint16(wide[2*i:], uint16(text[i]))
	}
	head := make([]byte, 1024)
	for i, v := range []uint32{20240520, 1, uint32(len(text))} {
		binary.LittleEndian.PutUint32(head[4*i:], v)
	}
	job := writeJob(t, tinyJob)
	var want []float64
	for _, f := range []struct {
		name  string
		bytes []byte
		sets  []string
	}{
		{"text", text, []string{"data.kind=text"}},
		{"bare.bin", wide, []string{"data.kind=tokens", "data.format=u16"}},
		{"llmc.bin", append(head, wide...), []string{"data.kind=tokens"}},
	} {
		path, out := filepath.Join(dir, f.name), filepath.Join(dir, "run-"+f.name)
		if err := os.WriteFile(path, f.bytes, 0o644); err != nil {
			t.Fatal(err)
		}
		args := []string{"--quiet", "--out", out, "--set", "model.vocab=256", "--set", "data.path=" + path}
		for _, s := range f.sets {
			args = append(args, "--set", s)
		}
		mustRun(t, append(args, job)...)
		got := losses(t, out)
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: losses %v, want %v", f.name, got, want)
		}
	}
}

func TestDataShow(t *testing.T) {
	dir := t.TempDir()
	for name, b := range map[string]string{"a.bin": "\x05\x00\x09\x00\x01\x00", "b.bin": "\x02\x00\x80\x01", "odd": "abc"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(b), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pattern := filepath.Join(dir, "*.bin")
	s := call("data", "show", "--format", "u16", "--scan", "--tokens", "2", pattern)
	want := `format: u16, 5 tokens in 2 files

  tokens  type  bytes  first byte  file
       3   u16      6           0  DIR/a.bin
       2   u16      4           0  DIR/b.bin

begins with 5 9

smallest token 1, the first at byte 4 of DIR/a.bin
largest token 384, the first at byte 2 of DIR/b.bin: model.vocab is at least 385
`
	if got := strings.ReplaceAll(s.stdout, dir, "DIR"); s.code != 0 || got != want {
		t.Errorf("code %d, %s\n%s\nwant\n%s", s.code, s.stderr, got, want)
	}
	var v struct {
		Tokens int64
		First  []int64
	}
	if s = call("data", "show", "--format", "text", "--json", filepath.Join(dir, "odd")); json.Unmarshal([]byte(s.stdout), &v) != nil || v.Tokens != 3 || !slices.Equal(v.First, []int64{97, 98, 99}) {
		t.Errorf("%+v", s)
	}
	for want, args := range map[string][]string{
		"3 bytes, no multiple of the 2 of a token": {"--format", "u16", filepath.Join(dir, "odd")},
		"begins with no header that is known":      {filepath.Join(dir, "odd")},
		"want one file or pattern":                 {},
		`no format is called "u7"`:                 {"--format", "u7", filepath.Join(dir, "odd")},
	} {
		if s := call(append([]string{"data", "show"}, args...)...); s.code != 2 || !strings.Contains(s.stderr, want) {
			t.Errorf("%v: %+v, want %q", args, s, want)
		}
	}
}
