package jobs

import (
	"slices"
	"strings"

	"github.com/pipetrain/pipetrain/model"
)

// Rule returns the job's optimizer.
func (o *Optimizer) Rule() model.Optimizer {
	rule := model.Optimizer{Kind: o.Kind, Values: model.Values{}, WeightDecay: o.WeightDecay}
	for _, k := range model.FindRule(o.Kind).Keys {
		rule.Values[k.Name] = *o.value(k.Name)
	}
	return rule
}

// Rate returns the job's learning rate over the steps.
func (s *Spec) Rate() model.LRSchedule {
	o := s.Optimizer
	return model.LRSchedule{Base: o.LR, Min: o.MinLR, Warmup: o.Warmup, Steps: s.Train.Steps, Decay: o.Decay, DecaySteps: o.DecaySteps}
}

// value returns where the number of a rule's key is kept.
func (o *Optimizer) value(key string) *float64 {
	if o.values == nil {
		o.values = map[string]*float64{}
	}
	if o.values[key] == nil {
		o.values[key] = new(float64)
	}
	return o.values[key]
}

func ruleDefaults() map[string]*float64 {
	values := map[string]*float64{}
	for _, r := range model.Rules() {
		for _, k := range r.Keys {
			values[k.Name] = &k.Default
		}
	}
	return values
}

func ruleNames() (names []string) {
	for _, r := range model.Rules() {
		names = append(names, r.Name)
	}
	return names
}

// ruleDoc describes the key optimizer.kind.
func ruleDoc() string {
	var kinds []string
	for _, r := range model.Rules() {
		kinds = append(kinds, "`"+r.Name+"` ("+r.Doc+")")
	}
	return "The rule: " + strings.Join(kinds, ", ") + "."
}

func rules() (owners []owner) {
	for _, r := range model.Rules() {
		owners = append(owners, owner{r.Name, r.Keys})
	}
	return owners
}

func decayNames() []string {
	names, _ := model.Decays()
	return names
}

// decaysDoc describes the key optimizer.decay.
func decaysDoc() string {
	names, docs := model.Decays()
	for i := range names {
		names[i] = "`" + names[i] + "`, " + docs[i]
	}
	return "How the rate falls to `min_lr` after the warm-up: " + strings.Join(names, "; ") + "."
}

func isRuleKey(leaf string) bool {
	return slices.ContainsFunc(model.Rules(), func(r *model.Rule) bool {
		return slices.ContainsFunc(r.Keys, func(k model.Key) bool { return k.Name == leaf })
	})
}

// validateRule reports what the job's rule says of its own numbers.
func (l *loader) validateRule() {
	if !l.ok("optimizer.kind") {
		return
	}
	rule := model.FindRule(l.spec.Optimizer.Kind)
	if rule.Check == nil {
		return
	}
	for _, m := range rule.Check(l.spec.Optimizer.Rule().Values) {
		if key := "optimizer." + m.Key; l.ok(key) {
			l.mistake(key, m.What, m.Right, "")
		}
	}
}
