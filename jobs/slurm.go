package jobs

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var slurmTime = regexp.MustCompile(`^(\d{1,7}|\d{1,7}:\d{2}|\d{1,5}:\d{2}:\d{2}|\d{1,4}-\d{1,2}(:\d{2}){0,2}|UNLIMITED|INFINITE)$`)

// slurmName has what may stand in a #SBATCH line without quoting.
var slurmName = regexp.MustCompile(`^[A-Za-z0-9._,@+-]*$`)

// What the other values of [slurm] may be.
var (
	slurmConstraint = regexp.MustCompile(`^[A-Za-z0-9._,@+&|*!()\[\]-]*$`)
	slurmArray      = regexp.MustCompile(`^(\d{1,7}(-\d{1,7}(:\d{1,7})?)?(,\d{1,7}(-\d{1,7}(:\d{1,7})?)?)*(%[1-9]\d{0,6})?)?$`)
	slurmDependency = regexp.MustCompile(`^((after|afterany|afterburstbuffer|aftercorr|afternotok|afterok|expand)(:\d+(_(\d+|\*))?(\+\d+)?)+|singleton)?([,?]((after|afterany|afterburstbuffer|aftercorr|afternotok|afterok|expand)(:\d+(_(\d+|\*))?(\+\d+)?)+|singleton))*$`)
	shellVariable   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
	sbatchOption    = regexp.MustCompile(`^--?[A-Za-z]`)
	sbatchLong      = regexp.MustCompile(`^--([A-Za-z][A-Za-z0-9_-]*)(=.*)?$`)
)

// ownOptions are the options of sbatch that the script depends on, with the key that sets them.
var ownOptions = map[string]string{
	"job-name": "name", "nodes": "slurm.nodes", "ntasks": "[parallel]", "ntasks-per-node": "slurm.nodes", "cpus-per-task": "device.threads",
	"gpus-per-node": "slurm.gpus_per_node", "partition": "slurm.partition", "account": "slurm.account", "time": "slurm.time", "qos": "slurm.qos",
	"constraint": "slurm.constraint", "reservation": "slurm.reservation", "array": "slurm.array", "dependency": "slurm.dependency",
	"signal": "slurm.signal_before", "requeue": "slurm.requeue", "no-requeue": "slurm.requeue", "output": "submit --out", "error": "submit --out",
	"open-mode": "submit --out", "wrap": "the job file", "parsable": "",
}

// validateSlurm refuses what Slurm, or the shell that reads the script, would not understand.
func (l *loader) validateSlurm() {
	s := &l.spec.Slurm
	matches := func(pattern *regexp.Regexp, what, right string, keys ...string) {
		for _, key := range keys {
			if v := field(&l.spec, key).String(); l.ok(key) && v != "" && !pattern.MatchString(v) {
				l.mistake(key, show(v)+" "+what, right, "")
			}
		}
	}
	matches(slurmTime, "is no time limit", `minutes, "MM:SS", "HH:MM:SS", "D-HH", "D-HH:MM" or "D-HH:MM:SS"`, "slurm.time")
	matches(slurmName, "cannot stand in a batch script", "letters, digits and . _ , @ + -", "slurm.partition", "slurm.account", "slurm.qos", "slurm.reservation", "slurm.mpi")
	matches(slurmConstraint, "cannot stand in a batch script", "names of features joined by & | , ( ) [ ] *", "slurm.constraint")
	matches(slurmArray, "is no array of tasks", `numbers and ranges: "0-9", "1,3,5", "0-99:10", with "%4" behind for at most 4 at a time`, "slurm.array")
	matches(slurmDependency, "is no dependency", `"afterok:123", "afterany:1:2,after:3" or "singleton"`, "slurm.dependency")
	if l.ok("slurm.mpi") && (s.MPI == "" || s.MPI == "none") {
		l.mistake("slurm.mpi", show(s.MPI)+" would start one world a rank", `"auto", "pmix", "pmi2" or another of srun --mpi=list`, "")
	}
	if l.ok("slurm.environment") {
		for _, v := range s.Environment {
			if !shellVariable.MatchString(v) {
				l.mistake("slurm.environment", show(v)+" is no variable", `"NAME=value"`, "")
			}
		}
	}
	if l.ok("slurm.modules") {
		for _, v := range s.Modules {
			if v == "" || v[0] == '-' || strings.ContainsAny(v, " \t") {
				l.mistake("slurm.modules", show(v)+" is no module", `one name an entry: ["gcc/12", "openmpi"]`, "")
			}
		}
	}
	if l.ok("slurm.container_options") && len(s.ContainerOptions) > 0 && s.Container == "" {
		l.mistake("slurm.container_options", "are given without an image", "slurm.container names it", "")
	}
	if l.ok("slurm.options") {
		for _, v := range s.Options {
			long := sbatchLong.FindStringSubmatch(v)
			switch {
			case !sbatchOption.MatchString(v):
				l.mistake("slurm.options", show(v)+" is no option", `["--exclusive", "--mem=64G"]`, "")
			case !strings.HasPrefix(v, "--"):
				l.mistake("slurm.options", show(v)+" is a short option", "write its long name, --name=value", "")
			case long == nil:
				l.mistake("slurm.options", show(v)+" is no option with its value", "write --name=value", "")
			default:
				if option, key := ownOption(long[1]); option != "" {
					l.mistake("slurm.options", fmt.Sprintf("--%s is the script's own", option), key, "")
				}
			}
		}
	}
}

// ownOption returns the option of the script that sbatch would read a name as, with its key; sbatch takes the
// beginning of a name for the whole where there is no other.
func ownOption(name string) (option, key string) {
	if key, own := ownOptions[name]; own {
		return name, key
	}
	for _, option := range slices.Sorted(maps.Keys(ownOptions)) {
		if strings.HasPrefix(option, name) && name != "gpus" { // which is an option itself
			return option, ownOptions[option]
		}
	}
	return "", ""
}
