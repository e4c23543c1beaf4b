package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestUpToDate: the committed decorators are what the interface gives.
func TestUpToDate(t *testing.T) {
	for name, want := range render("../..") {
		got, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what kernels.Ops gives: run `go generate ./kernels`", name)
		}
	}
}
