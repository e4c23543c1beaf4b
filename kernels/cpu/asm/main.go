// Command asm generates the assembly of kernels/cpu:
//
//	go run . -isa avx512 -out ../kernels_avx512_amd64.s -stubs ../kernels_avx512_amd64.go
//
// It has a module of its own, so that avo is no dependency of the program.
package main

import (
	"flag"
	"fmt"
	"os"

	. "github.com/mmcloughlin/avo/build"
)

func main() {
	isa := flag.String("isa", "avx512", "avx512, avx512bf16 or avx2") // beside avo's own -out and -stubs
	flag.Parse()
	var g gen
	switch *isa {
	case "avx512":
		g = gen{suffix: "AVX512", wide: true, lanes: 16}
	case "avx512bf16":
		g = gen{suffix: "BF16"}
		g.bf16()
		Generate()
		return
	case "avx2":
		g = gen{suffix: "AVX2", lanes: 8}
	default:
		fmt.Fprintf(os.Stderr, "asm: isa %q: want avx512, avx512bf16 or avx2\n", *isa)
		os.Exit(2)
	}
	g.constants()
	g.elementwise()
	g.reductions()
	g.exponentials()
	g.layerNorm()
	g.optimizers()
	g.converts()
	g.transpose()
	g.tiles()
	Generate()
}
