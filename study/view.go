package study

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pipetrain/pipetrain/durable"
	"github.com/pipetrain/pipetrain/exitcode"
)

// estimatesName keeps what the planner said of each case.
const estimatesName = "estimates.json"

// View is a study's folder as a report reads it.
type View struct {
	Dir       string
	File      *File
	Cases     []*Case
	Points    []Point
	Summaries []Summary
	End       End
	Ended     bool    // else it runs, or was killed
	Nights    []Night // of the history beside the folder, of this study
}

// Open reads a study's folder. It may be of a study that runs.
func Open(dir string) (*View, error) {
	v := &View{Dir: dir}
	var err error
	if v.File, v.Cases, err = Load(filepath.Join(dir, FileName), nil); err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	if v.Points, err = ReadPoints(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	switch v.End, err = ReadEnd(dir); {
	case err == nil:
		v.Ended = true
	case !errors.Is(err, fs.ErrNotExist):
		return nil, exitcode.With(exitcode.Environment, err)
	}
	r := &runner{o: Options{Study: v.File, Cases: v.Cases, Folder: &Folder{Path: dir}}, all: v.Points, estimates: map[string]Estimate{}}
	if b, err := os.ReadFile(filepath.Join(dir, estimatesName)); err == nil {
		if err := json.Unmarshal(b, &r.estimates); err != nil {
			return nil, exitcode.With(exitcode.Environment, fmt.Errorf("%s: %w", filepath.Join(dir, estimatesName), err))
		}
	}
	v.Summaries = r.summarise()
	nights, err := ReadHistory(r.historyPath())
	if err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	for _, n := range nights {
		if n.Study == v.File.Name {
			v.Nights = append(v.Nights, n)
		}
	}
	return v, nil
}

// Base returns the summary that speed-ups are relative to; nil where there is none.
func (v *View) Base() *Summary { return v.File.baseOf(v.Summaries) }

// Unfinished are the last attempts of runs of which none finished.
func (v *View) Unfinished() []Point { return unfinished(v.Points) }

// writeEstimates keeps what the planner said.
func (r *runner) writeEstimates() error {
	b, err := json.MarshalIndent(r.estimates, "", " ")
	if err != nil {
		return err
	}
	return exitcode.With(exitcode.Environment, durable.WriteFile(r.o.Folder.File(estimatesName), append(b, '\n')))
}

// WriteTables writes points.csv and summary.csv of what the view has.
func (v *View) WriteTables() error {
	r := &runner{o: Options{Study: v.File, Cases: v.Cases, Folder: &Folder{Path: v.Dir}}, all: v.Points}
	return r.writeTables(v.Summaries)
}
