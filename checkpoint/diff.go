package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Difference is a tensor that two checkpoints do not share bit for bit.
type Difference struct {
	Name string
	// What differs besides values: a tensor that one lacks, another shape or type; else empty.
	What string `json:",omitempty"`
	// Of values: how many differ of how many, the first by its index, and the largest
	// absolute difference, NaN where one of the two is.
	Count, Of int64
	First     int64
	A, B      Value // the first's
	Largest   Value
}

// Value is a number that JSON holds as one, or as "NaN", "+Inf", "-Inf".
type Value float64

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) {
	if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.AppendQuote(nil, fmt.Sprint(f)), nil
	}
	return json.Marshal(float64(v))
}

func (d Difference) String() string {
	if d.What != "" {
		return d.Name + ": " + d.What
	}
	return fmt.Sprintf("%s: %d of %d values differ, the first at %d (%v and %v), by %g at most", d.Name, d.Count, d.Of, d.First, d.A, d.B, d.Largest)
}

// Diff compares two sets of tensors bit by bit, in the order of their names.
func Diff(ctx context.Context, a, b *Set) ([]Difference, error) {
	names := append(a.Names(), b.Names()...)
	slices.Sort(names)
	var out []Difference
	for _, name := range slices.Compact(names) {
		x, inA := a.Info(name)
		y, inB := b.Info(name)
		switch {
		case !inA:
			out = append(out, Difference{Name: name, What: "only in the second"})
		case !inB:
			out = append(out, Difference{Name: name, What: "only in the first"})
		case !slices.Equal(x.Shape, y.Shape) || x.DType != y.DType:
			out = append(out, Difference{Name: name, What: fmt.Sprintf("%s %v and %s %v", x.DType, x.Shape, y.DType, y.Shape)})
		default:
			d, err := diffTensor(ctx, a, b, x)
			if err != nil {
				return nil, err
			}
			if d.Count > 0 {
				out = append(out, d)
			}
		}
	}
	return out, nil
}

// chunkBytes bounds what is held of a tensor at a time.
const chunkBytes = 4 << 20

// eachChunk calls f with ranges of rows that together are a tensor.
func eachChunk(ctx context.Context, t TensorInfo, f func(from, to int) error) error {
	rows := t.Rows()
	size := max(1, (t.End-t.Begin)/int64(max(1, rows)))
	step := int(max(1, chunkBytes/size))
	for from := 0; from < rows; from += step {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := f(from, min(rows, from+step)); err != nil {
			return err
		}
	}
	return nil
}

func diffTensor(ctx context.Context, a, b *Set, t TensorInfo) (Difference, error) {
	d := Difference{Name: t.Name, First: -1}
	width := dtypes[dtypeRank(t.DType)].bytes
	err := eachChunk(ctx, t, func(from, to int) error {
		x, err := a.Rows(t.Name, from, to)
		if err != nil {
			return err
		}
		y, err := b.Rows(t.Name, from, to)
		if err != nil {
			return err
		}
		if !bytes.Equal(x, y) {
			d.add(t.DType, width, x, y)
		}
		d.Of += int64(len(x)) / width
		return nil
	})
	return d, err
}

// add counts the values of a chunk that differ; Of values came before it.
func (d *Difference) add(dtype string, width int64, x, y []byte) {
	for i := int64(0); i < int64(len(x)); i += width {
		u, v := x[i:i+width], y[i:i+width]
		if bytes.Equal(u, v) {
			continue
		}
		p, q := element(dtype, u), element(dtype, v)
		if d.Count == 0 {
			d.First, d.A, d.B = d.Of+i/width, Value(p), Value(q)
		}
		d.Count++
		// Not max alone: a NaN must stay.
		if far := math.Abs(p - q); far > float64(d.Largest) || math.IsNaN(far) {
			d.Largest = Value(far)
		}
	}
}

// element returns an element as a number; NaN for types whose elements are not compared as numbers.
func element(dtype string, b []byte) float64 {
	switch dtype {
	case "F32":
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case "BF16":
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
	case "F64":
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case "I64":
		return float64(int64(binary.LittleEndian.Uint64(b)))
	}
	return math.NaN()
}
