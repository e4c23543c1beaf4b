package schedule

import (
	"strings"
	"testing"
)

func TestOpText(t *testing.T) {
	for text, want := range map[string]Op{
		"2F0":           {2, Forward, 0, 0},
		"2I0":           {2, BackwardInput, 0, 0},
		"10W0-3":        {10, BackwardWeight, 0, 3},
		"2W7":           {2, BackwardWeight, 7, 7},
		"2B15":          {2, Backward, 15, 15},
		"2SEND_F1":      {2, SendF, 1, 1},
		"2RECV_F1":      {2, RecvF, 1, 1},
		"2SEND_B1":      {2, SendB, 1, 1},
		"2RECV_B1":      {2, RecvB, 1, 1},
		"2WAIT_F1":      {2, WaitF, 1, 1},
		"2WAIT_B1":      {2, WaitB, 1, 1},
		"2REDUCE_GRAD":  {2, ReduceGrad, 0, 0},
		"0UPDATE4-7":    {0, Update, 4, 7},
		"16777215F1048": {MaxIndex, Forward, 1048, 1048},
	} {
		got, err := ParseOp(text)
		if err != nil || got != want {
			t.Errorf("ParseOp(%q) = %+v, %v; want %+v", text, got, err, want)
		}
		if want.String() != text {
			t.Errorf("%+v prints as %q, want %q", want, want.String(), text)
		}
	}
	if n := (Op{2, BackwardWeight, 3, 6}).Microbatches(); n != 4 {
		t.Errorf("2W3-6 covers %d micro-batches, want 4", n)
	}
}

// The ops of one transfer name each other.
func TestTransferEnds(t *testing.T) {
	for _, c := range [][3]Op{
		{{2, SendF, 5, 5}, {3, RecvF, 5, 5}, {2, WaitF, 5, 5}},
		{{2, SendB, 5, 5}, {1, RecvB, 5, 5}, {2, WaitB, 5, 5}},
	} {
		for _, o := range c {
			if !o.Kind.IsTransfer() || o.Send() != c[0] || o.Recv() != c[1] || o.Send().wait() != c[2] {
				t.Errorf("%s: sent by %s, received by %s, waited for by %s", o, o.Send(), o.Recv(), o.Send().wait())
			}
		}
	}
	for k := Kind(0); k < 255; k++ {
		if k.Valid() != (k >= Forward && k <= Update) {
			t.Errorf("%s: valid is %v", k, k.Valid())
		}
	}
}

func TestOpRefused(t *testing.T) {
	for text, reason := range map[string]string{
		"":                          "no number",
		"F0":                        "no number",
		"0F":                        "no number",
		"0F1xyz":                    "after the op",
		"0F1 ":                      "after the op",
		" 0F1":                      "no number",
		"0f1":                       "no kind",
		"00F1":                      "leading zero",
		"0F01":                      "leading zero",
		"-1F0":                      "no number",
		"0F1-2":                     "only W",
		"0W3-3":                     "write 0W3",
		"0W3-1":                     "a range goes up",
		"0W3-":                      "no number",
		"0W1-2-3":                   "after the op",
		"0BW3":                      "older PyTorch",
		"0UNSHARD":                  "sharded",
		"0REDUCE_GRAD0":             "takes no micro-batch",
		"0SENDF0":                   "unknown kind",
		"16777216F0":                "number above",
		"99999999999999999999999F0": "number above",
		"(0F1;1B0)OVERLAP_F_B":      "no number",
		"٣F0":                       "no number",
	} {
		got, err := ParseOp(text)
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("ParseOp(%q) = %v, %v; want an error with %q", text, got, err, reason)
		}
	}
}

func FuzzParseOp(f *testing.F) {
	for _, text := range []string{"2F0", "2W0-3", "2SEND_F1", "2REDUCE_GRAD", "0BW3", "0F1xyz", "1UPDATE0-1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := ParseOp(text)
		if err != nil {
			return
		}
		if o.String() != text {
			t.Errorf("%q parses to %+v, which prints as %q", text, o, o.String())
		}
	})
}
