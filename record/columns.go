package record

// Column is one number of a step, by its name in metrics.jsonl.
type Column struct {
	Name string
	Of   func(Metrics) float64
}

// Columns are the numbers of a step that plots and tables show.
func Columns() []Column {
	return []Column{
		{"loss", func(m Metrics) float64 { return m.Loss }},
		{"grad_norm", func(m Metrics) float64 { return m.GradNorm }},
		{"lr", func(m Metrics) float64 { return m.LR }},
		{"tokens", func(m Metrics) float64 { return float64(m.Tokens) }},
		{"step_seconds", func(m Metrics) float64 { return m.StepSeconds }},
		{"tokens_per_second", func(m Metrics) float64 { return m.TokensPerSecond }},
		{"bubble", func(m Metrics) float64 { return m.Bubble }},
		{"makespan_seconds", func(m Metrics) float64 { return m.MakespanSeconds }},
	}
}
