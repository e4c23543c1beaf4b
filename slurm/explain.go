package slurm

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

// fixes are what can be wrong with a cluster or a request, by the words of
// Slurm's programs (22.05 to 25.05), and what to do. The first that fits is taken.
var fixes = []struct {
	words  *regexp.Regexp
	format string // program, ": reason"
}{
	{regexp.MustCompile(`(?i)could not establish a configuration source|unable to process configuration|unable to establish configuration source`),
		"%s finds no cluster%s; this machine belongs to none, or SLURM_CONF names the wrong file"},
	{regexp.MustCompile(`(?i)munge|authentication|credential`),
		"%s cannot prove who you are%s; munged does not run here or has another key than the cluster's: tell whoever runs the cluster, or on your own systemctl start munge"},
	{regexp.MustCompile(`(?i)unable to contact slurm controller|connection refused|unable to resolve|connection timed out`),
		"%s cannot reach Slurm's controller%s; scontrol ping asks it, try again later or tell whoever runs the cluster"},
	{regexp.MustCompile(`(?i)invalid account or|invalid account`),
		"%s%s; correct slurm.account, or slurm.partition where the account may not use it: sacctmgr show associations user=$USER lists yours"},
	{regexp.MustCompile(`(?i)invalid qos`), "%s%s; correct slurm.qos: sacctmgr show qos lists them"},
	{regexp.MustCompile(`(?i)invalid feature`), "%s%s; correct slurm.constraint: sinfo -o '%%N %%f' lists what nodes have"},
	{regexp.MustCompile(`(?i)reservation`), "%s%s; correct slurm.reservation: scontrol show reservation lists them"},
	{regexp.MustCompile(`(?i)time limit|time specification`), "%s%s; correct slurm.time: sinfo -o '%%P %%l' lists the partitions' limits"},
	{regexp.MustCompile(`(?i)job array`), "%s%s; correct slurm.array: scontrol show config | grep MaxArraySize tells the highest number"},
	{regexp.MustCompile(`(?i)dependency`), "%s%s; correct slurm.dependency: squeue --me lists your jobs"},
	{regexp.MustCompile(`(?i)node configuration|node count|more processors|can not be satisfied`),
		"%s%s; ask for less with slurm.nodes, slurm.gpus_per_node, device.threads or slurm.options: sinfo -N -o '%%N %%P %%c %%m %%G' lists what nodes have"},
	{regexp.MustCompile(`(?i)unrecognized option|invalid --|unrecognized argument`), "%s%s; correct slurm.options"},
	{regexp.MustCompile(`(?i)access/permission denied`), "%s%s; the job is another user's"},
}

var (
	badPartition  = regexp.MustCompile(`(?i)invalid partition`)
	withPartition = regexp.MustCompile(`invalid partition specified: *(\S+)`)
	lateAnswer    = regexp.MustCompile(`(?i)timed out|zero bytes|unexpected message`)
	forgotten     = regexp.MustCompile(`(?i)invalid job id`)
)

// explain makes one line of what a program wrote before it failed.
func (t Tools) explain(ctx context.Context, name string, said string, err error) error {
	why := because(said)
	if why == "" {
		why = ": " + err.Error()
	}
	if forgotten.MatchString(said) {
		return ErrUnknownJob
	}
	if badPartition.MatchString(said) {
		which, there := "", ""
		if m := withPartition.FindStringSubmatch(said); m != nil {
			which = " " + m[1]
		}
		if out, err := t.run(ctx, "sinfo", "-h", "-o", "%R"); err == nil {
			there = ", there are " + strings.Join(strings.Fields(out), ", ")
		}
		return fmt.Errorf("%s: partition%s is unknown%s; correct slurm.partition", name, which, there)
	}
	for _, m := range fixes {
		if m.words.MatchString(said) {
			why := fmt.Errorf(m.format, name, why)
			if lateAnswer.MatchString(said) {
				return &UncertainError{why}
			}
			return why
		}
	}
	return &UncertainError{fmt.Errorf("%s refused%s", name, why)}
}

// because makes ": reason" of a program's words: its last line that says something.
func because(said string) string {
	reason := ""
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		for _, cut := range []string{"error: ", "fatal: "} {
			if i := strings.LastIndex(line, cut); i >= 0 {
				line = line[i+len(cut):]
			}
		}
		if line != "" && !strings.HasPrefix(line, "Try \"") {
			reason = line
		}
	}
	if reason == "" {
		return ""
	}
	for _, own := range []string{"sbatch: ", "scontrol: ", "squeue: ", "scancel: ", "Batch job submission failed: "} {
		reason = strings.TrimPrefix(reason, own)
	}
	return ": " + reason
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}
