package jobs

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/schedule"
)

var update = flag.Bool("update", false, "rewrite the golden files and the documentation")

// minimal has the required keys and no file to read.
const minimal = `[model]
layers = 4
dim = 64
heads = 4
seq = 32
[data]
kind = "synthetic"
[train]
steps = 10
batch = 8
`

func parse(t testing.TB, text string, sets ...string) *Spec {
	t.Helper()
	s, err := Parse("job.toml", []byte(text), sets, ".")
	if err != nil {
		t.Fatalf("%v\nof\n%s", err, text)
	}
	return s
}

// golden compares with a file of testdata, or writes it under -update.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		switch {
		case i >= len(g):
			t.Fatalf("%s:%d: %q is missing (make golden rewrites it)", path, i+1, w[i])
		case i >= len(w):
			t.Fatalf("%s:%d: %q is more (make golden rewrites it)", path, i+1, g[i])
		case g[i] != w[i]:
			t.Fatalf("%s:%d differs (make golden rewrites it):\n got %s\nwant %s", path, i+1, g[i], w[i])
		}
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	_, err := Load("testdata/mistakes.toml", []string{
		"heads=8", "model.headz=8", "schedule", "optimizer.min_lr", "train=3",
		"checkpoint.keep={a=1", "slurm.time=a day", "seed=1.5", "seed=huge", "transport.libmpi=\"x\ty\"",
	})
	var all *MistakesError
	if !errors.As(err, &all) {
		t.Fatalf("%v is no *MistakesError", err)
	}
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	// Folders differ, and kinds of schedules are added without this package.
	got := strings.NewReplacer(cwd, "DIR", strings.Join(schedule.Names(), ", "), "KINDS").Replace(all.Error())
	golden(t, "testdata/mistakes.golden", got+"\n")
	var one *Error
	if !errors.As(error(all), &one) || one != all.List[0] {
		t.Error("errors.As finds no single mistake")
	}
}

// Defaults, and what follows from other keys.
func TestDefaults(t *testing.T) {
	s := parse(t, minimal+"[parallel]\nstages = 2\n")
	if s.Name != "job" || s.Seed != 1 || s.Model.KVHeads != 4 || s.Model.FFN != 192 || s.Model.Vocab != 256 ||
		s.Schedule.Microbatches != 2 || s.Schedule.Chunks != 1 || s.Schedule.BackwardP2 != "cooldown" || s.Schedule.Concat != 1 ||
		s.Run.StartTimeout != time.Minute || !filepath.IsAbs(s.Run.Dir) || filepath.Base(s.Run.Dir) != "runs" {
		t.Errorf("%+v", s)
	}
	if s.World() != 2 || s.MicrobatchSize() != 4 {
		t.Errorf("world %d, micro-batch %d", s.World(), s.MicrobatchSize())
	}
	if c := s.ModelConfig(); c.Dim != 64 || c.FFN != 192 || c.Check() != nil {
		t.Errorf("%+v", c)
	}
	sched, err := s.BuildSchedule()
	if err != nil || sched.Ranks != 2 || sched.Microbatches != 2 {
		t.Errorf("%+v %v", sched, err)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, text []byte, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	huge := filepath.Join(dir, "huge.toml")
	if f, err := os.Create(huge); err != nil || f.Truncate(1<<40) != nil || f.Close() != nil {
		t.Skip("no sparse files here")
	}
	binary := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 100)...)
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "nix.toml"), "nix.toml: no such file (give the path of a job file"},
		{dir, ": is a folder (give a job file in it, e.g. " + dir + "/job.toml)"},
		{"/dev/zero", "/dev/zero: is no regular file (save the job in a file)"},
		{huge, "huge.toml: has 1099511627776 bytes, more than a job file may have"},
		{write("empty.toml", nil, 0o644), "empty.toml: is empty (docs/job-file.md lists the keys"},
		{write("blank.toml", []byte("\ufeff \r\n\t\n"), 0o644), "blank.toml: is empty"},
		{write("elf", binary, 0o644), "elf: is no text: byte 0x00 at offset 7"},
		{write("latin.toml", []byte("name = \"caf\xe9\""), 0o644), "latin.toml: is no text: byte 0xe9 at offset 11"},
		{write("comment.toml", []byte("# nothing\n"), 0o644), "comment.toml: model.layers: is missing"},
		{filepath.Join(dir, "a\x00b"), "invalid argument"},
	} {
		_, err := Load(c.path, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v\nwant %q in it", c.path, err, c.want)
		}
	}
	locked := write("locked.toml", []byte(minimal), 0)
	if f, err := os.Open(locked); err == nil {
		f.Close() // root reads anything
	} else if _, err := Load(locked, nil); err == nil || !strings.Contains(err.Error(), "cannot be read: permission denied") {
		t.Errorf("unreadable file: %v", err)
	}
	s, err := Load(write("my job.v2.toml", []byte(strings.ReplaceAll("\ufeff"+minimal, "\n", "\r\n")), 0o644), nil)
	if err != nil || s.Name != "my-job.v2" {
		t.Errorf("a file with BOM and CRLF: %v %v", s, err)
	}
}

