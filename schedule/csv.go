package schedule

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
)

// WriteCSV writes torch.distributed.pipelining's compute-only CSV: a row for each
// rank, a cell for each time step (each op one step), empty where the rank is
// idle. That form has no concatenated W, no transfers and no updates.
func WriteCSV(w io.Writer, s *Schedule) error {
	if s.Lowered || s.Async != nil {
		return fmt.Errorf("schedule %s as CSV: the compute-only form has no transfers and no updates; write it before lowering", s.Name)
	}
	for r, program := range s.Programs {
		for i, o := range program {
			if o.Microbatches() > 1 {
				return wrongOp(s, r, i, "the compute-only CSV has no concatenated W; use concat 1")
			}
		}
	}
	t, err := Simulate(s, cellCosts{})
	if err != nil {
		return err
	}
	rows := make([][]string, s.Ranks)
	for r := range rows {
		rows[r] = make([]string, int(t.Makespan()))
	}
	for _, e := range t.Events {
		rows[e.Rank][int(e.Start)] = e.Op.String()
	}
	return csv.NewWriter(w).WriteAll(rows)
}

// cellCosts make every op, the fused B too, one cell wide.
type cellCosts struct{}

func (cellCosts) Compute(Op) float64            { return 1 }
func (cellCosts) Transfer(Op, int, int) float64 { return 0 }

// ReadCSV reads torch.distributed.pipelining's compute-only CSV. The numbers of
// ranks, stages and micro-batches and the stage → rank map follow from
// the cells; where a stage is on several ranks, its micro-batches must fall into
// directions, each with one rank a stage. Files with PyTorch's older letters, in which B is the
// input gradient alone, are refused.
func ReadCSV(r io.Reader) (*Schedule, error) {
	reader := csv.NewReader(r)
	reader.FieldsPerRecord = -1
	s := &Schedule{Name: "csv"}
	for {
		record, err := reader.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("schedule CSV: %w", err)
		}
		program := []Op{}
		for column, cell := range record {
			if cell == "" {
				continue
			}
			o, err := ParseOp(cell)
			if err == nil && !o.Kind.IsCompute() {
				err = fmt.Errorf("%s is no compute op", o)
			}
			if err == nil && o.Last != o.First {
				err = fmt.Errorf("%s: the compute-only CSV has no concatenated W", o)
			}
			if err == nil && o.Stage >= MaxRanks*MaxChunks || o.Last >= MaxMicrobatches {
				err = fmt.Errorf("%s: number too large", o)
			}
			if err != nil {
				return nil, fmt.Errorf("schedule CSV: rank %d, column %d: %w", len(s.Programs), column+1, err)
			}
			s.Stages, s.Microbatches = max(s.Stages, o.Stage+1), max(s.Microbatches, o.Last+1)
			program = append(program, o)
		}
		s.Programs = append(s.Programs, program)
	}
	s.Ranks = len(s.Programs)
	if s.Microbatches == 0 {
		return nil, fmt.Errorf("schedule CSV: no ops")
	}
	if err := refuseOldLetters(s); err != nil {
		return nil, err
	}
	if err := s.inferPlace(); err != nil {
		return nil, err
	}
	return s, nil
}

// refuseOldLetters finds a B beside a W of the same stage and micro-batch: with
// today's letters that computes W twice, with the older ones B is I.
func refuseOldLetters(s *Schedule) error {
	full := map[Op]bool{}
	for _, program := range s.Programs {
		for _, o := range program {
			if o.Kind == Backward {
				full[o] = true
			}
		}
	}
	for r, program := range s.Programs {
		for _, o := range program {
			b := o
			b.Kind = Backward
			if o.Kind == BackwardWeight && full[b] {
				return fmt.Errorf("schedule CSV: rank %d has %s beside %s: the file uses PyTorch's older letters, "+
					"in which B is the input gradient (now I) and BW the fused backward (now B); rewrite them", r, b, o)
			}
		}
	}
	return nil
}

// inferPlace finds Place and Direction from where the ops are.
func (s *Schedule) inferPlace() error {
	if s.Stages > s.Ops()/s.Microbatches+1 {
		return missingForward(s)
	}
	// ranks[k] is the stage → rank map that micro-batch k shows.
	ranks := make([][]int, s.Microbatches)
	for r, program := range s.Programs {
		for i, o := range program {
			if ranks[o.First] == nil {
				ranks[o.First] = slices.Repeat([]int{-1}, s.Stages)
			}
			switch at := &ranks[o.First][o.Stage]; *at {
			case r, -1:
				*at = r
			default:
				return wrongOp(s, r, i, "stage %d of micro-batch %d is on rank %d too", o.Stage, o.First, *at)
			}
		}
	}
	directions := make([]uint8, s.Microbatches)
	for k, place := range ranks {
		if stage := max(0, slices.Index(place, -1)); place == nil || place[stage] < 0 {
			return wrong("micro-batch %d: stage %d is on no rank", k, stage)
		}
		d := slices.IndexFunc(s.Place, func(p []int) bool { return slices.Equal(p, place) })
		if d < 0 {
			if d = len(s.Place); d > 255 {
				return wrong("micro-batch %d takes the 257th path through the ranks; at most 256 are possible", k)
			}
			s.Place = append(s.Place, place)
		}
		directions[k] = uint8(d)
	}
	if len(s.Place) > 1 {
		s.Direction = directions
	}
	return nil
}
