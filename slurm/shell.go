package slurm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
)

// The parts of the batch script that are the same for every job but for a few
// words. They are bash, which every cluster with Slurm has.

// prologue names things, ends what has nothing left to do, and counts the
// starts that brought nothing.
func prologue(b *strings.Builder, spec *jobs.Spec, l Launch) {
	run, id := Quote(l.Out), "$SLURM_JOB_ID"
	if spec.Slurm.Array != "" {
		run += `/"task-$SLURM_ARRAY_TASK_ID"`
		id = "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}" // SLURM_JOB_ID of one task is the whole array's
	}
	fmt.Fprintf(b, `
# Made by pipetrain submit. Every start goes on from the newest checkpoint in the run folder.
# shellcheck disable=SC2016,SC2317 # $ within quotes is meant; the traps call ask
run=%s
id=%s
max=%d # restarts in a row that may bring no new checkpoint
host=$(uname -n) host=${host%%%%.*} # HOSTNAME may be the submitting machine's
say() { printf '%%(%%F %%T)T job %%s, start %%d, %%s: %%s\n' -1 "$id" $((${SLURM_RESTART_COUNT:-0} + 1)) "$host" "$*"; }
recorded() { sed -n 's/.*"exit_code": *\([0-9]\{1,3\}\).*/\1/p' "$run/exit.json" 2>/dev/null | head -n 1; }
saved() { find "$run/checkpoints" -maxdepth 1 2>/dev/null | sed -n 's/.*\/step-0*\([0-9]\{1,\}\)$/\1/p' | sort -n | tail -n 1; }
`, run, id, spec.Slurm.MaxRestarts)
	b.WriteString(`
# USR1 comes from Slurm before the time limit and before a preemption: the ranks save and stop (exit code 7), the job goes
# back into the queue. USR2 comes from pipetrain cancel: they save and stop, and that is all. TERM is the end: Slurm sends it
# to the ranks itself, and puts a preempted job back itself.
# bash runs a trap between commands only, so the ranks are started behind it and waited for again.
asked='' step='' interrupted=''
ask() {
  interrupted=1
  [ "$1" != TERM ] || [ "$(squeue -h -t all -j "$id" -o %r 2>/dev/null)" != TimeLimit ] || set -- LIMIT
  case $1:$asked in USR1:?* | LIMIT:USR2) ;; *) asked=$1 ;; esac
`)
	if l.Launcher == "mpirun" {
		// Slurm's TERM reaches the daemons of mpirun, which end at once.
		b.WriteString("  [ -z \"$step\" ] || kill -USR1 \"$step\" 2>/dev/null\n")
	} else {
		b.WriteString("  [ -z \"$step\" ] || [ \"$1\" = TERM ] || [ \"$1\" = LIMIT ] || kill -USR1 \"$step\" 2>/dev/null\n")
	}
	b.WriteString(`}
trap 'ask USR1' USR1
trap 'ask USR2' USR2
trap 'ask TERM' TERM
`)
	takeFolder(b)
	fmt.Fprintf(b, `
mkdir -p "$run/%[1]s" || { say "the run folder cannot be made"; exit %[4]d; }
if [ "$(recorded)" = %[3]d ]; then
  say "the run has finished already"
  exit 0
fi
before=$(saved)
last='' idle=0
[ ! -f "$run/%[2]s" ] || IFS=: read -r last idle <"$run/%[2]s"
[[ $idle =~ ^[0-9]{1,6}$ ]] || idle=0
if [ -f "$run/%[2]s" ] && [ "$before" = "$last" ]; then idle=$((idle + 1)); else idle=0; fi
if [ "$idle" -gt "$max" ]; then
  say "gives up: $idle starts in a row brought no checkpoint after step ${before:-0}; pipetrain requeue starts it again"
  ended=$(recorded)
  exit "${ended:-%[5]d}"
fi
{ echo "$before:$idle" >"$run/%[2]s.new" && mv "$run/%[2]s.new" "$run/%[2]s"; } || { say "the run folder cannot be written"; exit %[4]d; }
rm -f "$run/exit.json"
`, LogsName, RestartsName, exitcode.Finished, exitcode.Environment, exitcode.RankLost)
}

// setUp loads modules and sets variables.
func setUp(b *strings.Builder, s jobs.Slurm) {
	if len(s.Modules) > 0 {
		b.WriteString("\n# shellcheck source=/dev/null\ntype module >/dev/null 2>&1 || . /etc/profile\n")
		for _, m := range s.Modules {
			fmt.Fprintf(b, "module load %s || { say \"module load failed, see above; module avail lists what there is\"; exit %d; }\n", Quote(m), exitcode.Environment)
		}
	}
	if len(s.Environment) > 0 {
		b.WriteString("\n")
		for _, v := range s.Environment {
			name, value, _ := strings.Cut(v, "=")
			fmt.Fprintf(b, "export %s=%s\n", name, Quote(value))
		}
	}
}

