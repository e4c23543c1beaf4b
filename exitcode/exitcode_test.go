package exitcode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestTableIsWellFormed(t *testing.T) {
	names := map[string]bool{}
	last := Code(-1)
	for _, e := range Table() {
		if e.Code <= last {
			t.Errorf("code %d after %d: the table is sorted and has no code twice", e.Code, last)
		}
		last = e.Code
		if names[e.Name] || e.Name == "" || e.Meaning == "" {
			t.Errorf("entry %+v: name empty or used twice, or no meaning", e)
		}
		names[e.Name] = true
		if e.Code > 125 && e.Code != Interrupted {
			t.Errorf("code %d is where shells put signals", e.Code)
		}
		if !e.Code.Known() || e.Code.Name() != e.Name {
			t.Errorf("code %d does not find its own entry", e.Code)
		}
	}
	if Code(42).Known() || Code(42).Name() != "exit-42" {
		t.Errorf("code 42 is not in the table, yet: %v %q", Code(42).Known(), Code(42).Name())
	}
}

// The page and the table say the same.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "exit-codes.md"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[Code]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| (\\d+) \\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		n, _ := strconv.Atoi(m[1])
		got[Code(n)] = m[2]
	}
	want := map[Code]string{}
	for _, e := range Table() {
		want[e.Code] = e.Name
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("docs/exit-codes.md has %v, the table %v", got, want)
	}
}

func TestOf(t *testing.T) {
	base := errors.New("x")
	_, notExist := os.Open("/does/not/exist")
	for _, c := range []struct {
		name string
		err  error
		want Code
	}{
		{"nil", nil, Finished},
		{"plain", base, Unexpected},
		{"with", With(Numerics, base), Numerics},
		{"wrapped", fmt.Errorf("rank 3: %w", With(Numerics, base)), Numerics},
		{"outermost wins", With(Stopped, fmt.Errorf("a: %w", With(Numerics, base))), Stopped},
		{"nil with", With(Numerics, nil), Finished},
		{"errorf", Errorf(Usage, "no %w", base), Usage},
		{"joined", errors.Join(base, With(Stalled, base)), Stalled},
		{"no such file", notExist, Environment},
		{"disk full", &os.PathError{Op: "write", Path: "p", Err: syscall.ENOSPC}, Environment},
		{"permission", fs.ErrPermission, Environment},
		{"no memory", fmt.Errorf("mmap: %w", syscall.ENOMEM), OutOfMemory},
	} {
		if got := Of(c.err); got != c.want {
			t.Errorf("%s: Of(%v) = %v, want %v", c.name, c.err, got, c.want)
		}
	}
	if err := With(Numerics, base); !errors.Is(err, base) || err.Error() != "x" {
		t.Errorf("With hides its error: %v", err)
	}
}

func TestRecordRoundTrip(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("no record yet, Read says %v", err)
	}
	want := Record{Code: RankLost, Reason: "rank 2 … killed", Rank: 2, Host: "n1", PID: 77, Signal: "SIGKILL",
		Time: time.Unix(1700000000, 5).UTC(), Step: 12, Launcher: "local"}
	if err := Write(dir, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	want.Name = "rank-lost"
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, wrote %+v", got, want)
	}
	// A second Write replaces, WriteFirst does not.
	if err := Write(dir, Record{Code: Finished, Rank: NoRank}); err != nil {
		t.Fatal(err)
	}
	if won, err := WriteFirst(dir, Record{Code: Stalled}); won || err != nil {
		t.Errorf("WriteFirst over a record: won %v, %v", won, err)
	}
	got, _ = Read(dir)
	if got.Code != Finished || got.Rank != NoRank || got.Host == "" || got.PID != os.Getpid() || got.Time.IsZero() {
		t.Errorf("record %+v", got)
	}
	if err := Clear(dir); err != nil {
		t.Fatal(err)
	}
	if err := Clear(dir); err != nil {
		t.Errorf("Clear twice: %v", err)
	}
	onlyRecord(t, dir, 0)
}

func onlyRecord(t *testing.T, dir string, n int) {
	t.Helper()
	left, _ := os.ReadDir(dir)
	if len(left) != n {
		t.Errorf("folder holds %v, want %d entries", left, n)
	}
}

// Many ranks fail at once: exactly one record is kept, whole.
func TestWriteFirstRace(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	var mu sync.Mutex
	winners := []int{}
	for rank := range 32 {
		wg.Go(func() {
			won, err := WriteFirst(dir, Record{Code: Numerics, Rank: rank, PID: rank + 1})
			if err != nil {
				t.Error(err)
			}
			if won {
				mu.Lock()
				winners = append(winners, rank)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	r, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(winners) != 1 || r.Rank != winners[0] {
		t.Errorf("winners %v, record of rank %d", winners, r.Rank)
	}
	onlyRecord(t, dir, 1)
}

// A record that cannot be written is an error that names the place and leaves nothing.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	if err := Write(filepath.Join(dir, "absent"), Record{}); Of(err) != Environment {
		t.Errorf("folder absent: %v", err)
	}
	if err := os.Mkdir(Path(dir), 0o755); err != nil { // a folder where the record should go
		t.Fatal(err)
	}
	if err := Write(dir, Record{}); err == nil {
		t.Error("record written over a folder")
	}
	onlyRecord(t, dir, 1)
}
