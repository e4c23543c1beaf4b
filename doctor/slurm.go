package doctor

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// slurmPatience bounds one question to a daemon. Slurm's own programs wait
// much longer for a controller that is gone.
const slurmPatience = 8 * time.Second

// wantsSlurm says whether the job has a batch part.
func (h *Host) wantsSlurm() bool { return h.Job != nil && h.Job.Slurm.Partition != "" }

func (h *Host) slurmFinding(fix, format string, args ...any) Finding {
	if h.wantsSlurm() {
		return fails(fix, format, args...)
	}
	return warn(fix, format, args...)
}

func checkSlurmCommands(ctx context.Context, h *Host) []Finding {
	var have, lack []string
	for _, name := range []string{"sbatch", "srun", "sinfo", "squeue", "scancel"} {
		if h.look(name) != "" {
			have = append(have, name)
		} else {
			lack = append(lack, name)
		}
	}
	switch {
	case len(have) == 0 && h.wantsSlurm():
		return []Finding{fails("run it on the cluster's login node, or load its Slurm module", "no Slurm here; the job has a [slurm] table")}
	case len(have) == 0:
		return []Finding{ok("no Slurm here")}
	case len(lack) > 0:
		return []Finding{h.slurmFinding("apt-get install slurm-client, or load the cluster's module", "%s found, but not %s", strings.Join(have, ", "), strings.Join(lack, ", "))}
	}
	version, err := h.slurmVersion(ctx)
	if err != nil {
		return []Finding{h.slurmFinding("give it the cluster's slurm.conf (/etc/slurm/slurm.conf or SLURM_CONF), or ignore it where no Slurm is meant to be",
			"Slurm's programs are here, but find no cluster: %v", err)}
	}
	return []Finding{ok("%s (%s)", version, filepath.Dir(h.look("srun")))}
}

// slurmVersion asks for the version, which Slurm's programs only tell when they
// find a configuration: on a machine where they are merely installed it fails.
func (h *Host) slurmVersion(ctx context.Context) (string, error) {
	srun := h.look("srun")
	if srun == "" {
		return "", errors.New("no srun in PATH")
	}
	out, err := h.command(ctx, slurmPatience, nil, srun, "--version")
	if err != nil {
		return "", errors.New(because(out, err))
	}
	return firstLine(out), nil
}

// checkMunge makes a credential and has it checked, as every Slurm command does.
func checkMunge(ctx context.Context, h *Host) []Finding {
	munge, unmunge := h.look("munge"), h.look("unmunge")
	if munge == "" || unmunge == "" {
		if h.look("sinfo") == "" {
			return []Finding{ok("not here, and no Slurm either")}
		}
		return []Finding{ok("not here; this Slurm may use another way to authenticate")}
	}
	if _, err := h.slurmVersion(ctx); err != nil {
		return []Finding{ok("not asked: no cluster to use it for")}
	}
	socket := []string{}
	credential, err := h.command(ctx, slurmPatience, nil, munge, "-n")
	if err != nil {
		if path := h.mungeSocket(ctx); path != "" {
			socket = []string{"--socket=" + path}
			credential, err = h.command(ctx, slurmPatience, nil, munge, "-n", socket[0])
		}
	}
	if err != nil {
		fix := "start munged (systemctl start munge)"
		if _, e := os.Stat(h.path("/run/munge")); e != nil {
			fix = "make /run/munge (owner munge, mode 755) and start munged"
		}
		return []Finding{h.slurmFinding(fix, "no credential: %s", because(credential, err))}
	}
	cmd := []string{"sh", "-c", `credential=$1; shift; printf '%s\n' "$credential" | "$@"`, "sh", credential, unmunge}
	out, err := h.command(ctx, slurmPatience, nil, append(cmd, socket...)...)
	if err != nil {
		return []Finding{h.slurmFinding("see munged's log; clocks that differ between hosts are a usual cause", "a credential is refused: %s", because(out, err))}
	}
	return []Finding{ok("a credential is made and accepted (%s)", field(out, "STATUS"))}
}

// mungeSocket is where Slurm's configuration puts munged, empty for the usual place.
func (h *Host) mungeSocket(ctx context.Context) string {
	return h.slurmSetting(ctx, `AuthInfo\s*=.*\bsocket=([^,\s]+)`)
}

// slurmSetting finds a setting of the cluster, empty where it is not there: pattern is a line's beginning
// with its value as a group.
func (h *Host) slurmSetting(ctx context.Context, pattern string) string {
	scontrol := h.look("scontrol")
	if scontrol == "" {
		return ""
	}
	out, err := h.command(ctx, slurmPatience, nil, scontrol, "show", "config")
	if m := regexp.MustCompile(`(?m)^` + pattern).FindStringSubmatch(out); err == nil && m != nil {
		return m[1]
	}
	return ""
}

// fences says whether PMIx under srun meets in one way. By default Slurm takes a tree where data are
// exchanged and a ring where not; Open MPI's start needs both, one after the other.
func (h *Host) fences(ctx context.Context) []Finding {
	way := cmp.Or(h.env("SLURM_PMIX_FENCE"), h.slurmSetting(ctx, `PMIxCollFence\s*= *([a-z]+)$`), "mixed")
	if way != "mixed" {
		return nil
	}
	return []Finding{warn("export SLURM_PMIX_FENCE=tree before srun (scripts of pipetrain submit do), or PMIxCollFence=tree in the cluster's mpi.conf",
		"srun --mpi=pmix meets by trees and rings in turn: over several busy nodes Open MPI's ranks crash in MPI_Init now and then")}
}

