package archtest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/schedule"
)

var update = flag.Bool("update", false, "rewrite the parts of README and docs that come from the code")

const root = "../.."

func files(t *testing.T) []string {
	t.Helper()
	all, err := Files(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("only %d files found: %v", len(all), all)
	}
	return all
}

func packages(t *testing.T) (string, []Package) {
	t.Helper()
	module, all, err := Packages(root)
	if err != nil {
		t.Fatal(err)
	}
	if module != "github.com/pipetrain/pipetrain" || len(all) < 5 {
		t.Fatalf("module %q with %d packages", module, len(all))
	}
	return module, all
}

// report fails the test with every place that breaks a rule.
func report(t *testing.T, bad []string) {
	t.Helper()
	for _, b := range bad {
		t.Error(b)
	}
}

func TestImports(t *testing.T) {
	rows, err := ParseTable(read(root, "docs/architecture.md"))
	if err != nil {
		t.Fatalf("docs/architecture.md: %v", err)
	}
	module, all := packages(t)
	report(t, CheckImports(rows, module, all))
	report(t, CheckPure("schedule", all))
	report(t, CheckDocs(all))
}

func TestModules(t *testing.T) {
	module, all := packages(t)
	report(t, CheckModules(read(root, "go.mod"), read(root, "docs/dependencies.md"), module, all))
}

func TestFiles(t *testing.T) {
	all := files(t)
	bad, warn := CheckLengths(root, all)
	for _, w := range warn {
		t.Log(w)
	}
	report(t, bad)
	report(t, CheckForbidden(root, all))
	report(t, CheckSizes(root, all))
	report(t, CheckScripts(root, all))
	report(t, CheckLicense(root))
}

func TestPages(t *testing.T) {
	all := files(t)
	report(t, CheckLinks(root, all))
	report(t, CheckMakeTargets(root, all))
	report(t, CheckIndex(root, all))
}

// TestGenerated compares the parts of the pages that are made from the code,
// and rewrites them with -update.
func TestGenerated(t *testing.T) {
	for _, part := range []struct {
		page, name string
		make       func() string
	}{
		{"README.md", "schedules", schedules},
	} {
		old := read(root, part.page)
		want, err := ReplaceBlock(old, part.name, part.make())
		if err != nil {
			t.Errorf("%s: %v", part.page, err)
			continue
		}
		if old == want {
			continue
		}
		if !*update {
			t.Errorf("%s: the block %q is not what the code says; run `make docs`. Want:\n%s", part.page, part.name, part.make())
			continue
		}
		if err := os.WriteFile(filepath.Join(root, part.page), []byte(want), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// schedules renders the registry of schedule kinds as a table.
func schedules() string {
	var b strings.Builder
	b.WriteString("| `schedule.kind` | what it is | source |\n|---|---|---|\n")
	for _, k := range schedule.Kinds() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.Name, k.Summary, k.Source)
	}
	return b.String()
}

// TestBuildsWithoutC builds the binary without a C compiler in reach.
func TestBuildsWithoutC(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the whole program")
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(t.TempDir(), "pipetrain"), "./cmd/pipetrain")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "CC=false", "CXX=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}