// step runs the ranks and waits for their end.
func step(b *strings.Builder, spec *jobs.Spec, l Launch) {
	note := ""
	if l.Launcher == "srun" && strings.HasPrefix(l.MPI, "pmix") {
		b.WriteString(`
# Open MPI's start meets twice. Slurm does one as a tree and the other as a ring, if not told otherwise, and on a busy
# cluster lets ranks leave the second while another is in the first, where their messages crash it.
export SLURM_PMIX_FENCE=${SLURM_PMIX_FENCE:-tree}
`)
	}
	if l.Launcher == "mpirun" {
		note = "\n  # mpirun mixes what the ranks print, or begins such files anew at every start."
	}
	fmt.Fprintf(b, `
code=%d # asked to stop before the ranks were started
if [ -z "$asked" ]; then
  say "${before:+goes on after step }${before:-starts}"%s
  %s \
    %s &
  step=$!
  while interrupted=''; wait "$step"; code=$?; [ -n "$interrupted" ]; do :; done
  step=''
fi
`, exitcode.Interrupted, note, strings.Join(launchWords(spec, l), " "), strings.Join(programWords(spec, l), " "))
}

// codesOfRuns are the table's lines that a rank which trains may end with, but for success. Those of study and compare
// are not: 9 is what MPICH's mpiexec makes of a rank that was killed.
func codesOfRuns() []exitcode.Entry {
	return slices.DeleteFunc(exitcode.Table(), func(e exitcode.Entry) bool {
		return e.Code == exitcode.Finished || e.Code == exitcode.Regressed || e.Code == exitcode.Incomplete
	})
}

// again are the patterns of "code:signal" with which a job goes back into the queue: the codes that a new start may
// better; of those that say that somebody stopped it, where it was Slurm.
func again() string {
	var patterns []string
	for _, e := range codesOfRuns() {
		switch {
		case !e.Resume:
		case e.Code == exitcode.Stopped || e.Code == exitcode.Interrupted:
			patterns = append(patterns, fmt.Sprintf("%d:?*", e.Code))
		default:
			patterns = append(patterns, fmt.Sprintf("%d:*", e.Code))
		}
	}
	return strings.Join(patterns, " | ")
}

// epilogue finds out how the run ended, whatever the launcher made of the code,
// and starts it again where that is of use.
func epilogue(b *strings.Builder, spec *jobs.Spec, l Launch) {
	var names, codes []string
	for _, e := range codesOfRuns() {
		names = append(names, fmt.Sprintf("[%d]=%s", e.Code, e.Name))
		if e.Code != exitcode.Unexpected { // which srun and mpirun make of others
			codes = append(codes, fmt.Sprint(int(e.Code)))
		}
	}
	fmt.Fprintf(b, `
ended=$(recorded)
if [ -z "$ended" ]; then
  # Nobody was left to write the record: a rank was killed, or none came up, of which srun and mpirun make 1.
  status=(%[2]s)
  case $code in %[3]s) ended=$code ;; %[4]d) ended=%[5]d ;; *) ended=%[6]d ;; esac
  now=$(saved)
  printf '{\n  "exit_code": %%d,\n  "status": "%%s",\n  "reason": "%[1]s ended with code %%d and no rank left a record: see the logs",\n  "rank": -1,\n  "host": "%%s",\n  "pid": %%d,\n  "signal": "",\n  "time": "%%s",\n  "step": %%d,\n  "launcher": "%[1]s"\n}\n' \
    "$ended" "${status[ended]}" "$code" "$host" "$$" "$(date -u '+%%FT%%TZ')" "${now:-0}" >"$run/exit.json.new" && mv "$run/exit.json.new" "$run/exit.json"
fi
if [ "$ended" = %[4]d ]; then
  say "finished"
  exit 0
fi
reason=$(sed -n 's/^ *"reason": "\(.*\)",$/\1/p' "$run/exit.json")
say "ended with code $ended${asked:+ ($asked)}: $reason"
`, l.Launcher, strings.Join(names, " "), strings.Join(codes, " | "), exitcode.Finished, exitcode.Unexpected, exitcode.RankLost)
	if spec.Slurm.Requeue {
		fmt.Fprintf(b, `
# Again: what was stopped by Slurm, or lost a rank or a node. Not what was cancelled, and not what would end the same way.
case $ended:$asked in
  *:TERM | *:USR2) ;;
  %s)
    if [ "$(saved)" = "$before" ] && [ "$idle" -ge "$max" ]; then
      say "gives up: $((idle + 1)) starts in a row brought no checkpoint after step ${before:-0}; pipetrain requeue starts it again"
    elif why=$(scontrol requeue "$id" 2>&1); then
      say "goes back into the queue"
    elif refused=$?; [ "$refused" -gt 128 ] || [ "$asked" = TERM ]; then
      say "is ended by Slurm, which puts a preempted job back itself" # and ends scontrol too
    else
      say "could not be requeued (${why:-scontrol ended with code $refused}): pipetrain requeue starts it again"
    fi ;;
esac
`, again())
	}
	b.WriteString("exit \"$ended\"\n")
}
