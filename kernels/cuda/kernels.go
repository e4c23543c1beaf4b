package cuda

import (
	"fmt"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cuda/driver"
	"github.com/pipetrain/pipetrain/kernels/cuda/ptx"
)

// functions are the kernels. Those that exist for several element types have the type's name at
// the end of theirs.
type functions struct {
	modules []*driver.Module
	byName  map[string]*driver.Function
	typed   map[functionKey]*driver.Function // of byName, those that were launched
	allowed map[*driver.Function]int         // bytes of shared memory, where above what needs no word
}

type functionKey struct {
	name string
	of   kernels.DType
}

// find returns the kernel name for elements of a type, U8: the kernel of that very name; nil: there is none.
func (f *functions) find(name string, of kernels.DType) (k *driver.Function, whole string) {
	key := functionKey{name, of}
	if k = f.typed[key]; k != nil {
		return k, name
	}
	whole = name
	if of != kernels.U8 {
		whole += "_" + of.String()
	}
	if k = f.byName[whole]; k != nil {
		f.typed[key] = k
	}
	return k, whole
}

// loadKernels has the driver compile all modules for the card. The driver keeps the
// result on disk (~/.nv/ComputeCache), so that only the first run waits for it.
func loadKernels(ctx *driver.Context, card Card) (functions, error) {
	f := functions{byName: map[string]*driver.Function{}, typed: map[functionKey]*driver.Function{}, allowed: map[*driver.Function]int{}}
	loaded := map[string]*driver.Module{}
	for _, k := range ptx.Kernels() {
		m := loaded[k.Module]
		if m == nil {
			image, err := ptx.Module(k.Module)
			if err != nil {
				return f, err
			}
			if m, err = ctx.LoadPTX(image); err != nil {
				return f, fmt.Errorf("the kernels of %s.cu: %w", k.Module, err)
			}
			loaded[k.Module] = m
			f.modules = append(f.modules, m)
		}
		fn, err := m.Function(k.Name)
		if err != nil {
			return f, err
		}
		f.byName[k.Name] = fn
	}
	return f, nil
}

func (f *functions) close(note func(error)) {
	for _, m := range f.modules {
		note(m.Unload())
	}
}

// grid is the shape of a launch.
type grid struct {
	x, y, threads, shared int
}

// launch puts a kernel with d.args into the current queue.
func (d *Device) launch(name string, of kernels.DType, g grid) error {
	f, name := d.kernels.find(name, of)
	if f == nil {
		return fmt.Errorf("there is no kernel %s in this version", name)
	}
	if g.shared > max(48<<10, d.kernels.allowed[f]) {
		if err := f.AllowShared(g.shared); err != nil {
			return err
		}
		d.kernels.allowed[f] = g.shared
	}
	return d.now.stream.Launch(f, g.x, max(1, g.y), 1, g.threads, g.shared, d.args)
}

// flat is a grid for n elements of which a thread takes pack at a time, in rounds.
func (d *Device) flat(n int64, pack int) grid {
	blocks := (n + int64(256*pack) - 1) / int64(256*pack)
	return grid{x: int(min(blocks, int64(8*d.card.Multiprocessors))), threads: 256}
}

// rowThreads is how many threads share a row of n elements, pack each at a time. It
// depends on nothing else, so that sums have one order.
func rowThreads(n, pack, most int) int {
	t := (n + pack - 1) / pack
	return min(max((t+31)/32*32, 32), most)
}

// packOf is the elements in 16 bytes.
func packOf(t kernels.DType) int { return int(16 / t.Size()) }

// want checks that b has type t and at least n elements, and returns its address.
func want(op, name string, b kernels.Buffer, t kernels.DType, n int64) uintptr {
	if n < 0 {
		panic(fmt.Sprintf("cuda: %s: %s: a shape of %d elements", op, name, n))
	}
	if b.Type != t && !b.Empty() {
		panic(fmt.Sprintf("cuda: %s: %s is %s, want %s", op, name, b.Type, t))
	}
	if b.Len < n {
		panic(fmt.Sprintf("cuda: %s: %s has %d elements, want at least %d", op, name, b.Len, n))
	}
	return b.Addr
}

// f32 is want for f32.
func f32(op, name string, b kernels.Buffer, n int64) uintptr {
	return want(op, name, b, kernels.F32, n)
}

// float returns the type of an operand that may be f32 or bf16.
func float(op, name string, b kernels.Buffer) kernels.DType {
	if b.Type != kernels.F32 && b.Type != kernels.BF16 {
		panic(fmt.Sprintf("cuda: %s: %s is %s, want f32 or bf16", op, name, b.Type))
	}
	return b.Type
}

func area(rows, cols int) int64 { return int64(rows) * int64(cols) }
