package cuda_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cuda"
	"github.com/pipetrain/pipetrain/kernels/kerneltest"
)

// scripts/cuda-check.py sets these; without them there is no card to test.
const (
	cardEnv    = "PIPETRAIN_TEST_GPU"      // the driver's library, "libcuda.so.1"
	ltEnv      = "PIPETRAIN_TEST_CUBLASLT" // cublasLt, "" for the one found
	measureEnv = "PIPETRAIN_TEST_MEASURE"  // the file that TestCardMeasure writes
	sizeEnv    = "PIPETRAIN_TEST_SMALL"    // set: sizes for a card that is emulated
)

func card(t *testing.T) cuda.Options {
	t.Helper()
	path := os.Getenv(cardEnv)
	if path == "" {
		t.Skipf("%s names no driver: make test-cuda runs this on a card", cardEnv)
	}
	return cuda.Options{Driver: path, CublasLt: os.Getenv(ltEnv)}
}

// The conformance suite on the card, with cublasLt and with the own products.
func TestCardConformance(t *testing.T) {
	o := card(t)
	if os.Getenv(sizeEnv) != "" {
		t.Skip("the emulated card has passed it with all accesses checked")
	}
	h := newHeld(t, o)
	kerneltest.Run(t, h.maker(o))
	o.CublasLt = "none"
	for _, c := range kerneltest.Cases() {
		if c.ThreadsMayDiffer {
			if err := c.Check(h.maker(o)); err != nil {
				t.Errorf("own products: %v", err)
			}
		}
	}
	t.Logf("%d devices opened", h.opened)
}

// held keeps a device open, and with it the card's context: the suite opens hundreds of
// devices, and a card makes a context in a good part of a second.
type held struct {
	o      cuda.Options
	d      *cuda.Device
	opened int
}

func newHeld(t *testing.T, o cuda.Options) *held {
	t.Helper()
	h := &held{o: o}
	var err error
	if h.d, err = cuda.New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.d.Close() })
	return h
}

func (h *held) maker(o cuda.Options) kerneltest.Maker {
	return func(int) (kernels.Device, error) {
		h.opened++
		d, err := cuda.New(o)
		if err == nil {
			return d, nil
		}
		// A kernel's failure is the context's to its end: what comes now gets a new one.
		_ = h.d.Close()
		var again error
		if h.d, again = cuda.New(h.o); again != nil {
			return nil, err
		}
		return cuda.New(o)
	}
}

