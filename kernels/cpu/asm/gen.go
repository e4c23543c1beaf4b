package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// gen writes kernels for one instruction set. A kernel walks over its slices with
// whole vectors and ends with one masked vector, in which the arithmetic is the
// same: what an element becomes does not depend on where in a vector it lies.
type gen struct {
	suffix string
	wide   bool // AVX-512
	lanes  int
	consts map[string]Mem
	// held keeps constants of the current kernel in registers, where there are 32.
	held map[string]VecVirtual
	mask Op // of the tail: a K register, or a vector of all-ones and zeros
	nan  Op // K register that gathers NaN lanes
}

func (g *gen) vec() VecVirtual {
	if g.wide {
		return ZMM()
	}
	return YMM()
}

// data emits a constant as a whole vector, so that AVX2 code can take it from memory.
func (g *gen) data(name string, bits uint32) {
	m := GLOBL(name+g.suffix, 8|16) // RODATA|NOPTR
	for i := range g.lanes {
		DATA(i*4, U32(bits))
	}
	g.consts[name] = m
}

// geluA is 2·√(2/π), see geluGo of the plain version.
const geluA = 1.5957691216057308

func (g *gen) constants() {
	g.consts = map[string]Mem{}
	for _, c := range []struct {
		name  string
		value float64
	}{
		{"one", 1}, {"log2e", math.Log2E}, {"ln2Hi", 0.693359375}, {"ln2Lo", -2.12194440e-4},
		{"expLow", -88}, {"expHigh", 89}, {"expMin", -87.33654475},
		{"c0", 1.9875691500e-4}, {"c1", 1.3981999507e-3}, {"c2", 8.3334519073e-3},
		{"c3", 4.1665795894e-2}, {"c4", 1.6666665459e-1}, {"c5", 5.0000001201e-1},
		{"minusInf", math.Inf(-1)}, {"geluA", geluA}, {"geluB", 0.044715 * geluA}, {"geluC", 3 * 0.044715 * geluA},
	} {
		g.data(c.name, math.Float32bits(float32(c.value)))
	}
	g.data("bias", 127)
	g.data("signBit", 1<<31)
	g.data("unit", 1)
	g.data("half", 0x7fff)
	g.data("quiet", 1<<22)
	if !g.wide {
		// A window into ones followed by zeros is the mask of a tail.
		m := GLOBL("tailMask"+g.suffix, 8|16)
		for i := range 16 {
			v := uint32(0)
			if i < 8 {
				v = math.MaxUint32
			}
			DATA(i*4, U32(v))
		}
		g.consts["tailMask"] = m
	}
}

// c is a constant as an operand.
func (g *gen) c(name string) Op {
	if v, ok := g.held[name]; ok {
		return v
	}
	return g.consts[name]
}

// cReg is a constant in a register, loaded here unless it is held.
func (g *gen) cReg(name string) VecVirtual {
	if v, ok := g.held[name]; ok {
		return v
	}
	v := g.vec()
	VMOVUPS(g.consts[name], v)
	return v
}

// hold loads constants that a kernel uses in its loop.
func (g *gen) hold(names ...string) {
	g.held = map[string]VecVirtual{}
	if !g.wide {
		return // 16 registers are too few: constants come from memory
	}
	for _, n := range names {
		v := g.vec()
		VMOVUPS(g.consts[n], v)
		g.held[n] = v
	}
}

// kernel is a function over slices of equal length.
type kernel struct {
	name    string
	sig     string
	slices  []string // the first gives the length
	floats  []string // f32 arguments, broadcast
	consts  []string
	unroll  int
	prepare func(k *state)
	// body does one vector; u tells the vectors of an unrolled step apart, and
	// masked says whether it is the tail.
	body   func(k *state, u int, masked bool)
	finish func(k *state)
}

// state is what a body works with.
type state struct {
	*gen
	ptr    map[string]Register
	f      map[string]VecVirtual
	at     int // byte offset within the step
	masked bool
	acc    []VecVirtual
}

// load returns the current vector of a slice; lanes beyond the end are zero.
func (k *state) load(name string) VecVirtual {
	v := k.vec()
	m := Mem{Base: k.ptr[name], Disp: k.at}
	switch {
	case !k.masked:
		VMOVUPS(m, v)
	case k.wide:
		VMOVUPS_Z(m, k.mask, v)
	default:
		VMASKMOVPS(m, k.mask, v)
	}
	return v
}

