package manage

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A job whose nodes do not see the run folder leaves nothing there, and status and logs say so.
func TestUnseenFolder(t *testing.T) {
	s := newSite(t)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "logs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeTicket(dir, ticket{Job: "71"}); err != nil {
		t.Fatal(err)
	}
	for queue, want := range map[string]bool{
		"71|PENDING|batch|0:00|1:00||Resources":                 false,
		"71|RUNNING|batch|0:30|1:00|node[1-2]|None":             false,
		"71|RUNNING|batch|1:30|9:00|node[1-2]|None":             true,
		"71|FAILED|batch|0:01|1:00|node[1-2]|RaisedSignal:53":   true,
		"71|CANCELLED|batch|0:00|1:00||None":                    false,
		"71|COMPLETED|batch|1:00:00|9:00:00|node[1-2]|None":     true,
		"71|COMPLETING|batch|1:00|9:00|node[1-2]|NonZeroExitCo": false,
	} {
		s.program("squeue", "echo '"+queue+"'")
		r, err := Find(context.Background(), dir, s.tools)
		if err != nil {
			t.Fatal(err)
		}
		report, err := r.Status(context.Background(), s.tools)
		var text bytes.Buffer
		if err == nil {
			err = report.WriteText(&text)
		}
		logs := r.Logs(context.Background(), LogOptions{Rank: -1, Lines: -1}, s.tools, new(bytes.Buffer))
		if err != nil || logs == nil || strings.Contains(text.String(), "file system that all nodes share") != want || strings.Contains(logs.Error(), "file system that all nodes share") != want {
			t.Errorf("%s: %v %v\n%s", queue, err, logs, text.String())
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "logs", "slurm-71.log"), []byte("x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.program("squeue", "echo '71|FAILED|batch|0:01|1:00|node1|None'")
	if report, err := (Run{Dir: dir, Job: "71"}).Status(context.Background(), s.tools); err != nil || report.States[0].Note != "" {
		t.Errorf("%+v %v", report, err)
	}
}
