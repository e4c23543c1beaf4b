// Package study is where results of many runs meet: the points of a study and their file, samples by
// case and metric, comparisons in benchstat's form, the rule that judges a change.
//
// Sources of every figure: metrics.jsonl, summary.json, environment.json, timelines.json and exit.json
// of a run's folder, as package record and exitcode write them.
package study
