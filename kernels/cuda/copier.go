package cuda

import (
	"errors"
	"fmt"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cuda/driver"
)

// beside puts a copy into a stream beside the queues, after an instant, and returns
// the instant of its end. Several goroutines may do so: a stream keeps the order of the
// calls, and each copy's instant comes behind it.
func (d *Device) beside(op string, s *driver.Stream, after kernels.Mark, do func() error) (at kernels.Mark) {
	e := d.marks.find(after)
	d.perform(op, func() (err error) {
		if e != nil {
			err = s.Wait(e)
		}
		if err == nil {
			err = do()
		}
		if err == nil {
			at, err = d.marks.take(s)
		}
		return err
	})
	return at
}

// Upload is kernels.Copier's.
func (d *Device) Upload(dst kernels.Buffer, src []byte, after kernels.Mark) kernels.Mark {
	sameSize("Upload", dst.Bytes(), int64(len(src)))
	return d.beside("Upload", d.up, after, func() error {
		if len(src) == 0 {
			return nil
		}
		return d.up.CopyIn(driver.Addr(dst.Addr), src)
	})
}

// Download is kernels.Copier's.
func (d *Device) Download(dst []byte, src kernels.Buffer, after kernels.Mark) kernels.Mark {
	sameSize("Download", int64(len(dst)), src.Bytes())
	return d.beside("Download", d.down, after, func() error {
		if len(dst) == 0 {
			return nil
		}
		return d.down.CopyOut(dst, driver.Addr(src.Addr))
	})
}

// Move is kernels.Copier's.
func (d *Device) Move(dst, src kernels.Buffer, after kernels.Mark) kernels.Mark {
	sameSize("Move", dst.Bytes(), src.Bytes())
	return d.beside("Move", d.moves, after, func() error {
		if dst.Empty() {
			return nil
		}
		return d.moves.Copy(driver.Addr(dst.Addr), driver.Addr(src.Addr), dst.Bytes())
	})
}

// Export is kernels.Sharer's.
func (d *Device) Export(b kernels.Buffer) (handle []byte, err error) {
	d.memory.mu.Lock()
	n, ok := d.memory.live[b.Addr]
	d.memory.mu.Unlock()
	if !ok || n != b.Bytes() {
		return nil, errors.New("cuda: Export of what is no whole allocation")
	}
	if err := d.failure(); err != nil {
		return nil, err
	}
	if err = d.ctx.Enter(); err == nil {
		handle, err = d.ctx.MemHandle(driver.Addr(b.Addr))
	}
	d.ctx.Leave()
	if err != nil {
		return nil, fmt.Errorf("cuda: GPU %d: sharing memory: %w", d.card.Number, err)
	}
	return handle, nil
}

// Import is kernels.Sharer's. The driver refuses where the cards do not reach each
// other, and where containers hide the processes from each other.
func (d *Device) Import(handle []byte, bytes int64) (kernels.Buffer, error) {
	if err := d.failure(); err != nil {
		return kernels.Buffer{}, err
	}
	err := d.ctx.Enter()
	defer d.ctx.Leave()
	var p driver.Addr
	if err == nil {
		p, err = d.ctx.OpenMemHandle(handle)
	}
	if err != nil {
		return kernels.Buffer{}, fmt.Errorf("cuda: GPU %d: memory of another process: %w", d.card.Number, err)
	}
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	if d.memory.imported == nil {
		d.memory.imported = map[uintptr]bool{}
	}
	d.memory.imported[uintptr(p)] = true
	return kernels.Buffer{Addr: uintptr(p), Len: bytes, Type: kernels.U8}, nil
}

// Release is kernels.Sharer's.
func (d *Device) Release(b kernels.Buffer) {
	d.memory.mu.Lock()
	ok := d.memory.imported[b.Addr]
	delete(d.memory.imported, b.Addr)
	d.memory.mu.Unlock()
	if !ok {
		panic(fmt.Sprintf("cuda: release of %#x, which is not imported", b.Addr))
	}
	d.perform("Release", func() error { return d.ctx.CloseMemHandle(driver.Addr(b.Addr)) })
}
