package schedule

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Form names a form of a schedule file.
type Form string

// The forms. FormCSV is torch.distributed.pipelining's compute-only CSV.
const (
	FormText Form = "text"
	FormJSON Form = "json"
	FormCSV  Form = "csv"
)

// Read reads a schedule in any form, which it tells by the first character: a
// letter begins our text, a brace JSON, and a digit, a comma or a quote a CSV. It does not Check.
func Read(text []byte) (*Schedule, Form, error) {
	for rest := bytes.TrimLeft(text, " \t\r\n"); ; {
		switch {
		case len(rest) == 0:
			return nil, "", fmt.Errorf("schedule file: it is empty")
		case rest[0] == '#': // a comment of our text form
			_, after, _ := bytes.Cut(rest, []byte("\n"))
			if rest = bytes.TrimLeft(after, " \t\r\n"); len(rest) == 0 {
				return nil, "", fmt.Errorf("schedule file: it has comments only")
			}
		case rest[0] == '{':
			s := &Schedule{}
			if err := json.Unmarshal(text, s); err != nil {
				return nil, FormJSON, err
			}
			return s, FormJSON, nil
		case rest[0] >= '0' && rest[0] <= '9' || rest[0] == ',' || rest[0] == '"':
			s, err := ReadCSV(bytes.NewReader(text))
			return s, FormCSV, err
		default:
			s, err := Parse(string(text))
			return s, FormText, err
		}
	}
}

// Write writes a schedule in a form.
func Write(s *Schedule, form Form) ([]byte, error) {
	switch form {
	case FormText:
		return []byte(Format(s)), nil
	case FormJSON:
		text, err := json.MarshalIndent(s, "", "  ")
		return append(text, '\n'), err
	case FormCSV:
		var b bytes.Buffer
		err := WriteCSV(&b, s)
		return b.Bytes(), err
	}
	return nil, fmt.Errorf("no form of schedule files is called %q; known: %s, %s, %s", form, FormText, FormJSON, FormCSV)
}
