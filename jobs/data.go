package jobs

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/pipetrain/pipetrain/data"
	"github.com/pipetrain/pipetrain/model"
)

func kindNames() (names []string) {
	for _, k := range data.Kinds() {
		names = append(names, k.Name)
	}
	return names
}

// kindsDoc describes the key data.kind.
func kindsDoc() string {
	var kinds []string
	for _, k := range data.Kinds() {
		kinds = append(kinds, "`"+k.Name+"`: "+k.Doc+".")
	}
	return strings.Join(kinds, " ")
}

func formatNames() []string {
	names := []string{data.FormatAuto}
	for _, f := range data.Formats() {
		names = append(names, f.Name)
	}
	return names
}

func formatsDoc() string {
	var parts []string
	for _, f := range data.Formats() {
		parts = append(parts, fmt.Sprintf("`%s`: %s", f.Name, f.Doc))
	}
	return "Of tokens. " + strings.Join(parts, "; ") + ". `auto`: found by the file's header."
}

// DataConfig returns what data.Open takes for the job.
func (s *Spec) DataConfig() data.Config {
	return data.Config{Kind: s.Data.Kind, Format: s.Data.Format, Path: s.Data.Path, Seed: s.Seed,
		Seq: s.Model.Seq, Vocab: s.Model.Vocab, Holdout: s.Data.Holdout}
}

func (l *loader) validateData() {
	s := &l.spec
	if !l.ok("data.kind") {
		return
	}
	if l.ok("data.format") && s.Data.Kind != data.KindTokens && s.Data.Format != data.FormatAuto {
		l.mistake("data.format", "has no effect with data.kind = "+show(s.Data.Kind), "data.kind = \"tokens\", or leave it out", "")
	}
	if kind, _ := data.FindKind(s.Data.Kind); !kind.Files {
		return
	}
	if l.ok("model.vocab") && s.Data.Kind == data.KindText && s.Model.Vocab < model.ByteVocab {
		l.mistake("model.vocab", fmt.Sprintf("%d is too small for data.kind = \"text\", whose tokens are bytes", s.Model.Vocab), strconv.Itoa(model.ByteVocab), "")
	}
	if !l.ok("data.path", "data.format") {
		return
	}
	if s.Data.Path == "" {
		l.mistake("data.path", "is missing", fmt.Sprintf("data.kind = %s reads files", show(s.Data.Kind)), "")
		return
	}
	files, err := data.Inspect(s.Data.Kind, s.Data.Format, s.Data.Path)
	if bad := (*data.FileError)(nil); errors.As(err, &bad) {
		what := showPath(bad.Path) + " "
		if bad.Offset >= 0 {
			what += fmt.Sprintf("is damaged at byte %d: ", bad.Offset)
		}
		l.mistake("data.path", what+bad.What, bad.Right, "")
		return
	} else if err != nil {
		l.mistake("data.path", strings.TrimPrefix(err.Error(), "data: "), "", "")
		return
	}
	l.validateWindows(files)
}

// validateWindows finds files that are too short for a sequence.
func (l *loader) validateWindows(files *data.Files) {
	s := &l.spec
	if !l.ok("model.seq", "data.holdout") {
		return
	}
	if _, given := l.given["data.holdout"]; !given {
		s.Data.Holdout = defaultHoldout(files, s.Model.Seq)
	}
	unit, of := "tokens", ""
	if s.Data.Kind == data.KindText {
		unit = "bytes"
	}
	if n := len(files.Files); n > 1 {
		of = fmt.Sprintf(", of one of the %d files", n)
	}
	held := data.Held(files.Tokens, s.Data.Holdout)
	windows, heldWindows := files.Windows(s.Model.Seq, s.Data.Holdout)
	switch {
	case windows == 0:
		l.mistake("data.path", fmt.Sprintf("%s is too short: %d %s to train on, a sequence with its targets needs seq + 1 = %d%s", showPath(s.Data.Path), files.Tokens-held, unit, s.Model.Seq+1, of), "longer files, or a smaller model.seq", "")
	case s.Data.Holdout > 0 && heldWindows == 0:
		l.mistake("data.holdout", fmt.Sprintf("%s of %d %s is %d, less than the seq + 1 = %d of one sequence%s", formatFloat(s.Data.Holdout), files.Tokens, unit, held, s.Model.Seq+1, of), "more, or 0", "")
	}
}

func defaultHoldout(files *data.Files, seq int) float64 {
	const share = 0.05
	if train, held := files.Windows(seq, share); train == 0 || held == 0 {
		return 0
	}
	return share
}

// fileSize returns the bytes of a file that the job names, or what keeps it from being read.
func fileSize(path string) (size int64, what string) {
	info, err := os.Stat(path)
	switch {
	case os.IsNotExist(err):
		return 0, "does not exist"
	case err != nil:
		return 0, "cannot be read: " + reason(err)
	case info.IsDir():
		return 0, "is a folder"
	case !info.Mode().IsRegular():
		return 0, "is no regular file"
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, "cannot be read: " + reason(err)
	}
	f.Close()
	return info.Size(), ""
}