// store writes the current vector of a slice.
func (k *state) store(name string, v Op) {
	m := Mem{Base: k.ptr[name], Disp: k.at}
	switch {
	case !k.masked:
		VMOVUPS(v, m)
	case k.wide:
		VMOVUPS(v, k.mask, m)
	default:
		VMASKMOVPS(v, k.mask, m)
	}
}

// zeroTail clears the lanes of v beyond the end.
func (k *state) zeroTail(v VecVirtual) {
	if !k.masked {
		return
	}
	if k.wide {
		VMOVAPS_Z(v, k.mask, v)
	} else {
		VANDPS(k.mask, v, v)
	}
}

func (g *gen) zero() VecVirtual {
	v := g.vec()
	if g.wide {
		VPXORD(v, v, v)
	} else {
		VXORPS(v, v, v)
	}
	return v
}

// emit writes the function: unrolled steps, single vectors, the tail.
func (g *gen) emit(k kernel) {
	TEXT(k.name+g.suffix, 4, k.sig) // NOSPLIT
	Pragma("noescape")
	s := &state{gen: g, ptr: map[string]Register{}, f: map[string]VecVirtual{}}
	for _, n := range k.slices {
		s.ptr[n] = Load(Param(n).Base(), GP64())
	}
	n := GP64()
	Load(Param(k.slices[0]).Len(), n)
	for _, f := range k.floats {
		m, err := Param(f).Resolve()
		if err != nil {
			panic(err)
		}
		v := g.vec()
		VBROADCASTSS(m.Addr, v)
		s.f[f] = v
	}
	g.hold(k.consts...)
	if k.prepare != nil {
		k.prepare(s)
	}
	step := func(vectors int, masked bool) {
		s.masked = masked
		for u := range vectors {
			s.at = u * g.lanes * 4
			k.body(s, u, masked)
		}
	}
	advance := func(vectors int) {
		for _, name := range k.slices {
			ADDQ(U32(uint32(vectors*g.lanes*4)), s.ptr[name])
		}
		SUBQ(U32(uint32(vectors*g.lanes)), n)
	}
	if k.unroll > 1 {
		Label("many")
		CMPQ(n, U32(uint32(k.unroll*g.lanes)))
		JL(LabelRef("single"))
		step(k.unroll, false)
		advance(k.unroll)
		JMP(LabelRef("many"))
	}
	Label("single")
	CMPQ(n, U32(uint32(g.lanes)))
	JL(LabelRef("tail"))
	step(1, false)
	advance(1)
	JMP(LabelRef("single"))
	Label("tail")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	g.tailMask(n)
	step(1, true)
	Label("done")
	if k.finish != nil {
		k.finish(s)
	}
	VZEROUPPER()
	RET()
	g.held, g.mask = nil, nil
}

// tailMask makes the mask of the first n lanes, 0 < n < lanes.
func (g *gen) tailMask(n GPVirtual) {
	if g.wide {
		bits := GP32()
		MOVL(U32(math.MaxUint32), bits)
		BZHIL(n.As32(), bits, bits)
		k := K()
		KMOVW(bits, k)
		g.mask = k
		return
	}
	base, offset := GP64(), GP64()
	LEAQ(g.consts["tailMask"], base)
	MOVQ(U32(8), offset)
	SUBQ(n, offset)
	v := YMM()
	VMOVUPS(Mem{Base: base, Index: offset, Scale: 4}, v)
	g.mask = v
}

// fold combines the accumulators of a kernel into the first, pairwise.
func (s *state) fold(op func(a, b VecVirtual)) {
	for n := len(s.acc); n > 1; n /= 2 {
		for i := range n / 2 {
			op(s.acc[i+n/2], s.acc[i])
		}
	}
}

// across combines the lanes of v with op and returns the result in lane 0.
func (g *gen) across(v VecVirtual, op func(a, b, dst Op)) Register {
	y := v.AsY()
	if g.wide {
		h := YMM()
		VEXTRACTF32X8(U8(1), v, h)
		op(h, y, y)
	}
	x, h := v.AsX(), XMM()
	VEXTRACTF128(U8(1), y, h)
	op(h, x, x)
	VPERMILPS(U8(0x4e), x, h)
	op(h, x, x)
	VPERMILPS(U8(0xb1), x, h)
	op(h, x, x)
	return x
}
