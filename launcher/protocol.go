package launcher

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The environment that Run gives to a rank.
const (
	EnvRank        = "PIPETRAIN_RANK"
	EnvSize        = "PIPETRAIN_SIZE"
	EnvLocalRank   = "PIPETRAIN_LOCAL_RANK"
	EnvLocalSize   = "PIPETRAIN_LOCAL_SIZE"
	EnvRunDir      = "PIPETRAIN_RUN_DIR"
	EnvThreads     = "PIPETRAIN_THREADS"    // CPU threads a rank should use
	EnvSegmentFD   = "PIPETRAIN_SEGMENT_FD" // shared memory of the local transport; absent: none
	EnvStateFD     = "PIPETRAIN_STATE_FD"   // a stream socket to the launcher, see message
	EnvLauncherPID = "PIPETRAIN_LAUNCHER_PID"
)

// Descriptors of a rank: ExtraFiles start at 3.
const (
	segmentFD = 3
	stateFD   = 4
)

// A message is one line on the state socket. From a rank:
//
//	hello                           the process runs and found its launcher
//	ready                           its own set-up is over, it waits for the others
//	joined                          it reached the other ranks, work can begin
//	step 12                         step 12 is finished
//	done                            its part is over; exit code 0 follows
//	stopped 12                      saved after step 12 on request; exit code 7 follows
//	failed 6 1700000000000 "text"   it failed: exit code, Unix time in ns, why
//	told 2 3 1700000000000 "text"   it ends because rank 2 failed: exit code, time, why
//
// From the launcher:
//
//	lost 2 "text"                   rank 2 failed first, and why: give up
//
// Lines of a newer version that are not known are ignored.
type message struct {
	verb string
	n    int64 // step, exit code or rank
	by   int   // of verbTold: the rank that failed
	time time.Time
	text string
}

const (
	verbHello   = "hello"
	verbReady   = "ready"
	verbJoined  = "joined"
	verbStep    = "step"
	verbDone    = "done"
	verbStopped = "stopped"
	verbFailed  = "failed"
	verbTold    = "told"
	verbLost    = "lost"
)

// maxText keeps a message within one write and a reader's memory bounded.
const maxText = 8 << 10

func (m message) String() string {
	text := m.text
	if len(text) > maxText {
		text = text[:maxText] + " …"
	}
	switch m.verb {
	case verbStep, verbStopped:
		return fmt.Sprintf("%s %d\n", m.verb, m.n)
	case verbFailed:
		return fmt.Sprintf("%s %d %d %s\n", m.verb, m.n, m.time.UnixNano(), strconv.Quote(text))
	case verbTold:
		return fmt.Sprintf("%s %d %d %d %s\n", m.verb, m.by, m.n, m.time.UnixNano(), strconv.Quote(text))
	case verbLost:
		return fmt.Sprintf("%s %d %s\n", m.verb, m.n, strconv.Quote(text))
	}
	return m.verb + "\n"
}

// parseMessage reads what String wrote, without the newline.
func parseMessage(line string) (message, error) {
	verb, rest, _ := strings.Cut(line, " ")
	m := message{verb: verb}
	bad := func() (message, error) { return message{}, fmt.Errorf("state line %.80q is not understood", line) }
	var err error
	switch verb {
	case verbHello, verbReady, verbJoined, verbDone:
		if rest != "" {
			return bad()
		}
	case verbStep, verbStopped:
		if m.n, err = strconv.ParseInt(rest, 10, 64); err != nil || m.n < 0 {
			return bad()
		}
	case verbFailed, verbTold, verbLost:
		if verb == verbTold {
			var by string
			by, rest, _ = strings.Cut(rest, " ")
			if m.by, err = strconv.Atoi(by); err != nil || m.by < 0 {
				return bad()
			}
		}
		number, rest, _ := strings.Cut(rest, " ")
		if m.n, err = strconv.ParseInt(number, 10, 32); err != nil || m.n < 0 {
			return bad()
		}
		if verb != verbLost {
			var ns string
			ns, rest, _ = strings.Cut(rest, " ")
			t, err := strconv.ParseInt(ns, 10, 64)
			if err != nil {
				return bad()
			}
			m.time = time.Unix(0, t)
		}
		if m.text, err = strconv.Unquote(rest); err != nil {
			return bad()
		}
	default:
		return bad()
	}
	return m, nil
}
