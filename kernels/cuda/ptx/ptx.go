// Package ptx holds the CUDA kernels compiled to PTX, NVIDIA's portable assembly, which
// the driver translates for the card it finds. Their sources lie in ../src;
// scripts/ptx.sh writes the files here.
package ptx

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
)

//go:embed *.ptx.gz kernels.txt sources.txt
var files embed.FS

// Target is the oldest architecture that the modules run on, as major·10 + minor.
const Target = 80

// Kernel is what a launch must know of a kernel.
type Kernel struct {
	Name       string
	Module     string // the source file that has it, without ".cu"
	MaxThreads int    // of a block
	Params     []int  // bytes of each parameter
}

var index = sync.OnceValue(func() map[string]Kernel {
	text, err := files.ReadFile("kernels.txt")
	if err != nil {
		panic(err) // embedded
	}
	all := map[string]Kernel{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] == "#" {
			continue
		}
		k := Kernel{Name: f[1], Module: f[0]}
		for i, s := range f[2:] {
			n, err := strconv.Atoi(s)
			if err != nil {
				panic(fmt.Sprintf("ptx: kernels.txt: %q: %v", line, err))
			}
			if i == 0 {
				k.MaxThreads = n
			} else {
				k.Params = append(k.Params, n)
			}
		}
		all[k.Name] = k
	}
	return all
})

// Find returns the kernel of that name.
func Find(name string) (Kernel, bool) {
	k, ok := index()[name]
	return k, ok
}

// Kernels returns all kernels, in no order.
func Kernels() []Kernel {
	all := make([]Kernel, 0, len(index()))
	for _, k := range index() {
		all = append(all, k)
	}
	return all
}

// Module returns a module's text, ended by a zero byte, as cuModuleLoadDataEx takes it.
func Module(name string) ([]byte, error) {
	b, err := files.ReadFile(name + ".ptx.gz")
	if err != nil {
		return nil, fmt.Errorf("ptx: no module %q", name)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("ptx: module %s: %w", name, err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("ptx: module %s: %w", name, err)
	}
	return append(text, 0), nil
}
