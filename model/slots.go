package model

import "github.com/pipetrain/pipetrain/kernels"

// alignElems is the alignment of buffers that share one allocation, in f32 elements: that of device memory itself.
const alignElems = kernels.ArenaAlign / 4

// align rounds a number of f32 elements up.
func align(n int64) int64 { return (n + alignElems - 1) / alignElems * alignElems }

// Bytes returns what the slots of one life of a layer take in a call of shape sh,
// each slot rounded up to kernels.ArenaAlign.
func Bytes(l Layer, life Life, sh Shape) int64 {
	var n int64
	for _, s := range l.Slots() {
		if s.Life == life {
			n += align((s.Bytes(sh)+3)/4) * 4
		}
	}
	return n
}

// Alive says whether a slot of life l holds something during pass p.
func (l Life) Alive(p Pass) bool {
	switch l {
	case UntilInput:
		return p != PassWeight
	case FromInput:
		return p != PassForward
	}
	return true
}

// SlotIndex returns the index of the named slot of a layer, or -1.
func SlotIndex(l Layer, name string) int {
	for i, s := range l.Slots() {
		if s.Name == name {
			return i
		}
	}
	return -1
}
