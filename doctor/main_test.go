package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/collectives/mpi"
	"github.com/pipetrain/pipetrain/launcher"
)

// rankVariable makes the test binary act as a rank that an MPI launcher
// started: it says what the launcher told it, or what the variable holds.
const rankVariable = "PIPETRAIN_DOCTOR_TEST_RANK"

func TestMain(m *testing.M) {
	switch mode := os.Getenv(rankVariable); mode {
	case "":
		os.Exit(m.Run())
	case "honest":
		w := launcher.Detect(os.Environ())
		fmt.Printf("a line of the library\n%s{\"rank\":%d,\"size\":%d}\n", probeMark, w.Rank, w.Size)
	case "singleton":
		fmt.Printf("%s{\"rank\":0,\"size\":1}\n", probeMark)
	case "mpi": // the real thing
		err := MPIRank(context.Background(), os.Stdout, func() (collectives.Transport, error) {
			w := launcher.Detect(os.Environ())
			return mpi.Init(mpi.Config{LibMPI: os.Getenv(rankVariable + "_LIBRARY"), Launch: mpi.Launch{Launcher: string(w.Launcher), Rank: w.Rank, Size: w.Size, LocalRank: w.LocalRank, LocalSize: w.LocalSize}})
		})
		if err != nil {
			os.Exit(3)
		}
	case "dies":
		fmt.Println("cannot find what I need")
		os.Exit(3)
	}
	os.Exit(0)
}

// host returns a host whose files are these; a mode of its own makes those in bin/ programs.
func host(t *testing.T, files map[string]string) *Host {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if strings.HasPrefix(name, "bin/") {
			mode, text = 0o755, "#!/bin/sh\n"+text
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	return &Host{Root: root, Env: []string{"PATH=" + filepath.Join(root, "bin")}}
}

// real is this machine.
func real() *Host { return &Host{Env: os.Environ()} }

// expect runs a check and fails unless its worst finding has this level and some finding holds each of the texts.
func expect(t *testing.T, h *Host, check func(context.Context, *Host) []Finding, level Level, texts ...string) []Finding {
	t.Helper()
	found := check(t.Context(), h)
	worst, all := OK, ""
	for _, f := range found {
		worst = max(worst, f.Level)
		all += fmt.Sprintf("%v: %s → %s\n", f.Level, f.Found, f.Fix)
		if f.Level != OK && f.Fix == "" && !strings.Contains(f.Found, "not checked") {
			t.Errorf("%q says nothing about what to do", f.Found)
		}
	}
	if worst != level || len(found) == 0 {
		t.Errorf("worst is %v, want %v:\n%s", worst, level, all)
	}
	for _, text := range texts {
		if !strings.Contains(all, text) {
			t.Errorf("no finding has %q:\n%s", text, all)
		}
	}
	return found
}
