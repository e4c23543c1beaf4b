package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// parseHeader reads the JSON header token by token: encoding/json alone would
// take the last of two equal names, match names whatever their case, and
// replace bytes that are no UTF-8.
func (f *File) parseHeader(text []byte) error {
	if len(text) == 0 || text[0] != '{' {
		return errors.New("does not start with '{'")
	}
	if !utf8.Valid(text) {
		return errors.New("is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	f.infos = map[string]TensorInfo{}
	err := eachMember(d, func(name string) error {
		if name == metadataKey {
			f.Metadata = map[string]string{}
			return eachMember(d, func(k string) (err error) {
				f.Metadata[k], err = text1(d)
				return err
			})
		}
		t, err := parseEntry(d)
		t.Name = name
		f.infos[name] = t
		f.names = append(f.names, name)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("goes on after its object")
	}
	slices.SortStableFunc(f.names, func(a, b string) int {
		x, y := f.infos[a], f.infos[b]
		return cmp.Or(cmp.Compare(x.Begin, y.Begin), cmp.Compare(x.End, y.End))
	})
	return nil
}

// eachMember reads an object, calling member after each name to read its value.
// The same name twice is an error.
func eachMember(d *json.Decoder, member func(name string) error) error {
	if err := delim(d, '{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for d.More() {
		name, err := text1(d)
		if err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("%q is there twice", name)
		}
		seen[name] = true
		if err := member(name); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	return delim(d, '}')
}

func parseEntry(d *json.Decoder) (t TensorInfo, err error) {
	have := 0
	err = eachMember(d, func(key string) (err error) {
		have++
		switch key {
		case "dtype":
			t.DType, err = text1(d)
		case "shape":
			var s []int64
			s, err = naturals(d)
			for _, v := range s {
				if v != int64(int(v)) {
					return fmt.Errorf("dimension %d is too large", v)
				}
				t.Shape = append(t.Shape, int(v))
			}
		case "data_offsets":
			var o []int64
			if o, err = naturals(d); err == nil && (len(o) != 2 || o[0] > o[1]) {
				err = fmt.Errorf("want [begin, end], got %v", o)
			}
			if err == nil {
				t.Begin, t.End = o[0], o[1]
			}
		default:
			return errors.New("unknown key")
		}
		return err
	})
	if err == nil && have != 3 {
		err = errors.New("want dtype, shape and data_offsets")
	}
	return t, err
}

func delim(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	if err != nil {
		return jsonEnd(err)
	}
	if t != want {
		return fmt.Errorf("want %q, got %v", rune(want), t)
	}
	return nil
}

// text1 reads one string.
func text1(d *json.Decoder) (string, error) {
	t, err := d.Token()
	if err != nil {
		return "", jsonEnd(err)
	}
	s, ok := t.(string)
	if !ok {
		return "", fmt.Errorf("want text, got %v", t)
	}
	return s, nil
}

// naturals reads an array of integers ≥ 0.
func naturals(d *json.Decoder) ([]int64, error) {
	if err := delim(d, '['); err != nil {
		return nil, err
	}
	var out []int64
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, jsonEnd(err)
		}
		n, ok := t.(json.Number)
		if !ok {
			return nil, fmt.Errorf("want an integer, got %v", t)
		}
		v, err := strconv.ParseUint(n.String(), 10, 63)
		if err != nil {
			return nil, fmt.Errorf("want an integer of at least 0, got %s", n)
		}
		out = append(out, int64(v))
	}
	return out, delim(d, ']')
}

func jsonEnd(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
