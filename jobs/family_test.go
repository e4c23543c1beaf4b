package jobs

import (
	"slices"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/model"
)

// Keys that only some families have name them; those that all have do not.
func TestKeysOfSeveralFamilies(t *testing.T) {
	a := owner{"a", []model.Key{{Name: "seq", Doc: "Tokens.", Min: 1, Max: 9}, {Name: "heads", Doc: "Heads.", Required: true}}}
	b := owner{"b", []model.Key{{Name: "seq", Doc: "Tokens.", Min: 1, Max: 9}, {Name: "state", Doc: "States."}}}
	keys := withKeys([]Key{{Name: "model.kind"}, {Name: "data.kind"}}, "model.kind", []owner{a, b})
	var got []string
	for _, k := range keys {
		got = append(got, k.Name+" "+k.Doc)
	}
	if want := []string{"model.kind ", "model.seq Tokens.", "model.heads Heads (a).", "model.state States (b).", "data.kind "}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for i, want := range []string{"a b", "a b", "a", "b", "a b"} {
		var of []string
		for _, kind := range []string{"a", "b"} {
			if keys[i].of(kind) {
				of = append(of, kind)
			}
		}
		if strings.Join(of, " ") != want {
			t.Errorf("%s is of %v, want %s", keys[i].Name, of, want)
		}
	}
	if !keys[2].Required || keys[1].max != 9 {
		t.Errorf("%+v", keys)
	}
}

// A key that the job's family does not have need not be given, and must not be.
func TestKeysOfAnotherFamily(t *testing.T) {
	k := keysByName["model.seq"]
	was := k.owners
	defer func() { k.owners = was }()
	k.owners = []string{"another"}
	const job = "[model]\nlayers = 2\ndim = 8\nheads = 2\n%[data]\nkind = 'synthetic'\n[train]\nsteps = 1\nbatch = 1\n"
	_, err := Parse("job.toml", []byte(strings.Replace(job, "%", "seq = 4\n", 1)), nil, ".")
	if err == nil || err.Error() != `job.toml:5: model.seq: has no effect with model.kind = "transformer" (leave it out)` {
		t.Errorf("%v", err)
	}
	if _, err = Parse("job.toml", []byte(strings.Replace(job, "%", "", 1)), nil, "."); err != nil {
		t.Errorf("%v", err)
	}
}
