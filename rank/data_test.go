package rank

import (
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/data"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/schedule"
)

// masked is a source of which n mod 4 targets of sample n count.
type masked struct{ data.Source }

func (masked) Terms(n int64) int { return int(n % 4) }

// The loss is the mean over the targets that count in the global batch, of all replicas; where
// there are several updates a step, in the batch of each.
func TestTermsOfTheLoss(t *testing.T) {
	cut := data.Cut{Batch: 12, Replicas: 2, Microbatches: 3} // of two samples each
	d := &stepData{source: masked{}, cut: cut, sched: &schedule.Schedule{Microbatches: 3}, scales: make([]float32, 3)}
	// The second step's samples are 12 to 23, three times 0+1+2+3.
	if n := d.begin(2); n != 18 || d.scales[0] != 1/float32(18) || d.scales[1] != d.scales[0] || d.scales[2] != d.scales[0] {
		t.Errorf("%d terms, scales %v", n, d.scales)
	}
	// Updates of two micro-batches and of one: samples 12 to 15 and 18 to 21, then 16, 17, 22 and 23.
	d.sched = &schedule.Schedule{Microbatches: 3, Async: &schedule.Async{Every: 2}}
	if n := d.begin(2); n != 18 || d.scales[0] != 1/float32(6+6) || d.scales[1] != d.scales[0] || d.scales[2] != 1/float32(1+5) {
		t.Errorf("asynchronous: %d terms, scales %v", n, d.scales)
	}
	// Nothing counts: no loss, no gradient, and no division by nothing.
	d.cut, d.sched = data.Cut{Batch: 1, Replicas: 1, Microbatches: 1}, &schedule.Schedule{Microbatches: 1}
	if n := d.begin(1); n != 0 || d.scales[0] != 1 {
		t.Errorf("%d terms, scales %v", n, d.scales)
	}
}

// fieldless has other fields than a decoder wants.
type fieldless struct {
	data.Source
	fields []data.Field
}

func (s fieldless) Fields() []data.Field { return s.fields }

// A model whose layers want what the data does not have is refused before the first step.
func TestFieldsAreChecked(t *testing.T) {
	w, err := WorkOf(parse(t, parityJob))
	if err != nil {
		t.Fatal(err)
	}
	cut := data.Cut{Batch: 8, Replicas: 1, Microbatches: 8}
	ids, targets := data.Field{Name: "ids", Type: "i32", Len: 8}, data.Field{Name: "targets", Type: "i32", Len: 8}
	if _, err := newStepData(w, fieldless{fields: []data.Field{targets, ids}}, cut, 0); err != nil {
		t.Error(err)
	}
	for want, fields := range map[string][]data.Field{
		`layer model.embed_tokens wants the field "ids" of the data, 8 elements of type i32`: {targets},
		`layer lm_head wants the field "targets"`:                                            {ids, {Name: "targets", Type: "u8", Len: 8}},
		`the data has the fields [{ids i32 7}]`:                                              {{Name: "ids", Type: "i32", Len: 7}},
	} {
		_, err := newStepData(w, fieldless{fields: fields}, cut, 0)
		if err == nil || !strings.Contains(err.Error(), want) || exitcode.Of(err) != exitcode.Usage {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
