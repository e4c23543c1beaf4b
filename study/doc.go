// Package study runs a job over axes and repeats and tells what came of it: the study file and its cases,
// the rounds and how runs are started, the append-only record of attempts, baselines and the gate, samples
// and comparisons in benchstat's form.
//
// Sources of every figure: metrics.jsonl, summary.json, environment.json, timelines.json and exit.json
// of a run's folder, as package record and exitcode write them.
package study
