package tfevents

import (
	"bytes"
	"encoding/hex"
	"math"
	"reflect"
	"testing"
)

func sample() []byte {
	b := Header(1.5, 3)
	b = Append(b, Event{WallTime: 2, Step: 4, Scalars: []Scalar{{"loss", 0.25}, {"grad_norm", float32(math.Inf(1))}}})
	return Append(b, Event{WallTime: 3, Step: 300, Scalars: []Scalar{{"loss", -7}}})
}

func TestWrittenIsRead(t *testing.T) {
	events, whole, err := Read(bytes.NewReader(sample()))
	want := []Event{
		{WallTime: 1.5, Version: "brain.Event:2"},
		{WallTime: 1.5, Step: 3, Start: true},
		{WallTime: 2, Step: 4, Scalars: []Scalar{{"loss", 0.25}, {"grad_norm", float32(math.Inf(1))}}},
		{WallTime: 3, Step: 300, Scalars: []Scalar{{"loss", -7}}},
	}
	if err != nil || whole != int64(len(sample())) || !reflect.DeepEqual(events, want) {
		t.Errorf("%+v, %d, %v", events, whole, err)
	}
}

// The first record as TensorFlow 2 writes it for a wall time of 1.5: length 24,
// its checksum, field 1 as a double, field 3 "brain.Event:2", the checksum.
func TestFirstRecordByHand(t *testing.T) {
	got := hex.EncodeToString(Append(nil, Event{WallTime: 1.5, Version: fileVersion}))
	const want = "1800000000000000" + "a37f4b22" + "09000000000000f83f" + "1a0d627261696e2e4576656e743a32"
	if got[:len(want)] != want || len(got) != len(want)+8 {
		t.Errorf("got  %s\nwant %s and a checksum", got, want)
	}
}

// CRC-32C of "123456789" is 0xe3069283 (RFC 3720, appendix B.4 has others), masked as TFRecord does.
func TestChecksum(t *testing.T) {
	c := uint32(0xe3069283)
	if got := masked([]byte("123456789")); got != (c>>15|c<<17)+0xa282ead8 {
		t.Errorf("%08x", got)
	}
}

// Cut at any byte, or with any bit wrong, what is read is the beginning of what was written.
func TestTornAndDamaged(t *testing.T) {
	b := sample()
	all, _, _ := Read(bytes.NewReader(b))
	begins := func(what string, at int, c []byte) {
		t.Helper()
		got, whole, err := Read(bytes.NewReader(c))
		if err != nil || len(got) > len(all) || len(got) > 0 && !reflect.DeepEqual(got, all[:len(got)]) || whole > int64(len(b)) {
			t.Fatalf("%s %d: %+v, %v", what, at, got, err)
		}
		if len(got) == len(all) {
			t.Fatalf("%s %d went unnoticed", what, at)
		}
	}
	for i := range b {
		begins("cut at", i, b[:i])
		c := bytes.Clone(b)
		c[i] ^= 1 << (i % 8)
		begins("a wrong bit in byte", i, c)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(sample())
	f.Add(Append(nil, Event{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		events, whole, err := Read(bytes.NewReader(b))
		if err != nil || whole > int64(len(b)) || whole == 0 && len(events) > 0 {
			t.Errorf("%d events, %d bytes, %v", len(events), whole, err)
		}
		// A record whose checksums are right but whose message is anything.
		_, _ = decode(b)
	})
}
