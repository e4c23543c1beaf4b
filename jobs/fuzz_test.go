package jobs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzParse: no text and no --set panics; what fails says so in lines that name
// a place; what loads survives being resolved.
func FuzzParse(f *testing.F) {
	f.Add(minimal, "")
	f.Add(minimal+"[parallel]\nstages = 4\n[schedule]\nmicrobatches=8\nconcat = \"all\"\nmemory_limit = 1e9", "train.batch=16")
	examples, err := filepath.Glob("examples/*.toml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(examples, "testdata/mistakes.toml", "testdata/slurm.toml", "testdata/resolved.golden") {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), "model.heads=7")
	}
	f.Add("model = {layers=1,dim=2,heads=1,seq=1}\ntrain = {steps=1,batch=1}\ndata.kind='synthetic'", "seed=1")
	f.Add("\ufeff[[model]]\r\n\"a\\\"b\".'c' = 1979-05-27T07:32:00Z", "name='''x")
	f.Add("[model.layers]\n[train]\nlr=nan\n", "=\x00")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text, set string) {
		var sets []string
		if set != "" {
			sets = []string{set}
		}
		s, err := Parse("job.toml", []byte(text), sets, dir)
		if err == nil {
			roundTrip(t, s)
			return
		}
		var all *MistakesError
		if !errors.As(err, &all) || len(all.List) == 0 {
			t.Fatalf("%v is no *MistakesError", err)
		}
		for _, e := range all.List {
			line, _, _ := strings.Cut(e.Error(), "\n")
			if !strings.HasPrefix(line, "job.toml:") && !strings.HasPrefix(line, "--set ") || len(e.What) == 0 {
				t.Fatalf("%q names no place or no reason", line)
			}
			if strings.ContainsFunc(e.Error(), func(r rune) bool { return r < ' ' && r != '\n' }) {
				t.Fatalf("%q has control characters", e.Error())
			}
		}
	})
}
