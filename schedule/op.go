package schedule

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxIndex is the largest stage or micro-batch number an op's text may have. It
// keeps a wrong file from asking for absurd tables.
const MaxIndex = 1<<24 - 1

// kindInfo is what there is to know of a kind of op.
type kindInfo struct {
	text   string // its letters
	class  class
	ranged bool // it may cover several micro-batches
	way    way  // of a transfer

	// Of an op that computes: what the same stage has done of the micro-batch before, the
	// transfer that brings what it needs, and the one that takes what it makes.
	needs, recv, send Kind
	makes, frees      life // of what is kept for the micro-batch; freed when the op ends
}

// class is what an op does, roughly.
type class uint8

const (
	computes class = iota + 1
	sends
	receives
	waits
	updates
)

// way is the direction of a tensor: activations go to the next stage, gradients to the one before.
type way uint8

const (
	forth way = iota
	back
)

// Of each way: how far on the next stage is, the transfer's ops, and the op whose tensor goes.
var (
	wayStep = [...]int{forth: 1, back: -1}
	wayOps  = [...]struct{ send, recv, wait, made Kind }{
		forth: {SendF, RecvF, WaitF, Forward},
		back:  {SendB, RecvB, WaitB, BackwardInput},
	}
)

// life is what is kept for a micro-batch, by when it is freed: a set.
type life uint8

const (
	untilInput life = 1 << iota
	untilWeight
	fromInput
)

// kinds is the table of the kinds of ops; those that are none have the zero value.
var kinds = [256]kindInfo{
	Forward:        {text: "F", class: computes, recv: RecvF, send: SendF, makes: untilInput | untilWeight},
	BackwardInput:  {text: "I", class: computes, needs: Forward, recv: RecvB, send: SendB, makes: fromInput, frees: untilInput},
	BackwardWeight: {text: "W", class: computes, ranged: true, needs: BackwardInput, frees: untilWeight | fromInput},
	Backward:       {text: "B", class: computes, needs: Forward, recv: RecvB, send: SendB, makes: fromInput, frees: untilInput | untilWeight | fromInput},
	SendF:          {text: "SEND_F", class: sends},
	RecvF:          {text: "RECV_F", class: receives},
	SendB:          {text: "SEND_B", class: sends, way: back},
	RecvB:          {text: "RECV_B", class: receives, way: back},
	WaitF:          {text: "WAIT_F", class: waits},
	WaitB:          {text: "WAIT_B", class: waits, way: back},
	ReduceGrad:     {text: "REDUCE_GRAD", class: updates},
	Update:         {text: "UPDATE", class: updates, ranged: true},
}

// Valid says whether k is one of the declared kinds.
func (k Kind) Valid() bool { return kinds[k].class != 0 }

// String returns the kind's letters, as in an op's text.
func (k Kind) String() string {
	if !k.Valid() {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return kinds[k].text
}

// IsCompute says whether k computes: F, I, W or B.
func (k Kind) IsCompute() bool { return kinds[k].class == computes }

// IsSend says whether k is SEND_F or SEND_B.
func (k Kind) IsSend() bool { return kinds[k].class == sends }

// IsRecv says whether k is RECV_F or RECV_B.
func (k Kind) IsRecv() bool { return kinds[k].class == receives }

// IsWait says whether k is WAIT_F or WAIT_B.
func (k Kind) IsWait() bool { return kinds[k].class == waits }

// IsTransfer says whether k is part of a transfer: a send, a receive or a wait.
func (k Kind) IsTransfer() bool { return k.IsSend() || k.IsRecv() || k.IsWait() }

// bit is the kind in a set of kinds; transfers of a tensor and what computes have one.
func (k Kind) bit() uint16 { return 1 << k }

// kindList names the kinds in messages.
func kindList() string {
	var list []string
	for k := Forward; k.Valid(); k++ {
		list = append(list, k.String())
	}
	return strings.Join(list, " ")
}

// Send returns the send of the transfer that a RECV or WAIT belongs to; a send is its own.
func (o Op) Send() Op {
	w := kinds[o.Kind].way
	if o.Kind.IsRecv() {
		o.Stage -= wayStep[w]
	}
	o.Kind = wayOps[w].send
	return o
}

// Recv returns the receive of the transfer that a SEND or WAIT belongs to; a receive is its own.
func (o Op) Recv() Op {
	w := kinds[o.Kind].way
	if !o.Kind.IsRecv() {
		o.Stage += wayStep[w]
	}
	o.Kind = wayOps[w].recv
	return o
}

// wait returns the WAIT of a send.
func (o Op) wait() Op {
	o.Kind = wayOps[kinds[o.Kind].way].wait
	return o
}

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
		if kinds[k].text == name {
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
			return fail("no kind after the stage; want one of %s", kindList())
		}
		return fail("unknown kind %q; want one of %s", name, kindList())
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
	if !kinds[op.Kind].ranged {
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