// checkSlurmController asks for the nodes and for the ways to start MPI ranks.
func checkSlurmController(ctx context.Context, h *Host) []Finding {
	sinfo, srun := h.look("sinfo"), h.look("srun")
	if sinfo == "" {
		return []Finding{ok("no Slurm here")}
	}
	if _, err := h.slurmVersion(ctx); err != nil {
		return []Finding{ok("not asked: no cluster is configured")}
	}
	fix := "ask whoever runs the cluster; on a machine of your own start slurmctld, and check SlurmctldHost in slurm.conf"
	out, err := h.command(ctx, slurmPatience, nil, sinfo, "-h", "-o", "%P %a %D %t")
	if err != nil {
		return []Finding{h.slurmFinding(fix, "sinfo: %s", because(out, err))}
	}
	up := 0
	var lines []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) != 4 {
			continue
		}
		lines = append(lines, strings.Join(fields, " "))
		if fields[1] == "up" && !strings.HasPrefix(fields[3], "down") && !strings.HasPrefix(fields[3], "drain") && !strings.HasSuffix(fields[3], "*") {
			up++
		}
	}
	if up == 0 {
		return []Finding{h.slurmFinding("scontrol show node says why; scontrol update NodeName=… State=RESUME", "no node is up: %s", strings.Join(lines, "; "))}
	}
	all := []Finding{ok("%s", strings.Join(lines, "; ")).with("partitions", lines)}
	if srun == "" {
		return all
	}
	out, err = h.command(ctx, slurmPatience, nil, srun, "--mpi=list")
	if err != nil {
		return append(all, warn("use mpirun inside the allocation", "srun --mpi=list: %s", because(out, err)))
	}
	plugins := mpiPlugins(out)
	libs, _ := findMPI(h)
	for _, way := range []struct{ family, plugin string }{{openMPI, "pmix"}, {mpich, "pmi2"}} {
		if slices.ContainsFunc(libs, func(l mpiLibrary) bool { return l.Family == way.family }) {
			all = append(all, h.wireUp(ctx, way.family, way.plugin, plugins)...)
		}
	}
	return append(all, ok("srun --mpi: %s (Open MPI: pmix, MPICH: pmi2)", strings.Join(plugins, ", ")))
}

// wireUp says what stands against starting ranks of a family of MPI with its plugin of srun.
func (h *Host) wireUp(ctx context.Context, family, plugin string, plugins []string) []Finding {
	if !slices.Contains(plugins, plugin) {
		return []Finding{warn("use mpirun inside the allocation, or ask for that plugin of Slurm",
			"srun has no --mpi=%s, which %s needs; it has %s", plugin, family, strings.Join(plugins, ", "))}
	}
	if why := h.pluginFails(ctx, plugin); why != "" {
		fix := "install what it misses on every node, or use mpirun inside the allocation"
		if plugin == "pmix" {
			fix = "install the package that has libpmix.so by that name, on every node (Debian, Ubuntu: apt-get install libpmix-dev), or use mpirun inside the allocation"
		}
		return []Finding{warn(fix, "srun lists --mpi=%s, which %s needs, but cannot load it: %s", plugin, family, why)}
	}
	if plugin == "pmix" {
		return h.fences(ctx)
	}
	return nil
}

// pluginFails returns why srun cannot load a plugin that it lists, "" where it can. The list is made of
// file names; only a start loads the plugin and the library behind it. With --test-only nothing is started.
func (h *Host) pluginFails(ctx context.Context, plugin string) string {
	outside := *h // of any allocation: within one, srun means a step, which it cannot try out
	outside.Env = slices.DeleteFunc(slices.Clone(h.Env), func(v string) bool {
		return strings.HasPrefix(v, "SLURM_") && !strings.HasPrefix(v, "SLURM_CONF=")
	})
	out, err := outside.command(ctx, slurmPatience, nil, h.look("srun"), "--mpi="+plugin, "--test-only", "--ntasks=1", "true")
	if err == nil || !pluginBroken.MatchString(out) {
		return "" // it loads; that this cluster would not start one rank now is no matter of the plugin
	}
	return firstLine(out)
}

// pluginBroken is what srun prints of a plugin that does not load.
var pluginBroken = regexp.MustCompile(`Couldn't load specified plugin|[Cc]annot create context for mpi/|Invalid MPI type`)

// mpiPlugins reads the names from `srun --mpi=list`, whose lines changed between versions.
func mpiPlugins(out string) []string {
	var names []string
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if _, rest, found := strings.Cut(line, "specific pmix plugin versions available:"); found {
			line = rest
		} else if strings.Contains(line, " are") || strings.HasSuffix(line, "...") {
			continue // the heading
		}
		for word := range strings.FieldsFuncSeq(line, func(r rune) bool { return r == ',' || r == ' ' }) {
			if word != "srun:" {
				names = append(names, word)
			}
		}
	}
	return names
}

// checkSlurmPartition looks for the job's partition before it is submitted.
func checkSlurmPartition(ctx context.Context, h *Host) []Finding {
	if !h.wantsSlurm() {
		return []Finding{ok("no job with a [slurm] table was given")}
	}
	sinfo := h.look("sinfo")
	if sinfo == "" {
		return []Finding{fails("run it on the cluster's login node", "no Slurm here to ask for partition %q", h.Job.Slurm.Partition)}
	}
	out, err := h.command(ctx, slurmPatience, nil, sinfo, "-h", "-o", "%R")
	if err != nil {
		return []Finding{fails("see the controller's line", "sinfo: %s", because(out, err))}
	}
	known := slices.Compact(slices.Sorted(strings.FieldsSeq(out)))
	if !slices.Contains(known, h.Job.Slurm.Partition) {
		return []Finding{fails("set slurm.partition to one of them", "no partition %q; there are %s", h.Job.Slurm.Partition, strings.Join(known, ", "))}
	}
	return []Finding{ok("%s is there", h.Job.Slurm.Partition)}
}
