package model

import (
	"fmt"

	"github.com/pipetrain/pipetrain/kernels"
)

// Shape is how much a call works on.
type Shape struct {
	Batch int // samples, of all joined micro-batches
	Seq   int // tokens of a sample
	Micro int // joined micro-batches; 0: one
}

// Rows returns the tokens, Batch × Seq.
func (s Shape) Rows() int { return s.Batch * s.Seq }

// Times returns the shape of n such micro-batches joined.
func (s Shape) Times(n int) Shape { return Shape{s.Batch * n, s.Seq, max(1, s.Micro) * n} }

// Rows says how many rows a matrix has. The engine counts samples and micro-batches,
// each matrix has its own rows of them: one a token, as many as an image has
// pixels, one for all of a micro-batch. The zero value is Token.
type Rows struct {
	of rowsOf
	n  int
}

type rowsOf uint8

const (
	ofToken rowsOf = iota
	ofSample
	ofMicro
)

// Token is a row for each token, Batch × Seq.
var Token = Rows{}

// Sample is k rows for each sample.
func Sample(k int) Rows { return Rows{ofSample, k} }

// Micro is k rows for each micro-batch: what BackwardInput has summed for
// BackwardWeight to add, in the order of the rows.
func Micro(k int) Rows { return Rows{ofMicro, k} }

// In returns the number of rows in a call of shape s.
func (r Rows) In(s Shape) int {
	switch r.of {
	case ofSample:
		return s.Batch * r.n
	case ofMicro:
		return max(1, s.Micro) * r.n
	}
	return s.Rows()
}

// Matrix is the form of a slot, or of what a layer takes and gives.
type Matrix struct {
	Rows  Rows
	Width int // columns
	Type  kernels.DType
}

// String tells rows, columns and type.
func (m Matrix) String() string {
	rows := [...]string{"a token", "a sample", "a micro-batch"}[m.Rows.of]
	return fmt.Sprintf("%d×%d %s %s", max(1, m.Rows.n), m.Width, m.Type, rows)
}

// Len returns the elements of m in a call of shape s.
func (m Matrix) Len(s Shape) int64 { return int64(m.Rows.In(s)) * int64(m.Width) }

// Bytes returns the bytes of m in a call of shape s.
func (m Matrix) Bytes(s Shape) int64 { return m.Len(s) * m.Type.Size() }
