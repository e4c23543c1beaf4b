package doctor

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pipetrain/pipetrain/kernels"
)

// blasKind is how one BLAS library is recognised.
type blasKind struct {
	name, pattern, symbol, debian string
}

// blasKinds are in the order of their speed here.
var blasKinds = []blasKind{
	{"oneDNN", "libdnnl.so*", "dnnl_sgemm", "libdnnl2"},
	{"MKL", "libmkl_rt.so*", "sgemm_", ""},
	{"BLIS", "libblis*.so*", "sgemm_", "libblis4"},
	{"OpenBLAS", "libopenblas*.so*", "sgemm_", "libopenblas0"},
}

var (
	openBLASVersion = regexp.MustCompile(`OpenBLAS ([0-9]+\.[0-9]+\.[0-9]+)`)
	fileVersion     = regexp.MustCompile(`\.so\.([0-9]+(?:\.[0-9]+)*)$`)
)

// checkBLAS lists the libraries that could multiply matrices, by path.
func checkBLAS(_ context.Context, h *Host) []Finding {
	var names []string
	paths := map[string]string{}
	var bad []Finding
	for _, kind := range blasKinds {
		for _, path := range libraries(h, kind.pattern) {
			lib, err := openLibrary(path)
			if err != nil {
				if strings.HasSuffix(path, ".so") {
					continue // a linker script, or a development link
				}
				bad = append(bad, warn("remove it from the loader's path (LD_LIBRARY_PATH, /etc/ld.so.conf)", "%v", err))
				continue
			}
			if lib.has(kind.symbol) && paths[kind.name] == "" {
				version := lib.find(openBLASVersion)
				if real, err := filepath.EvalSymlinks(path); version == "" && err == nil {
					if m := fileVersion.FindStringSubmatch(real); m != nil {
						version = m[1]
					}
				}
				paths[kind.name] = path
				names = append(names, strings.TrimSpace(kind.name+" "+version)+" ("+path+")")
			}
			lib.close()
		}
	}
	if h.Job != nil {
		if want := h.Job.Device.BLAS; !slices.Contains([]string{"", "auto", "go"}, want) {
			known := slices.ContainsFunc(blasKinds, func(k blasKind) bool { return strings.EqualFold(k.name, want) && paths[k.name] != "" })
			if strings.Contains(want, "/") {
				lib, err := openLibrary(want)
				if known = err == nil; known {
					lib.close()
				}
			}
			if !known {
				bad = append(bad, fails("install it, or set device.blas = \"auto\"", "device.blas = %q is not here", want))
			}
		}
	}
	if len(names) == 0 && assembly(instructions(h)) {
		return append(bad, ok("no BLAS library here, and none needed: the program's own kernels multiply, in assembly"))
	}
	if len(names) == 0 {
		return append(bad, warn("apt-get install libdnnl2 (or libopenblas0, libblis4); or add the folder of one to LD_LIBRARY_PATH",
			"no BLAS library in %s: on this processor the program's own kernels are plain Go, and matrix products 10 to 20 times slower", strings.Join(libraryFolders(h), ", ")))
	}
	return append(bad, ok("%s", strings.Join(names, ", ")).with("paths", paths))
}

// checkDevice opens the device, moves data there and back, and has it multiply.
func checkDevice(_ context.Context, h *Host) []Finding {
	if h.Device == nil {
		return []Finding{ok("not checked: no device was handed in")}
	}
	kind := "auto"
	if h.Job != nil && h.Job.Device.Kind != "" {
		kind = h.Job.Device.Kind
	}
	dev, err := h.Device(kind)
	if err != nil {
		return []Finding{fails("set device.kind = \"auto\", or fix what the message says", "device %q: %v", kind, err)}
	}
	defer dev.Close()
	rate, err := tryDevice(dev)
	if err != nil {
		return []Finding{fails("please report this, with the output of doctor --json; another device.blas may help", "device %s: %v", dev.Name(), err).with("info", dev.Info())}
	}
	return []Finding{ok("%s: 4 MiB there and back, products right, %.0f GFLOP/s (512×512×512, %s)", dev.Name(), rate/1e9, infoLine(dev.Info())).
		with("flop_per_second", rate).with("info", dev.Info())}
}

// infoLine joins what a device says of itself.
func infoLine(info map[string]string) string {
	var parts []string
	for k, v := range info {
		if v != "" && len(v) < 60 {
			parts = append(parts, k+" "+v)
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// tryDevice returns the rate of a matrix product in FLOP/s.
func tryDevice(dev kernels.Device) (float64, error) {
	const n = 512
	buffers := make([]kernels.Buffer, 3)
	for i := range buffers {
		b, err := dev.Alloc(4 * n * n * 4)
		if err != nil {
			return 0, err
		}
		defer dev.Free(b)
		buffers[i] = b
	}
	there := make([]byte, buffers[0].Bytes())
	for i := range there {
		there[i] = byte(i*31 + i>>8)
	}
	back := make([]byte, len(there))
	dev.CopyIn(buffers[0], there)
	dev.Copy(buffers[1], buffers[0])
	dev.CopyOut(back, buffers[1])
	if err := dev.Sync(); err != nil {
		return 0, err
	}
	if !slices.Equal(there, back) {
		return 0, fmt.Errorf("4 MiB written to the device came back different")
	}

	matrix := func(b kernels.Buffer) kernels.Buffer { return b.Slice(0, n*n*4).As(kernels.F32) }
	a, b, c := matrix(buffers[0]), matrix(buffers[1]), matrix(buffers[2])
	x, y := make([]float32, n*n), make([]float32, n*n)
	for i := range x {
		x[i], y[i] = float32(i%13-6)/8, float32(i%17-8)/8
	}
	dev.CopyIn(a, floatBytes(x))
	dev.CopyIn(b, floatBytes(y))
	multiply := func() error {
		dev.Gemm(false, false, n, n, n, 1, a, n, b, n, 0, c, n)
		return dev.Sync()
	}
	if err := multiply(); err != nil {
		return 0, err
	}
	out := make([]byte, n*n*4)
	dev.CopyOut(out, c)
	for i := 0; i < n*n; i += 997 {
		want := 0.0
		for k := range n {
			want += float64(x[i/n*n+k]) * float64(y[k*n+i%n])
		}
		got := float64(math.Float32frombits(binary.NativeEndian.Uint32(out[4*i:])))
		// The inputs are small eighths: sums are exact but for the order of rounding.
		if math.Abs(got-want) > 1e-4*math.Max(1, math.Abs(want)) || got != got {
			return 0, fmt.Errorf("element %d of a product is %g, want %g", i, got, want)
		}
	}
	const rounds = 5
	best := math.Inf(1)
	for range rounds {
		begin := time.Now()
		if err := multiply(); err != nil {
			return 0, err
		}
		best = min(best, time.Since(begin).Seconds())
	}
	return 2 * n * n * n / best, nil
}

func floatBytes(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.NativeEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}
