package schedule

import (
	"fmt"
	"strconv"
)

// MaxIndex is the largest stage or micro-batch number an op's text may have. It
// keeps a wrong file from asking for absurd tables.
const MaxIndex = 1<<24 - 1

var kindNames = [...]string{
	Forward: "F", BackwardInput: "I", BackwardWeight: "W", Backward: "B",
	SendF: "SEND_F", RecvF: "RECV_F", SendB: "SEND_B", RecvB: "RECV_B",
	ReduceGrad: "REDUCE_GRAD", Update: "UPDATE",
}

// Valid says whether k is one of the declared kinds.
func (k Kind) Valid() bool { return k >= Forward && k <= Update }

// String returns the kind's letters, as in an op's text.
func (k Kind) String() string {
	if !k.Valid() {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// IsCompute says whether k computes: F, I, W or B.
func (k Kind) IsCompute() bool { return k >= Forward && k <= Backward }

// IsSend says whether k is SEND_F or SEND_B.
func (k Kind) IsSend() bool { return k == SendF || k == SendB }

// IsRecv says whether k is RECV_F or RECV_B.
func (k Kind) IsRecv() bool { return k == RecvF || k == RecvB }

// ranged says whether an op of this kind may cover several micro-batches.
func (k Kind) ranged() bool { return k == BackwardWeight || k == Update }

// Microbatches returns how many micro-batches op covers: 1 but for a concatenated
// W or an Update; 0 for REDUCE_GRAD.
func (o Op) Microbatches() int {
	if o.Kind == ReduceGrad {
		return 0
	}
	return o.Last - o.First + 1
}

// String prints op as "2F0", "2W0-3", "2SEND_F1" or "2REDUCE_GRAD".
func (o Op) String() string { return string(o.AppendText(nil)) }

// AppendText appends op's text to b.
func (o Op) AppendText(b []byte) []byte {
	b = strconv.AppendInt(b, int64(o.Stage), 10)
	b = append(b, o.Kind.String()...)
	if o.Kind == ReduceGrad {
		return b
	}
	b = strconv.AppendInt(b, int64(o.First), 10)
	if o.Last != o.First {
		b = append(b, '-')
		b = strconv.AppendInt(b, int64(o.Last), 10)
	}
	return b
}

// OpError says why a text is not an op.
type OpError struct {
	Text   string
	Reason string
}

func (e *OpError) Error() string { return fmt.Sprintf("%q is not an op: %s", e.Text, e.Reason) }

// ParseOp reads what Op.String prints, and nothing else: no blanks, no leading
// zeros, nothing after the op. The letters are torch.distributed.pipelining's
// current ones; "BW", which its older files use for the fused backward, is
// refused, for there B means what is I here.
func ParseOp(text string) (Op, error) {
	fail := func(format string, args ...any) (Op, error) {
		if len(text) > 64 {
			text = text[:64] + "…"
		}
		return Op{}, &OpError{Text: text, Reason: fmt.Sprintf(format, args...)}
	}
	stage, rest, why := parseIndex(text)
	if why != "" {
		return fail("stage: %s", why)
	}
	n := 0
	for n < len(rest) && (rest[n] >= 'A' && rest[n] <= 'Z' || rest[n] == '_') {
		n++
	}
	name, rest := rest[:n], rest[n:]
	op := Op{Stage: stage}
	for k := Forward; k.Valid(); k++ {
		if kindNames[k] == name {
			op.Kind = k
		}
	}
	if op.Kind == 0 {
		switch name {
		case "BW":
			return fail("BW is the fused backward of older PyTorch files, where B is the input gradient alone; " +
				"write B for the fused backward and I for the input gradient")
		case "UNSHARD", "RESHARD":
			return fail("%s belongs to sharded data parallelism, which is not supported", name)
		case "":
			return fail("no kind after the stage; want one of F I W B SEND_F RECV_F SEND_B RECV_B REDUCE_GRAD UPDATE")
		}
		return fail("unknown kind %q; want one of F I W B SEND_F RECV_F SEND_B RECV_B REDUCE_GRAD UPDATE", name)
	}
	if op.Kind == ReduceGrad {
		if rest != "" {
			return fail("REDUCE_GRAD is of a stage and takes no micro-batch")
		}
		return op, nil
	}
	if op.First, rest, why = parseIndex(rest); why != "" {
		return fail("micro-batch: %s", why)
	}
	op.Last = op.First
	if rest == "" {
		return op, nil
	}
	if rest[0] != '-' {
		return fail("%q after the op", rest)
	}
	if !op.Kind.ranged() {
		return fail("%s covers one micro-batch; only W and UPDATE cover a range", op.Kind)
	}
	if op.Last, rest, why = parseIndex(rest[1:]); why != "" {
		return fail("last micro-batch: %s", why)
	}
	if rest != "" {
		return fail("%q after the op", rest)
	}
	if op.Last <= op.First {
		return fail("a range goes up; write %d%s%d for one micro-batch", op.Stage, op.Kind, op.First)
	}
	return op, nil
}

// parseIndex reads the digits that text starts with.
func parseIndex(text string) (n int, rest, why string) {
	i := 0
	for i < len(text) && text[i] >= '0' && text[i] <= '9' {
		if n = n*10 + int(text[i]-'0'); n > MaxIndex {
			return 0, "", fmt.Sprintf("number above %d", MaxIndex)
		}
		i++
	}
	switch {
	case i == 0:
		return 0, "", "no number"
	case i > 1 && text[0] == '0':
		return 0, "", "leading zero"
	}
	return n, text[i:], ""
}

// MarshalText and UnmarshalText make an Op its text in JSON and TOML.
func (o Op) MarshalText() ([]byte, error) { return o.AppendText(nil), nil }

// UnmarshalText reads the op's text as ParseOp does.
func (o *Op) UnmarshalText(text []byte) error {
	op, err := ParseOp(string(text))
	if err != nil {
		return err
	}
	*o = op
	return nil
}
