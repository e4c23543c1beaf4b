package jobs

import (
	"strings"
	"testing"
)

// Clipping is on by default, but not where updates happen within the step, be the kind a builder's or a file's.
func TestAsyncDefaults(t *testing.T) {
	text := strings.Replace(customJob, "clip = 0\n", "", 1)
	for _, c := range []struct {
		sets []string
		want float64
	}{
		{[]string{"schedule.kind=1f1b"}, 1},
		{[]string{"schedule.kind=pipedream", "parallel.stages=2"}, 0},
		{[]string{"schedule.kind=file", "schedule.file=" + scheduleFile(t, "1f1b", same)}, 1},
		{[]string{"schedule.kind=file", "schedule.file=" + scheduleFile(t, "pipedream-2bw", same)}, 0},
	} {
		spec, err := Parse("job.toml", []byte(text), c.sets, ".")
		if err != nil {
			t.Errorf("%v: %v", c.sets, err)
			continue
		}
		if spec.Optimizer.Clip != c.want {
			t.Errorf("%v: clip = %v, want %v", c.sets, spec.Optimizer.Clip, c.want)
		}
	}
	_, err := Parse("job.toml", []byte(customJob), []string{"optimizer.clip=2", "schedule.kind=file", "schedule.file=" + scheduleFile(t, "pipedream", same)}, ".")
	if err == nil || !strings.Contains(err.Error(), "optimizer.clip: 2 needs the gradient norm over all stages, and file pipedream updates each stage") {
		t.Errorf("clipping with the file of an asynchronous schedule: %v", err)
	}
}
