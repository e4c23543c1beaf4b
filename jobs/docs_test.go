package jobs

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/schedule"
)

const docsPage = "../docs/job-file.md"

// keyTables writes the tables of the documentation page.
func keyTables() string {
	var b strings.Builder
	defaults := Default()
	for _, t := range tables {
		title := "Top level"
		if t.Name != "" {
			title = "`[" + t.Name + "]`"
		}
		fmt.Fprintf(&b, "### %s – %s\n\n| key | type | default | meaning |\n|---|---|---|---|\n", title, t.Doc)
		for _, k := range Keys() {
			if k.table() != t.Name {
				continue
			}
			def := "`" + tomlValue(field(&defaults, k.Name).Interface()) + "`"
			switch {
			case k.Required:
				def = "**required**"
			case k.Note != "":
				def = k.Note
			}
			doc := k.Doc
			if len(k.Choices) > 0 {
				doc += " One of `" + strings.Join(k.Choices, "`, `") + "`."
			}
			if r := k.Range(); r != "" {
				doc += " " + strings.ToUpper(r[:1]) + r[1:] + "."
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.leaf(), k.Type(), def, doc)
		}
		b.WriteString("\n")
	}
	b.WriteString("### Kinds of schedules\n\n| kind | order of work | needs | source |\n|---|---|---|---|\n")
	for _, i := range schedule.Kinds() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", i.Name, i.Summary, i.Rule, i.Source)
	}
	b.WriteString("\n")
	return b.String()
}

// The page's tables are what the code says; go test -update rewrites them.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile(docsPage)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- keys: begin -->\n", "<!-- keys: end -->"
	head, rest, ok := strings.Cut(string(page), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no %q … %q", docsPage, begin, end)
	}
	golden(t, docsPage, head+begin+"\n"+keyTables()+end+tail)
	// The example in the page is a job that loads.
	_, example, _ := strings.Cut(head+tail, "```toml\n")
	example, _, ok = strings.Cut(example, "```")
	if !ok {
		t.Fatal("the page has no example")
	}
	corpus := t.TempDir() + "/corpus.txt"
	if err := os.WriteFile(corpus, make([]byte, 1<<16), 0o644); err != nil {
		t.Fatal(err)
	}
	parse(t, example, "data.path="+corpus)
}

// keyList and Spec have the same keys in the same order.
func TestKeysAreTheFields(t *testing.T) {
	var want []string
	spec := reflect.TypeFor[Spec]()
	for i := range spec.NumField() {
		f := spec.Field(i)
		if !f.IsExported() {
			continue
		}
		tag := f.Tag.Get("toml")
		if f.Type.Kind() != reflect.Struct {
			want = append(want, tag)
			continue
		}
		for j := range f.Type.NumField() {
			if f.Type.Field(j).IsExported() && f.Type.Field(j).Tag.Get("toml") != "-" {
				want = append(want, tag+"."+f.Type.Field(j).Tag.Get("toml"))
			}
			if want[len(want)-1] == "optimizer.decay_steps" {
				for _, r := range model.Rules() {
					for _, k := range r.Keys {
						if name := "optimizer." + k.Name; !slices.Contains(want, name) {
							want = append(want, name)
						}
					}
				}
			}
		}
	}
	for i, k := range Keys() {
		if i >= len(want) || k.Name != want[i] {
			t.Fatalf("key %d is %s, the fields are %v", i, k.Name, want)
		}
		if k.Doc == "" || !strings.HasSuffix(k.Doc, ".") || strings.Contains(k.Doc, "|") || k.Type() == "" {
			t.Errorf("%s is not documented well: %q", k.Name, k.Doc)
		}
		if k.table() != "" && !isTable(k.table()) {
			t.Errorf("%s is in no table", k.Name)
		}
	}
	if len(keyList) != len(want) {
		t.Errorf("%d keys for %d fields", len(keyList), len(want))
	}
}

// A default is a value that the key itself allows.
func TestDefaultsAreAllowed(t *testing.T) {
	for _, k := range Keys() {
		if k.Required || k.Note != "" {
			continue
		}
		l := &loader{spec: Default(), given: map[string]origin{}, bad: map[string]bool{}}
		d := Default()
		tree, wrong := parseTOML("default", []byte("v = "+tomlValue(field(&d, k.Name).Interface())))
		if wrong != nil {
			t.Fatal(wrong)
		}
		l.decode(keysByName[k.Name], tree["v"], "")
		if len(l.errs) > 0 || !reflect.DeepEqual(l.spec, d) {
			t.Errorf("the default of %s is refused or changed: %v", k.Name, (&MistakesError{l.errs}).Error())
		}
	}
}
