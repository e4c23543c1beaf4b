package process

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
)

// Who tells the user why a world ended under another launcher, and how each rank leaves it. Of all
// ranks that have one error exactly one speaks, and nobody leaves before it has.
func TestWhoSpeaks(t *testing.T) {
	const table = `
error   of      rank  echo folder joined first | waits speaks way
none    own     0     no   yes    yes    yes   | 0s    no     leaves
none    own     3     no   yes    yes    yes   | 0s    no     leaves
stopped own     0     no   yes    yes    yes   | 0s    yes    leaves
stopped own     0     no   yes    yes    no    | 0s    yes    leaves
stopped own     3     no   yes    yes    yes   | 0s    no     leaves
bad-job all     0     no   no     no     yes   | 0s    yes    exits
bad-job all     3     no   no     no     yes   | 0s    no     late
misfit  all     3     no   no     no     yes   | 0s    no     late
bad-job all     0     no   no     yes    yes   | 0s    yes    meets
bad-job all     3     no   no     yes    yes   | 0s    no     meets
folder  all     0     no   yes    yes    yes   | 0s    yes    meets
folder  all     3     no   no     yes    yes   | 0s    no     meets
device  host    0     no   no     no     yes   | 0s    yes    exits
device  host    3     no   no     no     yes   | 0s    yes    late
data    own     3     no   no     no     yes   | 0s    yes    exits
crash   own     3     no   yes    yes    yes   | 0s    yes    aborts
crash   own     3     no   yes    yes    no    | 0s    no     aborts
crash   own     3     no   no     yes    yes   | 0s    yes    aborts
lost    own     2     yes  yes    yes    no    | 1s    no     aborts
lost    own     2     yes  yes    yes    yes   | 1s    yes    aborts
lost    own     2     yes  no     yes    yes   | 0s    yes    aborts
`
	codes := map[string]exitcode.Code{"none": exitcode.Finished, "stopped": exitcode.Stopped, "bad-job": exitcode.Usage, "misfit": exitcode.Environment,
		"folder": exitcode.Environment, "device": exitcode.Environment, "data": exitcode.Environment, "crash": exitcode.Unexpected, "lost": exitcode.RankLost}
	of := map[string]whose{"own": own, "host": hosts, "all": everyRanks}
	yes := map[string]bool{"yes": true, "no": false}
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[1:] {
		f := strings.Fields(line)
		code, known := codes[f[0]]
		if len(f) != 11 || !known {
			t.Fatalf("%q", line)
		}
		e := ending{code: code, whose: of[f[1]], echo: yes[f[3]], folder: yes[f[4]], joined: yes[f[5]]}
		fmt.Sscan(f[2], &e.rank)
		waits, err := time.ParseDuration(f[8])
		if err != nil {
			t.Fatal(err)
		}
		if got := e.speaks(yes[f[6]]); e.delay() != waits || got != yes[f[9]] || e.way() != way(f[10]) {
			t.Errorf("%s\nwaits %v, speaks %v, %s", line, e.delay(), got, e.way())
		}
	}
}

// Whatever all ranks have in common is said once, and a rank that says nothing never ends first.
func TestOneSpeaks(t *testing.T) {
	for _, e := range exitcode.Table() {
		for _, joined := range []bool{true, false} {
			spoke := 0
			for rank := range 4 {
				end := ending{code: e.Code, rank: rank, whose: everyRanks, joined: joined}
				if end.speaks(true) {
					spoke++
				} else if way := end.way(); e.Code != exitcode.Finished && way != late && way != meets && way != leaves {
					t.Errorf("%v: rank %d says nothing and %s", e.Code, rank, way)
				}
			}
			if want := min(1, int(e.Code)); spoke != want {
				t.Errorf("%v, joined %v: %d ranks speak", e.Code, joined, spoke)
			}
		}
	}
}
