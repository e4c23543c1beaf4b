package schedule

import (
	"strings"
	"testing"
)

// What an asynchronous schedule must not do, each named with its op.
func TestCheckAsync(t *testing.T) {
	for name, c := range map[string]struct {
		async string
		rows  []string
		both  bool // directions
		want  string
	}{
		"good":       {"async every 2 delay 1", []string{"0F0 0F1 0I0 0I1 0W0-1 0UPDATE0-1 0F2 0B2 0F3 0B3 0UPDATE2-3"}, false, ""},
		"too many":   {"async every 2 delay 1", []string{"0F0 0F1 0F2 0B0 0B1 0B2 0UPDATE0-1 0F3 0B3 0UPDATE2-3"}, false, "rank 0: op 6 (0UPDATE0-1): the gradients of 3 micro-batches are in, the update covers 2"},
		"too late":   {"async every 2 delay 1", []string{"0F0 0F1 0F2 0B0 0UPDATE0-1 0B1 0B2 0F3 0B3 0UPDATE2-3"}, false, "the weight gradient of micro-batch 1 comes after the update that needs it"},
		"two sums":   {"async every 1 delay -1", []string{"0F0 0F1 0F2 0I0 0I1 0W0-1 0UPDATE0 0UPDATE1 0F3 0B2 0UPDATE2 0B3 0UPDATE3"}, false, "the gradients of 2 micro-batches are in, the update covers 1"},
		"fresh":      {"async every 2 delay 0", []string{"0F0 0F1 0I0 0I1 0W0-1 0UPDATE0-1 0F2 0F3 0I2 0I3 0W2-3 0UPDATE2-3"}, false, ""},
		"one sum":    {"async every 4 delay -1", []string{"0F0 0F1 0F2 0F3 0I0 0I1 0I2 0I3 0W0-3 0UPDATE0-3"}, false, ""},
		"mixed":      {"async every 2 delay -1", []string{"0F0 0F1 0F2 0B0 0B1 0UPDATE0-1 0F3 0I2 0I3 0W2-3 0UPDATE2-3"}, false, "rank 0: op 9 (0W2-3): it joins micro-batches 2 and 3, which read versions 0 and 1 of the weights"},
		"directions": {"async every 1 delay -1", []string{"0F0 0B0 0UPDATE0 1F1 1B1 1UPDATE1 1F3 1B3 1UPDATE3 0F2 0B2 0UPDATE2", "1F0 1B0 1UPDATE0 0F1 0B1 0UPDATE1 0F3 0B3 0UPDATE3 1F2 1B2 1UPDATE2"}, true, "stage 0 is on ranks 0 and 1: updates within the step would make their weights differ"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Build("pipedream", Config{Ranks: len(c.rows), Microbatches: 4})
			if err != nil {
				t.Fatal(err)
			}
			s.Async, _ = parseAsync(strings.TrimPrefix(c.async, "async "))
			if c.both {
				s.Place, s.Direction = [][]int{{0, 1}, {1, 0}}, []uint8{0, 1, 0, 1}
			}
			for r, row := range c.rows {
				s.Programs[r] = nil
				for _, text := range strings.Fields(row) {
					o, err := ParseOp(text)
					if err != nil {
						t.Fatal(err)
					}
					s.Programs[r] = append(s.Programs[r], o)
				}
			}
			err = Check(s)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
