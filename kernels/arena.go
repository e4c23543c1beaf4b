package kernels

import (
	"fmt"
	"sort"
	"strings"
)

// ArenaAlign is the alignment and granularity of an arena's blocks in bytes.
const ArenaAlign = 256

// Arena hands out blocks of one allocation, first fit by address, so that the
// same sequence of Alloc and Free always gives the same addresses and the same
// extent. That is what makes a memory plan exact: the plan performs the
// sequence on a dry arena (no memory behind it), the run on a real one of the
// planned size.
type Arena struct {
	base   Buffer
	size   int64 // 0: dry, grows without limit
	free   []span
	end    int64 // everything from here is free
	extent int64 // highest end ever
	live   map[int64]Block
	used   map[string]int64
	sum    int64
	peak   int64
	atPeak map[string]int64
}

type span struct{ off, bytes int64 }

// Block is a range of an arena.
type Block struct {
	Buffer          // type U8; Addr is the offset in a dry arena
	Category string // what the memory is for, as in the memory table
	off      int64
	bytes    int64 // rounded up
}

// NewArena returns an arena over base, or a dry one where base is empty.
func NewArena(base Buffer) *Arena {
	return &Arena{base: base, size: base.Bytes(), live: map[int64]Block{}, used: map[string]int64{}}
}

// NoMemoryError says that an arena is too small for a block.
type NoMemoryError struct {
	Category           string
	Want, Used, Size   int64
	LargestFree        int64
	UsedByCategoryText string
}

func (e *NoMemoryError) Error() string {
	return fmt.Sprintf("arena of %d bytes has no room for %d bytes of %s (in use %d, largest free block %d; %s)",
		e.Size, e.Want, e.Category, e.Used, e.LargestFree, e.UsedByCategoryText)
}

// Alloc returns a block of at least `bytes` bytes, contents undefined. Zero
// bytes give an empty block, which may be freed as well.
func (a *Arena) Alloc(bytes int64, category string) (Block, error) {
	if bytes < 0 {
		panic(fmt.Sprintf("kernels: Alloc of %d bytes", bytes))
	}
	if bytes == 0 {
		return Block{Category: category, off: -1}, nil
	}
	need := (bytes + ArenaAlign - 1) / ArenaAlign * ArenaAlign
	off := int64(-1)
	for i, s := range a.free {
		if s.bytes < need {
			continue
		}
		off = s.off
		if s.bytes == need {
			a.free = append(a.free[:i], a.free[i+1:]...)
		} else {
			a.free[i] = span{s.off + need, s.bytes - need}
		}
		break
	}
	if off < 0 {
		if a.size > 0 && a.end+need > a.size {
			return Block{}, &NoMemoryError{category, need, a.sum, a.size, a.largestFree(), tableText(a.used)}
		}
		off = a.end
		a.end += need
		a.extent = max(a.extent, a.end)
	}
	b := Block{Buffer: Buffer{a.base.Addr + uintptr(off), bytes, U8}, Category: category, off: off, bytes: need}
	a.live[off] = b
	a.used[category] += need
	a.sum += need
	if a.sum > a.peak {
		a.peak = a.sum
		a.atPeak = nil
	}
	return b, nil
}

// Free gives a block back. Freeing twice, or a block of another arena, panics.
func (a *Arena) Free(b Block) {
	if b.off < 0 || b.bytes == 0 {
		return
	}
	got, ok := a.live[b.off]
	if !ok || got != b {
		panic(fmt.Sprintf("kernels: free of a block at %d of %d bytes (%s) that is not allocated", b.off, b.bytes, b.Category))
	}
	a.snapshot()
	delete(a.live, b.off)
	a.used[b.Category] -= b.bytes
	a.sum -= b.bytes

	i := sort.Search(len(a.free), func(i int) bool { return a.free[i].off > b.off })
	s := span{b.off, b.bytes}
	if i > 0 && a.free[i-1].off+a.free[i-1].bytes == s.off {
		i--
		s = span{a.free[i].off, a.free[i].bytes + s.bytes}
		a.free = append(a.free[:i], a.free[i+1:]...)
	}
	if i < len(a.free) && s.off+s.bytes == a.free[i].off {
		s.bytes += a.free[i].bytes
		a.free = append(a.free[:i], a.free[i+1:]...)
	}
	if s.off+s.bytes == a.end {
		a.end = s.off
		return
	}
	a.free = append(a.free, span{})
	copy(a.free[i+1:], a.free[i:])
	a.free[i] = s
}

// snapshot keeps the categories at the peak. It runs at the first Free after a
// new peak rather than at each Alloc that raises it: there are far fewer.
func (a *Arena) snapshot() {
	if a.atPeak != nil || a.sum != a.peak {
		return
	}
	a.atPeak = make(map[string]int64, len(a.used))
	for c, n := range a.used {
		if n > 0 {
			a.atPeak[c] = n
		}
	}
}

// Extent returns the highest byte ever in use: the size that an arena needs for
// the sequence so far, holes included.
func (a *Arena) Extent() int64 { return a.extent }

// Peak returns the most bytes in use at once, and what for.
func (a *Arena) Peak() (int64, map[string]int64) {
	a.snapshot()
	return a.peak, a.atPeak
}

// Used returns the bytes in use now.
func (a *Arena) Used() int64 { return a.sum }

// UsedBy returns the bytes in use now for one category.
func (a *Arena) UsedBy(category string) int64 { return a.used[category] }

// Dry says whether the arena has no memory behind it.
func (a *Arena) Dry() bool { return a.size == 0 }

func (a *Arena) largestFree() int64 {
	most := a.size - a.end
	for _, s := range a.free {
		most = max(most, s.bytes)
	}
	return most
}

func tableText(used map[string]int64) string {
	var names []string
	for c, n := range used {
		if n > 0 {
			names = append(names, c)
		}
	}
	sort.Strings(names)
	for i, c := range names {
		names[i] = fmt.Sprintf("%s %d", c, used[c])
	}
	return strings.Join(names, ", ")
}
