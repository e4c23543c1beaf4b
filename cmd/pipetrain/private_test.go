package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Values of variables for the ranks may be secrets: nobody else can read a file with them.
func TestPrivateVariables(t *testing.T) {
	const secret = "hunter2hunter2"
	job := writeJob(t, tinyJob)
	sets := []string{"--set", `slurm.environment=["MODE=` + secret + `"]`, "--set", "train.steps=2"}
	run, submitted := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "run")
	mustRun(t, append(sets, "--out", run, job)...)
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "sbatch"), []byte("#!/bin/sh\necho 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	mustRun(t, append(append([]string{"submit"}, sets...), "--out", submitted, job)...)
	for dir, want := range map[string]int{run: 1, submitted: 2} {
		found := 0
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil || !bytes.Contains(b, []byte(secret)) {
				return err
			}
			found++
			if st, err := e.Info(); err != nil || st.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s: %v, %v", path, st.Mode(), err)
			}
			return nil
		})
		if err != nil || found != want {
			t.Errorf("%s: %d files have the variables, %v", dir, found, err)
		}
	}
}
