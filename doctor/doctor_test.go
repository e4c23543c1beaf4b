package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/collectives/local"
	"github.com/pipetrain/pipetrain/exitcode"
)

// TestAll runs every check on this machine, backends included.
func TestAll(t *testing.T) {
	if testing.Short() {
		t.Skip("the checks one by one are tested elsewhere")
	}
	h := real()
	h.RunDir = t.TempDir()
	h.World = func(n int) ([]collectives.Transport, error) { return local.NewWorld(n), nil }
	r := Run(t.Context(), h, Checks())
	seen := map[string]bool{}
	for _, f := range r.Findings {
		seen[f.Check] = true
		if strings.Contains(f.Found, "the check itself broke") {
			t.Errorf("%s: %s\n%v", f.Check, f.Found, f.Values["stack"])
		}
	}
	for _, c := range Checks() {
		if !seen[c.Group+": "+c.Name] {
			t.Errorf("check %q of %q found nothing, not even that all is well", c.Name, c.Group)
		}
	}
	if r.Host == "" || r.Seconds <= 0 {
		t.Errorf("report of host %q after %v s", r.Host, r.Seconds)
	}
	var text bytes.Buffer
	if err := r.Write(&text, Style{Width: 100, All: true}); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", text.String())
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if back.Worst != r.Worst || len(back.Findings) != len(r.Findings) || back.Findings[0].Found != r.Findings[0].Found {
		t.Errorf("JSON reads back as %+v", back)
	}
}

// TestBadChecks: one check that panics, one that hangs, one that is fine; all are reported.
func TestBadChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		checks := []Check{
			{Group: "a", Name: "panics", Run: func(context.Context, *Host) []Finding { panic("oh") }},
			{Group: "a", Name: "hangs", Run: func(context.Context, *Host) []Finding { <-release; return nil }, Limit: time.Minute},
			{Group: "b", Name: "fine", Run: func(context.Context, *Host) []Finding { return []Finding{ok("fine")} }},
		}
		r := Run(t.Context(), host(t, nil), checks)
		if len(r.Findings) != 3 || r.Findings[0].Level != Warning || r.Findings[1].Level != Fails || r.Findings[2].Level != OK {
			t.Fatalf("findings %+v", r.Findings)
		}
		if !strings.Contains(r.Findings[0].Found, "oh") || !strings.Contains(r.Findings[1].Found, "no answer within 1m0s") || r.Findings[2].Check != "b: fine" {
			t.Errorf("findings %+v", r.Findings)
		}
		if r.Worst != Fails || r.Code() != exitcode.Environment || r.Seconds < 60 {
			t.Errorf("worst %v, code %v, %v s", r.Worst, r.Code(), r.Seconds)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("Ctrl-C"))
		r = Run(ctx, host(t, nil), checks[1:2])
		if !strings.Contains(r.Findings[0].Found, "not checked: Ctrl-C") || r.Code() != exitcode.Finished {
			t.Errorf("an ended context gives %+v", r)
		}
	})
}

func TestText(t *testing.T) {
	r := Report{Host: "node1", Seconds: 1.25, Worst: Fails, Findings: []Finding{
		{Check: "system: cores", Found: "8 cores"},
		{Check: "system: limits", Level: Warning, Found: "max open files is 256 files, less than 1024: every rank costs its launcher descriptors", Fix: "ulimit -n 65536"},
		{Check: "mpi: libraries", Level: Fails, Found: "none", Fix: "install one"},
	}}
	var b bytes.Buffer
	if err := r.Write(&b, Style{Width: 80, All: true}); err != nil {
		t.Fatal(err)
	}
	want := `system
  ok       cores              8 cores
  warning  limits             max open files is 256 files, less than 1024: every
                              rank costs its launcher descriptors
                              → ulimit -n 65536
mpi
  fails    libraries          none
                              → install one
node1: 1 ok, 1 warning, 1 would fail in 1.2 s
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	if err := r.Write(&b, Style{Color: true}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "8 cores") || !strings.Contains(b.String(), "\x1b[31;1mfails") {
		t.Errorf("in colour, without what is fine:\n%q", b.String())
	}
}

func TestGather(t *testing.T) {
	const n = 3
	world := local.NewWorld(n)
	var all []Report
	var wg sync.WaitGroup
	for i, tr := range world {
		wg.Go(func() {
			f := Finding{Check: "system: load", Found: "quiet"}
			if i > 0 {
				f = Finding{Check: "system: load", Level: Warning, Found: "busy", Fix: "wait"}
			}
			got, err := Gather(t.Context(), tr, Report{Host: "node" + string(rune('a'+i)), Worst: f.Level, Findings: []Finding{f}})
			if err != nil {
				t.Error(err)
			}
			if i == 0 {
				all = got
			} else if got != nil {
				t.Errorf("rank %d got reports", i)
			}
		})
	}
	wg.Wait()
	for _, tr := range world {
		tr.Close()
	}
	if len(all) != n || all[2].Rank != 2 || all[2].Host != "nodec" {
		t.Fatalf("reports %+v", all)
	}
	var b bytes.Buffer
	if err := WriteAll(&b, all, Style{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "rank 1 (nodeb), 2 (nodec)\n  warning  load               busy\n") || !strings.HasSuffix(b.String(), "3 ranks: warning\n") {
		t.Errorf("text of all:\n%s", b.String())
	}
}

func TestLevels(t *testing.T) {
	for _, l := range []Level{OK, Warning, Fails} {
		var back Level
		if text, err := l.MarshalText(); err != nil || back.UnmarshalText(text) != nil || back != l {
			t.Errorf("level %v reads back as %v, %v", l, back, err)
		}
	}
	if err := new(Level).UnmarshalText([]byte("fine")); err == nil {
		t.Error("level fine was accepted")
	}
	if !reflect.DeepEqual(ok("x").with("a", 1), Finding{Found: "x", Values: map[string]any{"a": 1}}) {
		t.Error("with loses the figure")
	}
}
