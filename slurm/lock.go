package slurm

import (
	"fmt"
	"strings"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/record"
)

// LockName is the file in the run folder whose lock a batch script has for as long as it runs, and
// a process that submits one while it does.
const LockName = "slurm.lock"

// takeFolder has the script take the run folder, or end and leave it as it is. The ranks do not inherit
// the lock (notLock). A site without flock, or a file system without locks, goes on.
func takeFolder(b *strings.Builder) {
	fmt.Fprintf(b, `
# One job has the run folder at a time. A second one must not touch the first one's records.
taken() { say "another job, or a run outside of Slurm, has the run folder: nothing is done"; exit %[3]d; }
if ! mkdir -p "$run" || ! { exec 9>>"$run/%[1]s"; } 2>/dev/null; then
  say "the run folder cannot be made"
  exit %[3]d
fi
if type flock >/dev/null 2>&1; then
  flock -w 3 -E 75 9
  [ $? != 75 ] || taken
  if [ -f "$run/%[2]s" ]; then # ranks of an earlier start may still be ending
    flock -w 10 -E 75 "$run/%[2]s" true
    [ $? != 75 ] || taken
  fi
fi
`, LockName, record.LockName, exitcode.Environment)
}

// notLock keeps a program from inheriting the lock: what it leaves behind would hold the folder.
const notLock = "9>&-"
