package emutest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"
)

// broken is a kernel with one mistake. The mistake is made in a copy of the real source, so
// that what is tried stays what is used.
type broken struct {
	name     string
	file     string // that has the kernel
	header   string // that has the mistake, "" for file
	old, new string // the mistake; old occurs once
	run      func(l *Library, prefix string) error
	want     string // in the message; either of two around a "|", as the order of threads decides
}

var allBroken = []broken{
	{name: "a barrier missing between writing and reading", file: "rmsnorm.cu", header: "device.h",
		old: "if (thread() % 32 == 0) scratch[thread() / 32] = v;\n  barrier();\n  v = warp_sum(",
		new: "if (thread() % 32 == 0) scratch[thread() / 32] = v;\n  v = warp_sum(",
		run: rmsnorm, want: "race|nobody wrote"},
	{name: "a barrier missing between reading and writing again", file: "gemm.cu",
		old: "barrier();  // the tile may be overwritten", new: "", run: gemm, want: "race"},
	{name: "another such", file: "attention.cu", old: "barrier();  // the keys are read no more", new: "", run: attentionF32, want: "race"},
	{name: "a barrier of the warp missing", file: "attention_mma.cu", header: "fragment.h",
		old: "  warp_sync();\n  bool fast = pieces(to, ld, w);", new: "  bool fast = pieces(to, ld, w);", run: attentionBF16, want: "race"},
	{name: "a copy not waited for", file: "attention_mma.cu",
		old: "    cp_async_wait<1>();\n    barrier();  // the values are there", new: "    barrier();  // the values are there",
		run: attentionBF16, want: "nobody wrote"},
	{name: "an index outside the output", file: "gemm.cu", old: "if (row >= m || col >= n) continue;", new: "if (row > m || col >= n) continue;",
		run: gemm, want: "writes 4 bytes"},
	{name: "an index outside the input", file: "embedding.cu", old: "const T* from = table + (long)(bad ? 0 : id) * dim;",
		new: "const T* from = table + (long)(bad ? 0 : id + 1) * dim;", run: embedding, want: "past the start of an allocation of"},
	{name: "an index outside shared memory", file: "rmsnorm.cu", old: "const int N = Pack<T>::N;\n  SHARED(float, scratch, [32]);\n  long at = (long)block_x() * dim;\n  x += at, y += at;",
		new: "const int N = Pack<T>::N;\n  SHARED(float, scratch, [2]);\n  long at = (long)block_x() * dim;\n  x += at, y += at;", run: rmsnorm, want: "of scratch, which has 8"},
	{name: "an output not written", file: "rmsnorm.cu", old: "if (thread() == 0) rstd[block_x()] = r;", new: "", run: rmsnorm, want: "nobody wrote"},
	{name: "a part of an output not written", file: "swiglu.cu", old: "store<N>(du + c, d, left, fast);", new: "if (c > 0) store<N>(du + c, d, left, fast);",
		run: swiglu, want: "nobody wrote"},
	{name: "shared memory not written", file: "gemm.cu", old: "keep<P>(t.b, rb, !trans_b);", new: "if (thread() > 0) keep<P>(t.b, rb, !trans_b);",
		run: gemm, want: "nobody wrote"},
	{name: "a barrier in a branch", file: "rmsnorm.cu", header: "device.h", old: "  barrier();  // scratch may be used again\n  return v;\n}\n\nDEVICE float block_max",
		new: "  if (thread() < 32) barrier();\n  return v;\n}\n\nDEVICE float block_max", run: rmsnorm, want: "diverged"},
	{name: "threads that leave before a barrier", file: "rmsnorm.cu", old: "float r = 1 / sqrt_(", new: "if (thread() > 40) return;\n  float r = 1 / sqrt_(",
		run: rmsnorm, want: "diverged"},
	{name: "a shuffle in a branch", file: "rmsnorm.cu", header: "device.h", old: "for (int m = 16; m > 0; m /= 2) v += shuffle_xor(v, m);",
		new: "for (int m = 16; m > 0; m /= 2) if (thread() != 3) v += shuffle_xor(v, m);", run: rmsnorm, want: "diverged"},
	{name: "two blocks on one row", file: "embedding.cu", old: "if (i > 0 && id_of(sorted[i - 1]) == id) return;", new: "", run: embedding, want: "race"},
	{name: "a barrier missing between steps of a sort", file: "embedding.cu", old: "      barrier();\n      int i = t / half", new: "      int i = t / half", run: embedding, want: "race|nobody wrote"},
	{name: "an address not aligned", file: "rmsnorm.cu", header: "device.h", old: "return (u64)p % (N * sizeof(T) < 16 ? N * sizeof(T) : 16) == 0;", new: "return p != 0;",
		run: rmsnorm, want: "aligned"},
	{name: "rows of a matrix not aligned", file: "attention_mma.cu", header: "fragment.h", old: "static const int stride = D + 8;", new: "static const int stride = D + 2;",
		run: attentionBF16, want: "aligned"},
}

