package study

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// tomlText writes a value as TOML.
func tomlText(v any) string {
	switch x := v.(type) {
	case string:
		var b strings.Builder
		b.WriteByte('"')
		for _, r := range x {
			switch {
			case r == '"' || r == '\\':
				b.WriteRune('\\')
				b.WriteRune(r)
			case r < ' ' || r == 0x7f:
				fmt.Fprintf(&b, `\u%04X`, r)
			default:
				b.WriteRune(r)
			}
		}
		return b.String() + `"`
	case float64:
		s := strconv.FormatFloat(x, 'g', -1, 64)
		if !strings.ContainsAny(s, ".en") {
			s += ".0"
		}
		return s
	case []any:
		var parts []string
		for _, y := range x {
			parts = append(parts, tomlText(y))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprint(v)
}

// shown prints a value in a message.
func shown(v any) string {
	switch v.(type) {
	case map[string]any:
		return "a table"
	case []any, []map[string]any:
		if reflect.ValueOf(v).Len() == 0 {
			return "an empty list"
		}
		return "a list"
	}
	return tomlText(v)
}
