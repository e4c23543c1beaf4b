package manage

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pipetrain/pipetrain/progress"
)

// WriteText writes the report for people.
func (r Report) WriteText(w io.Writer) error {
	if r.Run.Tasks {
		return writeTasks(w, r.Run, r.States)
	}
	return r.States[0].writeText(w)
}

// MarshalJSON gives one object for a run, and for an array one with all its tasks.
func (r Report) MarshalJSON() ([]byte, error) {
	if !r.Run.Tasks {
		return json.Marshal(r.States[0])
	}
	return json.Marshal(struct {
		Run   string  `json:"run"`
		Tasks []State `json:"tasks"`
	}{r.Run.Dir, r.States})
}

func (s State) writeText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	if s.Ranks > 0 {
		line("run", "%s (%s, %d ranks)", s.Run, s.Name, s.Ranks)
	} else {
		line("run", "%s", s.Run)
	}
	where := s.Where
	if where != "" && where != "None" {
		where = " (" + where + ")"
	} else {
		where = ""
	}
	line("state", "%s%s", s.State, where)
	if j := s.Job; j != nil {
		more := ""
		if s.Restarts > 0 {
			more = fmt.Sprintf(", start %d", s.Restarts+1)
		}
		line("job", "%s: %s in %s, %s of %s%s", j.ID, j.State, j.Partition, j.Elapsed, j.Limit, more)
	}
	if s.StepsAsked > 0 {
		more := ""
		if s.Loss != nil {
			more += fmt.Sprintf(", loss %.4f", *s.Loss)
		}
		if s.Step > 0 {
			more += fmt.Sprintf(", %.0f tokens/s", s.TokensPerSecond)
		}
		if !s.Updated.IsZero() && s.End == nil {
			more += fmt.Sprintf(", %s ago", progress.Duration(time.Since(s.Updated)))
		}
		line("step", "%d of %d%s", s.Step, s.StepsAsked, more)
	}
	if s.Checkpoint >= 0 {
		line("saved", "step %d", s.Checkpoint)
	}
	if s.End != nil {
		reason := ""
		if s.End.Reason != "" {
			reason = ": " + s.End.Reason
		}
		line("ended", "%s with code %v%s", s.End.Time.Local().Format(time.DateTime), s.End.Code, reason)
	}
	if s.Note != "" {
		line("note", "%s", s.Note)
	}
	return tw.Flush()
}

func writeTasks(w io.Writer, r Run, all []State) error {
	if len(all) == 0 {
		_, err := fmt.Fprintf(w, "%s: job %s has no tasks that Slurm remembers, and none has started\n", r.Dir, r.Job)
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "JOB\tSTATE\tSTEP\tOF\tLOSS\tSAVED\tWHERE\n")
	for _, s := range all {
		dash := func(known bool, text string) string {
			if known {
				return text
			}
			return "-"
		}
		id, loss := r.Job+"_"+strings.TrimPrefix(filepath.Base(s.Run), "task-"), "-"
		if s.Job != nil {
			id = s.Job.ID
		}
		if s.Loss != nil {
			loss = fmt.Sprintf("%.4f", *s.Loss)
		}
		fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", id, s.State, s.Step, dash(s.StepsAsked > 0, fmt.Sprint(s.StepsAsked)), loss,
			dash(s.Checkpoint >= 0, fmt.Sprint(s.Checkpoint)), dash(s.Where != "" && s.Where != "None", s.Where))
	}
	return tw.Flush()
}
