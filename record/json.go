package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// JSON of ours prints floats so that they read back to the same bits, and always
// with a point or an exponent, so that every reader takes them for floats (-0.0
// keeps its sign). JSON has no NaN and no infinity; they are written as the
// strings "NaN", "Infinity" and "-Infinity", which is protobuf's convention and
// what float() of Python and Number() of JavaScript read: the line stays valid,
// and which of the three it was is not lost, as it would be with null.

// appendFloat appends v in that form.
func appendFloat(b []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(b, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(b, `"-Infinity"`...)
	}
	from := len(b)
	b = strconv.AppendFloat(b, v, 'g', -1, 64)
	if !bytes.ContainsAny(b[from:], ".e") {
		b = append(b, ".0"...)
	}
	return b
}

// parseFloat reads what appendFloat wrote, and any JSON number.
func parseFloat(raw []byte) (float64, error) {
	switch string(raw) {
	case `"NaN"`:
		return math.NaN(), nil
	case `"Infinity"`:
		return math.Inf(1), nil
	case `"-Infinity"`:
		return math.Inf(-1), nil
	}
	var v float64
	err := json.Unmarshal(raw, &v)
	return v, err
}

// eachField calls do with the fields of a struct that have a json name, in order.
func eachField(v reflect.Value, do func(name string, omitEmpty bool, f reflect.Value) error) error {
	for i := range v.NumField() {
		name, opts, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		if err := do(name, opts == "omitempty", v.Field(i)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// appendObject appends a struct as a JSON object with floats in our form.
func appendObject(b []byte, v reflect.Value) ([]byte, error) {
	b = append(b, '{')
	first := true
	err := eachField(v, func(name string, omitEmpty bool, f reflect.Value) error {
		if omitEmpty && (f.IsZero() || (f.Kind() == reflect.Slice || f.Kind() == reflect.Map) && f.Len() == 0) {
			return nil
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(strconv.AppendQuote(b, name), ':')
		var err error
		b, err = appendValue(b, f.Interface())
		return err
	})
	return append(b, '}'), err
}

func appendValue(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case float64:
		return appendFloat(b, v), nil
	case []float64:
		b = append(b, '[')
		for i, x := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendFloat(b, x)
		}
		return append(b, ']'), nil
	case map[string]float64:
		b = append(b, '{')
		for i, k := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b = append(b, ',')
			}
			key, err := json.Marshal(k)
			if err != nil {
				return b, err
			}
			b = appendFloat(append(append(b, key...), ':'), v[k])
		}
		return append(b, '}'), nil
	}
	j, err := json.Marshal(v)
	return append(b, j...), err
}

// readObject fills a struct from what appendObject wrote. Names it does not
// know are ignored, so that a reader lives with a newer writer.
func readObject(raw []byte, v reflect.Value) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return err
	}
	return eachField(v, func(name string, _ bool, f reflect.Value) error {
		raw, ok := m[name]
		if !ok || string(raw) == "null" {
			return nil
		}
		switch p := f.Addr().Interface().(type) {
		case *float64:
			x, err := parseFloat(raw)
			*p = x
			return err
		case *[]float64:
			var parts []json.RawMessage
			if err := json.Unmarshal(raw, &parts); err != nil {
				return err
			}
			for _, r := range parts {
				x, err := parseFloat(r)
				if err != nil {
					return err
				}
				*p = append(*p, x)
			}
			return nil
		case *map[string]float64:
			var parts map[string]json.RawMessage
			if err := json.Unmarshal(raw, &parts); err != nil {
				return err
			}
			*p = map[string]float64{}
			for k, r := range parts {
				x, err := parseFloat(r)
				if err != nil {
					return err
				}
				(*p)[k] = x
			}
			return nil
		default:
			return json.Unmarshal(raw, p)
		}
	})
}