// What is gone of the card's memory is what was asked for, and what the device says that it holds beside.
func TestCardMemory(t *testing.T) {
	o := card(t)
	h := newHeld(t, o) // what the context takes is gone already
	free := func() int64 {
		n, _, err := cardMemory(o.Driver)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := free()
	asked := min(int64(1)<<30, before/4)
	b, err := h.d.Alloc(asked)
	if err != nil {
		t.Fatal(err)
	}
	gone := before - free()
	h.d.Free(b)
	// A driver gives memory in pieces of 2 MiB.
	if gone < asked || gone > asked+4<<20 {
		t.Errorf("asked for %d bytes, %d are gone: does somebody else use the card?", asked, gone)
	}
	if file := os.Getenv(measureEnv); file != "" {
		b, err := json.Marshal(map[string]any{"bytes_asked": asked, "bytes_gone": gone, "own_memory": h.d.Info()["own memory"], "scratch": h.d.Info()["scratch"]})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCardAbilities(t *testing.T) { kerneltest.RunAbilities(t, maker(card(t))) }

// measured is what a card was found to do; TFLOP/s and GB/s.
type measured struct {
	Info        map[string]string  `json:"info"`
	Matrix      map[string]float64 `json:"matrix_tflops"` // by type of operands: of squares of side N
	N           int                `json:"matrix_side"`
	CopyGBs     float64            `json:"copy_gb_per_second"` // read and written bytes
	AdamWGBs    float64            `json:"adamw_gb_per_second"`
	AdamWShare  float64            `json:"adamw_share_of_copy"`
	LaunchMicro float64            `json:"launch_microseconds"` // an op's call, mean of many in a row
	GraphMicro  float64            `json:"graph_microseconds"`  // an op of a replayed recording of as many
}

// TestCardMeasure measures the rates that others are a share of.
func TestCardMeasure(t *testing.T) {
	file := os.Getenv(measureEnv)
	o := card(t)
	if file == "" {
		t.Skipf("%s names no file", measureEnv)
	}
	n, elements, rounds := 8192, int64(1)<<28, 20
	if os.Getenv(sizeEnv) != "" {
		n, elements, rounds = 64, 1<<12, 2
	}
	m := measured{Matrix: map[string]float64{}, N: n}
	for _, tf32 := range []bool{false, true} {
		o.TF32 = tf32
		d, err := cuda.New(o)
		if err != nil {
			t.Fatal(err)
		}
		m.Info = d.Info()
		types := map[string]kernels.DType{"tf32": kernels.F32}
		if !tf32 {
			types = map[string]kernels.DType{"f32": kernels.F32, "bf16": kernels.BF16}
			m.flat(t, d, elements, rounds)
		}
		for name, of := range types {
			m.Matrix[name] = matrixRate(t, d, of, n, rounds)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", b)
}

// timed returns the seconds of one of many calls of op, by the card's clock.
func timed(t *testing.T, d *cuda.Device, rounds int, op func()) float64 {
	t.Helper()
	op() // chooses algorithms, loads code
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	from := d.Mark()
	for range rounds {
		op()
	}
	to := d.Mark()
	took := d.Between(from, to)
	d.Drop(from, to)
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	return max(took.Seconds(), 1e-9) / float64(rounds)
}

// floats allocates n random values: of zeros a card multiplies more in a second.
func floats(t *testing.T, d *cuda.Device, of kernels.DType, n int64) kernels.Buffer {
	t.Helper()
	alloc := func(of kernels.DType) kernels.Buffer {
		b, err := d.Alloc(n * of.Size())
		if err != nil {
			t.Fatal(err)
		}
		return b.As(of)
	}
	v := make([]float32, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	b := alloc(kernels.F32)
	d.CopyIn(b, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v)))
	if of == kernels.F32 {
		return b
	}
	low := alloc(of)
	d.Convert(low, b)
	d.Free(b.As(kernels.U8))
	return low
}

func matrixRate(t *testing.T, d *cuda.Device, of kernels.DType, n, rounds int) float64 {
	t.Helper()
	square := int64(n) * int64(n)
	a, b, c := floats(t, d, of, square), floats(t, d, of, square), floats(t, d, of, square)
	s := timed(t, d, rounds, func() { d.Gemm(false, true, n, n, n, 1, a, n, b, n, 0, c, n) })
	for _, x := range []kernels.Buffer{a, b, c} {
		d.Free(x.As(kernels.U8))
	}
	return 2 * float64(n) * float64(square) / s / 1e12
}

func (m *measured) flat(t *testing.T, d *cuda.Device, n int64, rounds int) {
	t.Helper()
	var b [4]kernels.Buffer
	for i := range b {
		x, err := d.Alloc(4 * n)
		if err != nil {
			t.Fatal(err)
		}
		b[i] = x.As(kernels.F32)
	}
	copied := timed(t, d, rounds, func() { d.Copy(b[0], b[1]) })
	stepped := timed(t, d, rounds, func() {
		d.StepAdamW(b[0], b[1], b[2], b[3], kernels.Buffer{}, kernels.AdamW{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Step: 1, GradScale: 1})
	})
	// w, m and v are read and written, g is read.
	m.CopyGBs, m.AdamWGBs = float64(8*n)/copied/1e9, float64(28*n)/stepped/1e9
	m.AdamWShare = m.AdamWGBs / m.CopyGBs
	const calls = 500
	small := [2]kernels.Buffer{b[0].Slice(0, 256), b[1].Slice(0, 256)}
	many := func() {
		for range calls {
			d.Add(small[0], small[0], small[1])
		}
	}
	many()
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	many()
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	m.LaunchMicro = time.Since(start).Seconds() * 1e6 / calls
	rec, err := d.Record(many)
	if err != nil {
		t.Fatal(err)
	}
	m.GraphMicro = timed(t, d, rounds, rec.Replay) * 1e6 / calls
	rec.Free()
	for _, x := range b {
		d.Free(x.As(kernels.U8))
	}
}
