package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/pipetrain/pipetrain/kernels/cuda/driver"
)

// fault words: where kernels note the first id that is outside its table.
const (
	faultEmbeddingForward = iota
	faultEmbeddingBackward
	faultLossForward
	faultLossBackward
	faultWords
)

var faultNames = [faultWords]string{"EmbeddingForward", "EmbeddingBackwardWeight", "CrossEntropyForward", "CrossEntropyBackward"}

type faults struct {
	words driver.Addr
	host  []byte
}

func (f *faults) open(d *Device) (err error) {
	if f.words, err = d.memory.own(d.ctx, 8*faultWords); err != nil {
		return err
	}
	host, err := d.HostAlloc(8 * faultWords)
	if err != nil {
		return err
	}
	f.host = host
	if err = d.first.stream.Set(f.words, 0xff, 8*faultWords); err != nil {
		return err
	}
	return d.first.stream.Synchronize()
}

// at is the address of a word, for a kernel.
func (f *faults) at(word int) uintptr { return uintptr(f.words) + uintptr(8*word) }

// look reads the words; the queues are idle.
func (f *faults) look(d *Device) error {
	s := d.first.stream
	if err := s.CopyOut(f.host, f.words); err != nil {
		return err
	}
	if err := s.Synchronize(); err != nil {
		return err
	}
	var errs []error
	for i, name := range faultNames {
		if w := binary.LittleEndian.Uint64(f.host[8*i:]); w != math.MaxUint64 {
			errs = append(errs, fmt.Errorf("%s: row %d: id %d is outside the table", name, w>>32, int32(uint32(w))))
		}
	}
	return errors.Join(errs...)
}
