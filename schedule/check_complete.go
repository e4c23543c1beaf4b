package schedule

import "fmt"

// checkComplete checks that each stage and micro-batch has one F and one B, or one I and one
// W, on its rank; and in an asynchronous schedule one Update.
func checkComplete(s *Schedule) error {
	compute := 0
	for _, program := range s.Programs {
		for _, o := range program {
			if o.Kind == Forward {
				compute++
			}
		}
	}
	if s.Stages > compute/s.Microbatches+1 {
		return missingForward(s) // before a table is made: it would not be bounded by the ops
	}
	saw := make([]uint16, s.Stages*s.Microbatches)
	for r, program := range s.Programs {
		for i, o := range program {
			if !o.Kind.IsCompute() && o.Kind != Update {
				continue
			}
			for k := o.First; k <= o.Last; k++ {
				if home := s.RankOf(o.Stage, k); home != r {
					return wrongOp(s, r, i, "stage %d of micro-batch %d is on rank %d", o.Stage, k, home)
				}
				cell := &saw[o.Stage*s.Microbatches+k]
				if err := checkOnce(s, r, i, k, *cell); err != nil {
					return err
				}
				*cell |= o.Kind.bit()
			}
		}
	}
	if err := checkVersions(s); err != nil {
		return err
	}
	if err := checkUpdates(s); err != nil {
		return err
	}
	for stage := range s.Stages {
		for k := range s.Microbatches {
			cell := saw[stage*s.Microbatches+k]
			kind := Kind(0)
			switch {
			case cell&Forward.bit() == 0:
				kind = Forward
			case cell&(gradBits|Backward.bit()) == 0:
				kind = Backward
			case cell&madeBits[back] == 0:
				kind = BackwardInput
			case cell&weightBits == 0:
				kind = BackwardWeight
			case s.Async != nil && cell&Update.bit() == 0:
				kind = Update
			default:
				continue
			}
			return missing(s, op(stage, kind, k))
		}
	}
	return nil
}

// checkOnce says whether op i of rank r may follow what was seen of micro-batch k.
func checkOnce(s *Schedule, r, i, k int, saw uint16) error {
	o := s.Programs[r][i]
	switch bit := o.Kind.bit(); {
	case saw&bit != 0:
		return wrongOp(s, r, i, "%s is there twice", op(o.Stage, o.Kind, k))
	case o.Kind == Backward && saw&gradBits != 0, bit&gradBits != 0 && saw&Backward.bit() != 0:
		return wrongOp(s, r, i, "stage %d, micro-batch %d: B is I and W in one, and cannot stand beside them", o.Stage, k)
	case o.Kind == Update && saw&weightBits == 0:
		return wrongOp(s, r, i, "the weight gradient of micro-batch %d comes after the update that needs it", k)
	case o.Kind == Update && (o.First%s.Async.Every != 0 || o.Last != min(o.First+s.Async.Every, s.Microbatches)-1):
		return wrongOp(s, r, i, "an update covers %d micro-batches", s.Async.Every)
	}
	return nil
}

// checkVersions checks that the weights that each F reads exist by then.
func checkVersions(s *Schedule) error {
	if s.Async == nil || s.Async.Delay < 0 {
		return nil
	}
	for r, program := range s.Programs {
		made := map[int]int{}
		for i, o := range program {
			switch o.Kind {
			case Update:
				made[o.Stage]++
			case Forward:
				if want := o.First/s.Async.Every - s.Async.Delay; want > made[o.Stage] {
					return wrongOp(s, r, i, "it reads version %d of the weights; %d updates of stage %d come before", want, made[o.Stage], o.Stage)
				}
			}
		}
	}
	return nil
}

// checkUpdates checks that an update has the gradients of its own micro-batches
// and no others, that a W joins micro-batches of one version of the weights,
// and that each stage is on one rank: copies on two would go their own ways.
func checkUpdates(s *Schedule) error {
	if s.Async == nil {
		return nil
	}
	for stage := range s.Stages {
		if ranks := s.Holders(stage); len(ranks) > 1 {
			return wrong("stage %d is on ranks %d and %d: updates within the step would make their weights differ", stage, ranks[0], ranks[1])
		}
	}
	versions := Versions(s)
	for r, program := range s.Programs {
		added := map[int]int{} // stage → micro-batches whose gradients are in since the last update
		for i, o := range program {
			switch o.Kind {
			case Backward, BackwardWeight:
				added[o.Stage] += o.Microbatches()
				for k := o.First; k <= o.Last; k++ {
					if v := versions[o.Stage]; v[k] != v[o.First] {
						return wrongOp(s, r, i, "it joins micro-batches %d and %d, which read versions %d and %d of the weights", o.First, k, v[o.First], v[k])
					}
				}
			case Update:
				// Those that it covers are in, or their gradients would come too late.
				if n := o.Microbatches(); added[o.Stage] != n {
					return wrongOp(s, r, i, "the gradients of %d micro-batches are in, the update covers %d", added[o.Stage], n)
				}
				added[o.Stage] = 0
			}
		}
	}
	return nil
}

func missing(s *Schedule, o Op) error {
	rank := -1
	if s.Place != nil { // a CSV's is not known yet
		rank = s.RankOf(o.Stage, o.First)
	}
	return &CheckError{Rank: rank, Index: -1, Reason: o.String() + " is missing"}
}

