package model

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/pipetrain/pipetrain/kernels"
)

// Config describes a network: [model] of a job file. It has the keys of all families; a
// family's description says which of them are its own, what they mean and what they may be.
type Config struct {
	Kind       string  `toml:"kind"` // of a Family
	Layers     int     `toml:"layers"`
	Dim        int     `toml:"dim"`
	Heads      int     `toml:"heads"`
	KVHeads    int     `toml:"kv_heads"`
	FFN        int     `toml:"ffn"`
	Seq        int     `toml:"seq"`
	Vocab      int     `toml:"vocab"`
	Tied       bool    `toml:"tied"`
	RopeBase   float64 `toml:"rope_base"`
	NormEps    float64 `toml:"norm_eps"`
	Norm       string  `toml:"norm"`
	Activation string  `toml:"activation"`
	Positions  int     `toml:"positions"`
	// Type is what layers read and write: F32, or BF16 with the weights rounded to
	// it. Gradients of weights, statistics and losses are F32 always.
	Type kernels.DType `toml:"-"`
}

// TypeOf returns the type of layers under a precision: "fp32", "tf32" (of which only
// the device knows) or "bf16".
func TypeOf(precision string) kernels.DType {
	if precision == "bf16" {
		return kernels.BF16
	}
	return kernels.F32
}

// ByteVocab is the vocabulary of a model of bytes, which a job has that names none.
const ByteVocab = 256

// DefaultKind is the family of a Config that names none.
const DefaultKind = "transformer"

// WithDefaults returns c with the zero values of its family's keys replaced.
func (c Config) WithDefaults() Config {
	if c.Kind == "" {
		c.Kind = DefaultKind
	}
	f := FindFamily(c.Kind)
	if f == nil {
		return c
	}
	for _, k := range f.Keys {
		if v := c.field(k.Name); v.IsZero() {
			v.Set(f.Defaults.field(k.Name))
		}
	}
	f.Complete(&c)
	return c
}

// field returns the settable field of a key.
func (c *Config) field(key string) reflect.Value {
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("toml") == key {
			return v.Field(i)
		}
	}
	panic("model: no field of Config has the key " + key)
}

// Check returns every mistake of c, defaults filled in, joined.
func (c Config) Check() error {
	f := FindFamily(c.Kind)
	if f == nil {
		var names []string
		for _, f := range families {
			names = append(names, f.Name)
		}
		return fmt.Errorf("model: kind %q is unknown; known: %s", c.Kind, strings.Join(names, ", "))
	}
	var errs []error
	bad := map[string]bool{}
	fail := func(about, what, right string) {
		errs = append(errs, fmt.Errorf("model: %s%s; %s", about, what, right))
	}
	for _, k := range f.Keys {
		if what, right := k.wrong(c.field(k.Name).Interface()); what != "" {
			bad[k.Name] = true
			fail(k.Name+" ", what, right)
		}
	}
	for _, m := range f.Check(c, func(keys ...string) bool {
		for _, k := range keys {
			if bad[k] {
				return false
			}
		}
		return true
	}) {
		if m.Key != "" {
			m.Key += ": "
		}
		fail(m.Key, m.What, m.Right)
	}
	if c.Type != kernels.F32 && c.Type != kernels.BF16 {
		fail("", fmt.Sprintf("layers of %s are unknown", c.Type), "known: f32, bf16")
	}
	return errors.Join(errs...)
}
