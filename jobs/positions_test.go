package jobs

import (
	"maps"
	"testing"

	"github.com/BurntSushi/toml"
)

func TestPositions(t *testing.T) {
	text := "\ufeff# a comment = 1\r\n" +
		"name = 'x # y' # = 2\r\n" + // 2
		"\r\n" +
		"  [ model ] # dim = 3\n" + // 4
		"\tdim=3\n" + // 5
		"\"heads\" = [1, 2, # ]\n" + // 6
		"  3 ]\n" +
		"'kind' = \"\"\"\n" + // 8
		"seq = 4\n" +
		"\\\"\"\" \"\"\"\"\" # two quotes before the end\n" +
		"ffn = '''\n" + // 11
		"[train]\n" +
		"''' # end\n" +
		"[data]\n" + // 14
		"path.to = { a = 1, \"b c\" = { d = \"}\" }, e = [ {f = 1} ] }\n" + // 15
		"date = 1979-05-27 07:32:00Z\n" + // 16
		"x.\"y.z\".'w' = 1\n" + // 17: too many parts
		"[[slurm]]\n" + // 18
		"nodes = 1\n" + // 19
		"[ run . \"dir\" ]\n" + // 20
		"\"caf\\u00e9\" = 0x1F\n" // 21
	if err := toml.Unmarshal([]byte(text), &map[string]any{}); err != nil {
		t.Fatalf("the text is no TOML: %v", err)
	}
	want := map[string]int{
		"name": 2, "model": 4, "model.dim": 5, "model.heads": 6, "model.kind": 8, "model.ffn": 11,
		"data": 14, "data.path": 15, "data.path.to": 15, "data.date": 16, "data.x": 17, `data.x."y.z"`: 17,
		"slurm": 18, "slurm.nodes": 19, "run.dir": 20, `run.dir."café"`: 21,
	}
	if got := positions(text); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// The scan ends, whatever the text is.
func FuzzPositions(f *testing.F) {
	f.Add("a = \"\"\"\\")
	f.Add("a.b = {c = [1, {d = '''")
	f.Add("[[a")
	f.Fuzz(func(t *testing.T, text string) {
		lines := 1
		for _, c := range text {
			if c == '\n' {
				lines++
			}
		}
		at := positions(text)
		for key, line := range at {
			if line < 1 || line > lines {
				t.Fatalf("%q at line %d of %d", key, line, lines)
			}
		}
		// Of a valid text every table's keys are found.
		var tree map[string]any
		if len(text) > 1<<12 || tooDeep(text) > 0 || toml.Unmarshal([]byte(text), &tree) != nil {
			return
		}
		for key := range tree {
			if at[joinKey([]string{key})] == 0 {
				t.Fatalf("%q of %q has no line", key, text)
			}
		}
	})
}