// missingForward finds the first F that no program has.
func missingForward(s *Schedule) error {
	have := map[Op]bool{}
	for _, program := range s.Programs {
		for _, o := range program {
			if o.Kind == Forward {
				have[o] = true
			}
		}
	}
	for stage := range s.Stages {
		for k := range s.Microbatches {
			if o := op(stage, Forward, k); !have[o] {
				return missing(s, o)
			}
		}
	}
	return nil
}

// checkTransfers checks a lowered schedule's transfers and reductions: each
// tensor that changes ranks sent once after it is made, waited for once after that, and received once before it
// is needed, each channel received in the order sent, each stage reduced once
// by each of its ranks when its gradients are complete.
func checkTransfers(s *Schedule) error {
	saw := make([]uint16, s.Stages*s.Microbatches)
	free := newChannels(s)
	sent := make([][]int, free.count())
	for r, program := range s.Programs {
		for i, o := range program {
			if o.Kind.IsCompute() {
				if recv, _ := s.transfers(o); recv.Kind != 0 && saw[s.cell(o)]&recv.Kind.bit() == 0 {
					return wrongOp(s, r, i, "%s must stand before it", recv)
				}
			} else if !o.Kind.IsTransfer() {
				continue
			} else if why := badTransfer(s, r, o, saw[s.cell(o)]); why != "" {
				return wrongOp(s, r, i, "%s", why)
			}
			for k := o.First; k <= o.Last; k++ {
				saw[o.Stage*s.Microbatches+k] |= o.Kind.bit()
			}
			if o.Kind.IsSend() {
				ch := free.index(o)
				sent[ch] = append(sent[ch], o.First)
			}
		}
	}
	for stage := range s.Stages {
		for k := range s.Microbatches {
			for _, way := range wayOps {
				_, send := s.transfers(op(stage, way.made, k))
				if send.Kind == 0 {
					continue
				}
				for _, o := range []Op{send, send.wait()} {
					if saw[s.cell(o)]&o.Kind.bit() == 0 {
						return missing(s, o)
					}
				}
			}
		}
	}
	if err := checkChannels(s, sent); err != nil {
		return err
	}
	return checkReductions(s)
}

// Sets of kinds: both halves of a split backward, and what ends each of them.
var (
	gradBits   = BackwardInput.bit() | BackwardWeight.bit()
	weightBits = BackwardWeight.bit() | Backward.bit()
	madeBits   = [...]uint16{forth: Forward.bit(), back: BackwardInput.bit() | Backward.bit()} // what makes a tensor that goes this way
)

// badTransfer returns what is wrong with a SEND, RECV or WAIT after what its rank did with the micro-batch
// on that stage before it, or "".
func badTransfer(s *Schedule, r int, o Op, saw uint16) string {
	other, made := o.Recv().Stage, madeBits[kinds[o.Kind].way]
	if o.Kind.IsRecv() {
		other = o.Send().Stage
	}
	switch home := s.RankOf(o.Stage, o.First); {
	case home != r:
		return fmt.Sprintf("stage %d of micro-batch %d is on rank %d", o.Stage, o.First, home)
	case s.RankOf(other, o.First) == r:
		return fmt.Sprintf("stage %d is on this rank too: nothing is sent", other)
	case saw&o.Kind.bit() != 0:
		return "it is there twice"
	case o.Kind.IsSend() && saw&made == 0:
		return "what it sends is not made yet"
	case o.Kind.IsWait() && saw&o.Send().Kind.bit() == 0:
		return fmt.Sprintf("%s must stand before it", o.Send())
	case o.Kind.IsRecv() && saw&made != 0:
		return "what it receives was needed before"
	}
	return ""
}

// checkChannels checks that receives of a channel come in the order of its sends.
func checkChannels(s *Schedule, sent [][]int) error {
	free := newChannels(s)
	next := make([]int, len(sent))
	for r, program := range s.Programs {
		for i, o := range program {
			if !o.Kind.IsRecv() {
				continue
			}
			send := o.Send()
			ch := free.index(send)
			if k := sent[ch][next[ch]]; k != o.First {
				return wrongOp(s, r, i, "rank %d sends %s before; a channel is received in the order sent",
					s.RankOf(send.Stage, k), op(send.Stage, send.Kind, k))
			}
			next[ch]++
		}
	}
	return nil
}

// checkReductions checks that each rank reduces each of its stages once, after its last weight gradient.
func checkReductions(s *Schedule) error {
	if s.Async != nil {
		return nil
	}
	for r, program := range s.Programs {
		reduced := map[int]bool{}
		for i, o := range program {
			switch {
			case o.Kind == ReduceGrad && reduced[o.Stage]:
				return wrongOp(s, r, i, "it is there twice")
			case o.Kind == ReduceGrad:
				reduced[o.Stage] = true
			case (o.Kind == BackwardWeight || o.Kind == Backward) && reduced[o.Stage]:
				return wrongOp(s, r, i, "stage %d was reduced before its last weight gradient", o.Stage)
			}
		}
		held := s.StagesOf(r)
		for _, stage := range held {
			if !reduced[stage] {
				return &CheckError{Rank: r, Index: -1, Reason: Op{Stage: stage, Kind: ReduceGrad}.String() + " is missing"}
			}
			delete(reduced, stage)
		}
		for i, o := range program {
			if o.Kind == ReduceGrad && reduced[o.Stage] {
				return wrongOp(s, r, i, "stage %d is not on this rank", o.Stage)
			}
		}
	}
	return nil
}
