// Package tfevents writes and reads the event files of TensorBoard: scalars by step.
//
// A file is a sequence of records (TFRecord): the length as 64 bits, its masked
// CRC-32C, the data, its masked CRC-32C, all little endian. The data is a
// protocol buffer, tensorflow.Event: 1 double wall_time, 2 int64 step, and one of
// 3 string file_version, 5 Summary {1 Value {1 string tag, 2 float simple_value}},
// 7 SessionLog {1 status}. A reader leaves out a torn or damaged tail, and what an
// earlier file of the folder has from the step on at which a later one begins with START.
package tfevents

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
)

// Scalar is one value of a step.
type Scalar struct {
	Tag   string
	Value float32
}

// Event is one record: the scalars of a step, or a mark.
type Event struct {
	WallTime float64 // seconds since 1970
	Step     int64
	Version  string // of the first record of a file
	Start    bool   // a run begins, or goes on, at Step
	Scalars  []Scalar
}

// fileVersion is what TensorBoard expects of the first record.
const fileVersion = "brain.Event:2"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is TFRecord's checksum: a CRC of data that holds CRCs would be weak.
func masked(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// Header returns the records that a file begins with. Start says that a run goes on after
// step: TensorBoard then drops what earlier files of the folder have beyond it.
func Header(wallTime float64, step int64) []byte {
	b := appendRecord(nil, Event{WallTime: wallTime, Version: fileVersion})
	return appendRecord(b, Event{WallTime: wallTime, Step: step, Start: true})
}

// Append appends an event as a record.
func Append(b []byte, e Event) []byte { return appendRecord(b, e) }

func appendRecord(b []byte, e Event) []byte {
	data := e.encode()
	var size [8]byte
	binary.LittleEndian.PutUint64(size[:], uint64(len(data)))
	b = append(b, size[:]...)
	b = binary.LittleEndian.AppendUint32(b, masked(size[:]))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, masked(data))
}

// Wire types of protocol buffers.
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wire32     = 5
)

func tag(b []byte, field, wire int) []byte {
	return binary.AppendUvarint(b, uint64(field<<3|wire))
}

func message(b []byte, field int, m []byte) []byte {
	b = binary.AppendUvarint(tag(b, field, wireBytes), uint64(len(m)))
	return append(b, m...)
}

func (e Event) encode() []byte {
	b := binary.LittleEndian.AppendUint64(tag(nil, 1, wire64), math.Float64bits(e.WallTime))
	if e.Step != 0 {
		b = binary.AppendUvarint(tag(b, 2, wireVarint), uint64(e.Step))
	}
	if e.Version != "" {
		b = message(b, 3, []byte(e.Version))
	}
	if len(e.Scalars) > 0 {
		var summary []byte
		for _, s := range e.Scalars {
			v := message(nil, 1, []byte(s.Tag))
			v = binary.LittleEndian.AppendUint32(tag(v, 2, wire32), math.Float32bits(s.Value))
			summary = message(summary, 1, v)
		}
		b = message(b, 5, summary)
	}
	if e.Start {
		b = message(b, 7, []byte{1<<3 | wireVarint, 1})
	}
	return b
}

// Read returns the events of a file up to its end or the first record that is torn or
// damaged, and the bytes that are whole.
func Read(r io.Reader) (events []Event, whole int64, err error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, 0, err
	}
	for at := 0; ; {
		data, n := record(b[at:])
		if n == 0 {
			return events, int64(at), nil
		}
		e, ok := decode(data)
		if !ok {
			return events, int64(at), nil
		}
		events = append(events, e)
		at += n
	}
}

// record returns the data of the first record and the bytes it takes; 0 where it is not whole.
func record(b []byte) (data []byte, n int) {
	if len(b) < 12 || binary.LittleEndian.Uint32(b[8:]) != masked(b[:8]) {
		return nil, 0
	}
	size := binary.LittleEndian.Uint64(b)
	if size > uint64(len(b)) || int(size)+16 > len(b) {
		return nil, 0
	}
	data = b[12 : 12+size]
	if binary.LittleEndian.Uint32(b[12+size:]) != masked(data) {
		return nil, 0
	}
	return data, int(size) + 16
}

// fields calls f for each field of a message. It says whether the message is well formed.
func fields(b []byte, f func(field int, number uint64, bytes []byte) bool) bool {
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return false
		}
		b = b[n:]
		var number uint64
		var bytes []byte
		switch key & 7 {
		case wireVarint:
			if number, n = binary.Uvarint(b); n <= 0 {
				return false
			}
		case wire64:
			if n = 8; len(b) < n {
				return false
			}
			number = binary.LittleEndian.Uint64(b)
		case wire32:
			if n = 4; len(b) < n {
				return false
			}
			number = uint64(binary.LittleEndian.Uint32(b))
		case wireBytes:
			size, m := binary.Uvarint(b)
			if m <= 0 || size > uint64(len(b)-m) {
				return false
			}
			bytes, n = b[m:m+int(size)], m+int(size)
		default:
			return false
		}
		b = b[n:]
		if !f(int(key>>3), number, bytes) {
			return false
		}
	}
	return true
}

func decode(b []byte) (e Event, ok bool) {
	ok = fields(b, func(field int, number uint64, bytes []byte) bool {
		switch field {
		case 1:
			e.WallTime = math.Float64frombits(number)
		case 2:
			e.Step = int64(number)
		case 3:
			e.Version = string(bytes)
		case 5:
			return fields(bytes, func(_ int, _ uint64, value []byte) bool {
				var s Scalar
				e.Scalars = append(e.Scalars, s)
				last := &e.Scalars[len(e.Scalars)-1]
				return fields(value, func(field int, number uint64, bytes []byte) bool {
					switch field {
					case 1:
						last.Tag = string(bytes)
					case 2:
						last.Value = math.Float32frombits(uint32(number))
					}
					return true
				})
			})
		case 7:
			return fields(bytes, func(field int, number uint64, _ []byte) bool {
				e.Start = e.Start || field == 1 && number == 1
				return true
			})
		}
		return true
	})
	return e, ok
}
