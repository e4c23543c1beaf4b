package rank

import (
	"errors"
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/schedule"
)

// slotted is a layer that has slots and nothing else.
type slotted struct {
	model.Layer
	slots []model.Slot
}

func (s slotted) Slots() []model.Slot { return s.slots }

// Of a micro-batch of 64 tokens a column takes 256 bytes, the arena's granularity.
const column = 64 * 4

// The slots of testStore's second layer; the first has one of a column until W.
const (
	heldX = iota
	heldStat
	heldDY
)

func testStore(arena *kernels.Arena) *store {
	x := model.Slot{Name: model.SlotX, Life: model.UntilWeight, Matrix: model.Matrix{Width: 1}}
	stat := model.Slot{Name: "stat", Life: model.UntilInput, Matrix: model.Matrix{Width: 1}}
	dy := model.Slot{Name: model.SlotDY, Life: model.FromInput, Matrix: model.Matrix{Width: 3}}
	return newStore(arena, []model.Layer{slotted{slots: []model.Slot{x}}, slotted{slots: []model.Slot{x, stat, dy}}}, model.Shape{Batch: 1, Seq: 64}, 4)
}

// uses checks how many columns are in use for what.
func uses(t *testing.T, when string, a *kernels.Arena, activations, p2Inputs, transfers int64) {
	t.Helper()
	got := [3]int64{a.UsedBy(catActivations), a.UsedBy(catP2Inputs), a.UsedBy(catTransfers)}
	if want := [3]int64{activations * column, p2Inputs * column, transfers * column}; got != want {
		t.Errorf("%s: %v bytes of activations, p2 inputs and transfers, want %v", when, got, want)
	}
}

// needs makes the memory of a life, twice: the second time it is there.
func needs(t *testing.T, k *store, life model.Life, mb int) {
	t.Helper()
	for range 2 {
		if err := k.need(life, mb); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStoreFrame(t *testing.T) {
	a := kernels.NewArena(kernels.Buffer{})
	k := testStore(a)
	if !k.slot(1, heldStat, 0).Empty() {
		t.Error("a slot is there before its memory")
	}
	needs(t, k, model.UntilInput, 0)
	needs(t, k, model.UntilInput, 3)
	uses(t, "two frames", a, 2, 0, 0)
	one, other := k.slot(1, heldStat, 0), k.slot(1, heldStat, 3)
	if one.Len != 64 || other.Len != 64 || one.Addr == other.Addr {
		t.Errorf("the frames lie at %+v and %+v", one, other)
	}
	k.endInput(0)
	k.endInput(0)
	uses(t, "one ended", a, 1, 0, 0)
	if !k.slot(1, heldStat, 0).Empty() || k.slot(1, heldStat, 3) != other {
		t.Error("the end of one frame is not that of one frame")
	}
}

func TestStoreGroup(t *testing.T) {
	a := kernels.NewArena(kernels.Buffer{})
	k := testStore(a)
	k.join(1, 2)
	needs(t, k, model.UntilWeight, 0)
	uses(t, "a group of one", a, 2, 0, 0)
	needs(t, k, model.UntilWeight, 2)
	needs(t, k, model.UntilWeight, 1)
	needs(t, k, model.FromInput, 1)
	uses(t, "a group of two beside it", a, 2+4, 6, 0)
	if k.group(1, 1) != nil || k.group(2, 2) != nil || k.group(3, 3) != nil || k.group(0, 0) == nil {
		t.Error("groups are others than those that were made")
	}
	g := k.group(1, 2)
	if g == nil {
		t.Fatal("the joined micro-batches have no group")
	}
	for layer, slot := range map[int]int{0: heldX, 1: heldDY} {
		both, first, second := k.groupSlot(layer, slot, g), k.slot(layer, slot, 1), k.slot(layer, slot, 2)
		if first.Empty() || both.Addr != first.Addr || second.Addr != first.Addr+uintptr(first.Bytes()) || both.Len != first.Len+second.Len {
			t.Errorf("layer %d: joined %+v, apart %+v and %+v", layer, both, first, second)
		}
	}
	if !k.groupSlot(1, heldStat, g).Empty() {
		t.Error("W reads what lived until I")
	}
	blocks := k.end(g)
	uses(t, "ended, before the device is done", a, 6, 6, 0)
	if k.group(1, 2) != nil || !k.slot(0, heldX, 1).Empty() || !k.slot(1, heldDY, 2).Empty() {
		t.Error("what has ended can still be found")
	}
	for _, b := range blocks {
		a.Free(b)
	}
	uses(t, "freed", a, 2, 0, 0)
}

// Gradients of fused micro-batches and what leaves are handed over once, and what leaves outlives its group.
func TestStoreHandsOver(t *testing.T) {
	a := kernels.NewArena(kernels.Buffer{})
	k := testStore(a)
	must := func(b kernels.Buffer, err error) kernels.Buffer {
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	m := model.Matrix{Width: 2, Type: kernels.BF16} // a column's bytes
	dy := must(k.gradient(2, m))
	if again := must(k.gradient(2, m)); again != dy || dy.Type != kernels.BF16 || dy.Len != 128 {
		t.Errorf("the gradient lies at %+v, then at %+v", dy, again)
	}
	y, dx := must(k.leave(schedule.SendF, 2, m)), must(k.leave(schedule.SendB, 2, m))
	needs(t, k, model.UntilWeight, 2)
	uses(t, "all there", a, 2, 0, 3)
	b, ok := k.takeGradient(2)
	if _, again := k.takeGradient(2); !ok || again || b.Addr != dy.Addr {
		t.Errorf("the gradient is handed over: %v, again: %v", ok, again)
	}
	a.Free(b)
	for _, b := range k.end(k.group(2, 2)) {
		a.Free(b)
	}
	uses(t, "after W", a, 0, 0, 2)
	for kind, want := range map[schedule.Kind]kernels.Buffer{schedule.SendF: y, schedule.SendB: dx} {
		b := k.takeLeaving(kind, 2)
		if b.Addr != want.Addr || !k.takeLeaving(kind, 2).Empty() {
			t.Errorf("%v leaves from %+v, want %+v, once", kind, b, want)
		}
		a.Free(b)
	}
	uses(t, "sent", a, 0, 0, 0)
}

// Where the arena is full, nothing is half there.
func TestStoreFull(t *testing.T) {
	k := testStore(kernels.NewArena(kernels.Buffer{Len: column, Type: kernels.U8}))
	var full *kernels.NoMemoryError
	for range 2 {
		if err := k.need(model.UntilWeight, 0); !errors.As(err, &full) || full.Category != catActivations {
			t.Fatalf("two columns in one: %v", err)
		}
	}
	if _, err := k.leave(schedule.SendF, 0, model.Matrix{Width: 2}); !errors.As(err, &full) {
		t.Errorf("a message of two columns in one: %v", err)
	}
	if !k.slot(0, heldX, 0).Empty() || !k.takeLeaving(schedule.SendF, 0).Empty() {
		t.Error("memory that was refused is there")
	}
	needs(t, k, model.UntilInput, 0)
}