// A syntax error has its line, the lines above it and nothing that steers a terminal.
func TestSyntaxErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a = 1\nb = \nc = 3\n", "job.toml:2: not TOML: expected value but found '\\n' instead\n      1 | a = 1\n  >   2 | b = "},
		{"[model\n", "job.toml:1: not TOML: "},
		{"a = 1\na = 2", "job.toml:2: not TOML: Key 'a' has already been defined."},
		{"seed = 99999999999999999999", "job.toml:1: not TOML: 99999999999999999999 is out of range for int64"},
		{"[train]\nlr = 1e999", "job.toml:2: "},
		{"name = \"a\x1b[31m\"", "job.toml:1: not TOML: "},
		{"name = 'unclosed\n", "job.toml:1: not TOML: "},
		{"x = " + strings.Repeat("[", 100_000), "job.toml:1: more than 100 lists, tables or parts of a key within each other"},
		{"x = " + strings.Repeat("{a=", 50_000), "job.toml:1: more than 100 lists, tables or parts of a key within each other"},
		{strings.Repeat("a.", 100_000) + "a = 1", "job.toml:1: more than 100 lists, tables or parts"},
	} {
		_, err := Parse("job.toml", []byte(c.text), nil, ".")
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%.40q: %v\nwant %q first", c.text, err, c.want)
		} else if strings.ContainsRune(err.Error(), '\x1b') {
			t.Errorf("%.40q: %q steers the terminal", c.text, err)
		}
	}
}

func TestPaths(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"corpus.txt", "sub/corpus.txt"} {
		if err := os.WriteFile(filepath.Join(dir, f), make([]byte, 4000), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text := strings.Replace(minimal, `kind = "synthetic"`, `path = "../corpus.txt"`, 1) + "[device]\nblas = \"./libx.so\"\n[transport]\nlibmpi = \"libmpi.so.12\"\n[run]\ndir = \"out\"\n"
	job := filepath.Join(dir, "sub", "job.toml")
	if err := os.WriteFile(job, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	s, err := Load("sub/job.toml", nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Data.Path != filepath.Join(dir, "corpus.txt") || s.Device.BLAS != filepath.Join(dir, "sub/libx.so") ||
		s.Transport.LibMPI != "libmpi.so.12" || s.Run.Dir != filepath.Join(dir, "sub/out") {
		t.Errorf("relative to the file's folder: %+v", s)
	}
	// What is typed at a prompt is relative to where it is typed.
	s, err = Load("sub/job.toml", []string{"data.path=sub/corpus.txt", "run.dir=out"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Data.Path != filepath.Join(dir, "sub/corpus.txt") || s.Run.Dir != filepath.Join(dir, "out") {
		t.Errorf("--set is relative to the working directory: %+v", s)
	}
}
