package jobs

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// What must not change between the parts of a run is what docs/resuming.md says.
func TestLasting(t *testing.T) {
	s := Default()
	lasting := s.Lasting()
	for _, k := range Keys() {
		want := k.table() == "model" || k.table() == "optimizer" || slices.Contains([]string{"seed", "data.kind", "train.batch", "train.precision"}, k.Name)
		if _, is := lasting[k.Name]; is != want {
			t.Errorf("%s: lasting %v, want %v", k.Name, is, want)
		}
	}
	page, err := os.ReadFile("../docs/resuming.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(lasting)) {
		table, _, _ := strings.Cut(name, ".")
		if !strings.Contains(string(page), "`"+name+"`") && !strings.Contains(string(page), "`["+table+"]`") {
			t.Errorf("docs/resuming.md does not tell of %s", name)
		}
	}
	for _, name := range changeable {
		if !strings.Contains(string(page), "`"+name+"`") && name != "data.holdout" && name != "data.format" { // judged with the data
			t.Errorf("docs/resuming.md does not tell of %s", name)
		}
	}
	a, b := s, s
	b.Model.RopeBase++
	if maps.Equal(a.Lasting(), b.Lasting()) {
		t.Error("another rope_base is the same run")
	}
}
