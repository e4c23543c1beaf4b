package study

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Night is a line of history.jsonl: one case and metric of one study.
type Night struct {
	Study  string    `json:"study"`
	Night  string    `json:"night"` // the study's folder
	Time   time.Time `json:"time"`
	Case   string    `json:"case"`
	Label  string    `json:"label"`
	Metric string    `json:"metric"`
	Unit   string    `json:"unit"`
	Median Number    `json:"median"`
	Lo     Number    `json:"low"`
	Hi     Number    `json:"high"`
	N      int       `json:"n"`
	// Level is 0.95 where low to high is that interval, 0 where it is the range.
	Level   float64 `json:"level"`
	Verdict Verdict `json:"verdict,omitempty"`
	Version string  `json:"version"`
	Commit  string  `json:"commit"`
	Host    string  `json:"host"`
}

// ReadHistory reads a history.jsonl; none is an empty one. Of a night that was judged twice, because it
// went on after a stop, the last lines count.
func ReadHistory(path string) ([]Night, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []Night
	at := map[string]int{}
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for line := 1; s.Scan(); line++ {
		var n Night
		if err := json.Unmarshal(s.Bytes(), &n); err != nil {
			return all, fmt.Errorf("%s:%d: %w: remove the line", path, line, err)
		}
		key := n.Night + "\x00" + n.Case + "\x00" + n.Metric
		if i, ok := at[key]; ok {
			all[i] = n
			continue
		}
		at[key] = len(all)
		all = append(all, n)
	}
	return all, s.Err()
}

// appendHistory adds a night's lines in one write.
func appendHistory(path string, nights []Night) error {
	var b []byte
	for _, n := range nights {
		line, err := json.Marshal(n)
		if err != nil {
			return err
		}
		b = append(append(b, line...), '\n')
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if e := f.Sync(); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