func TestBrokenKernels(t *testing.T) {
	source := filepath.Join(Root(), "src")
	folder := t.TempDir()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	headers, _ := filepath.Glob(filepath.Join(source, "*.h"))
	for _, h := range headers {
		write(filepath.Base(h), read(filepath.Base(h)))
	}
	for i, b := range allBroken {
		text, in := read(b.file), b.file
		if b.header != "" {
			in = b.header
		}
		whole := read(in)
		if n := strings.Count(whole, b.old); n != 1 {
			t.Fatalf("%s: %q occurs %d times in %s", b.name, b.old, n, in)
		}
		whole = strings.Replace(whole, b.old, b.new, 1)
		if b.header != "" {
			own := fmt.Sprintf("broken%d.h", i)
			write(own, whole)
			text = strings.Replace(text, `"`+b.header+`"`, `"`+own+`"`, 1)
		} else {
			text = whole
		}
		write(fmt.Sprintf("broken%d.cu", i), fmt.Sprintf("#define PREFIX broken%d_\n", i)+text)
	}
	l, real := library(t, Options{Sources: folder}), library(t, Options{})
	for i, b := range allBroken {
		t.Run(b.name, func(t *testing.T) {
			if err := b.run(real, ""); err != nil {
				t.Fatalf("as it is: %v", err)
			}
			// Whatever the order of threads.
			for seed := range uint64(3) {
				l.Seed(seed)
				err := b.run(l, fmt.Sprintf("broken%d_", i))
				want, or, _ := strings.Cut(b.want, "|")
				if err == nil || !strings.Contains(err.Error(), want) && (or == "" || !strings.Contains(err.Error(), or)) {
					t.Fatalf("seed %d: found %v, want %q", seed, err, b.want)
				}
				if seed == 0 {
					t.Log(err)
				}
			}
		})
	}
}

// launches runs kernels on memory that it frees in the end.
type launches struct {
	l      *Library
	prefix string
	err    error
	free   []func()
}

func (x *launches) run(name string, blocks, blocksY, threads, shared int, args ...any) {
	if x.err == nil {
		x.err = x.l.Launch(x.prefix+name, blocks, blocksY, threads, shared, args...)
	}
}

func (x *launches) end() error {
	for _, f := range x.free {
		f()
	}
	return x.err
}

// in returns memory with values, or without where offset is negative.
func (x *launches) in(n, offset int) unsafe.Pointer {
	m := NewMemory[float32](x.l, n, max(0, offset))
	if offset >= 0 {
		copy(m.V, values(n))
	}
	x.free = append(x.free, m.Free)
	return m.Ptr()
}

func (x *launches) ids(v ...int32) unsafe.Pointer {
	m := From(x.l, v, 0)
	x.free = append(x.free, m.Free)
	return m.Ptr()
}

const unwritten = -1

func rmsnorm(l *Library, prefix string) error {
	x := launches{l: l, prefix: prefix}
	const rows, dim = 3, 70
	in, gamma, y, rstd, dx := x.in(rows*dim, 1), x.in(dim, 0), x.in(rows*dim, unwritten), x.in(rows, unwritten), x.in(rows*dim, unwritten)
	x.run("rmsnorm_forward_f32", rows, 1, 96, 0, y, rstd, in, gamma, dim, float32(1e-5))
	x.run("rmsnorm_backward_input_f32", rows, 1, 96, 0, dx, y, in, rstd, gamma, dim, 0)
	return x.end()
}

func gemm(l *Library, prefix string) error {
	x := launches{l: l, prefix: prefix}
	const m, n, k = 33, 40, 50
	x.run("gemm_32_f32_f32", 4, 1, 256, 0, 0, 0, m, n, k, float32(1), x.in(m*k, 0), int64(k), x.in(k*n, 0), int64(n), float32(0), x.in(m*n, unwritten), int64(n))
	return x.end()
}

func embedding(l *Library, prefix string) error {
	x := launches{l: l, prefix: prefix}
	const rows, dim, vocab = 4, 20, 3
	ids, y, fault := x.ids(2, 0, 2, 2), x.in(rows*dim, unwritten), x.ids(-1, -1)
	x.run("embedding_forward_f32", rows, 1, 32, 0, y, x.in(vocab*dim, 0), ids, dim, vocab, fault)
	keys := x.in(2*rows, unwritten)
	x.run("embedding_sort", 1, 1, 32, 0, keys, ids, rows)
	x.run("embedding_backward_f32", rows, 1, 128, 0, x.in(vocab*dim, 0), keys, y, rows, dim, vocab, fault)
	return x.end()
}

func swiglu(l *Library, prefix string) error {
	x := launches{l: l, prefix: prefix}
	const rows, ffn = 2, 40
	gu, dgu := x.in(rows*2*ffn, 0), x.in(rows*2*ffn, unwritten)
	x.run("swiglu_backward_f32", rows, 1, 32, 0, dgu, x.in(rows*ffn, 0), gu, ffn)
	x.run("swiglu_forward_f32", rows, 1, 32, 0, x.in(rows*ffn, unwritten), dgu, ffn)
	return x.end()
}

func attentionF32(l *Library, prefix string) error {
	x := launches{l: l, prefix: prefix}
	const seq, width = 70, 32
	x.run("attention_forward_f32_32", 2, 1, 256, 4*(2*64*33+64*65), x.in(seq*width, unwritten), x.in(seq, unwritten), x.in(seq*3*width, 0),
		seq, 1, 1, width, float32(0.1))
	return x.end()
}

func attentionBF16(l *Library, prefix string) error {
	x := launches{l: l, prefix: prefix}
	const seq, width = 70, 32
	x.run("attention_forward_bf16_32", 2, 1, 128, 512*(width+8), x.in(seq*width/2, unwritten), x.in(seq, unwritten), x.in(seq*3*width/2, 0),
		seq, 1, 1, width, float32(0.1))
	return x.end()
}
