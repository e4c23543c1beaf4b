package launcher

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Step ids from here on are Slurm's own: batch script, interactive step,
// external step. A process in one of them is not a rank.
const firstSpecialStep = 0xfffffff0

// detectSrun reads Slurm's variables, which are everywhere in an allocation and
// mean a rank only in a step of several tasks: a batch script has
// SLURM_PROCID=0, and a shell under `srun --pty` or `salloc` has a step or a
// job but is where a user starts a world from.
func detectSrun(vars map[string]string) (World, []string) {
	job := vars["SLURM_JOB_ID"]
	if job == "" {
		job = vars["SLURM_JOBID"]
	}
	rank, ok := vars["SLURM_PROCID"]
	if !ok {
		if job != "" {
			return alone(), []string{"inside Slurm job " + job + ", not in a step: alone"}
		}
		return alone(), nil
	}
	step, ok := vars["SLURM_STEP_ID"]
	if !ok {
		step, ok = vars["SLURM_STEPID"]
	}
	if !ok || job == "" {
		return alone(), []string{fmt.Sprintf("SLURM_PROCID=%s without a step: a batch script is not a rank", rank)}
	}
	if id, err := strconv.ParseUint(step, 10, 64); err != nil || id >= firstSpecialStep {
		return alone(), []string{fmt.Sprintf("SLURM_STEP_ID=%s is not a step of srun: a batch or interactive script is not a rank", step)}
	}
	size, ok := vars["SLURM_STEP_NUM_TASKS"]
	sizeName := "SLURM_STEP_NUM_TASKS"
	if !ok {
		// Not SLURM_NTASKS in any case: it is the job's, and can be 1 on the second node.
		return alone(), []string{fmt.Sprintf("SLURM_PROCID=%s in step %s.%s without SLURM_STEP_NUM_TASKS: not believed", rank, job, step)}
	}
	w := World{Launcher: Srun, LocalRank: Unknown, LocalSize: Unknown, Node: vars["SLURM_NODEID"]}
	var err error
	if w.Rank, w.Size, err = rankOf("SLURM_PROCID", rank, sizeName, size); err != nil {
		w.Problem = err.Error()
		return w, nil
	}
	if why := staleStep(vars, w.Rank, job+"."+step); why != "" {
		return alone(), []string{"variables of another step: " + why}
	}
	if w.Size == 1 {
		return alone(), []string{fmt.Sprintf("step %s.%s has one task: alone", job, step)}
	}
	w.LocalRank = number(vars, "SLURM_LOCALID")
	w.LocalSize = tasksOnNode(vars["SLURM_STEP_TASKS_PER_NODE"], number(vars, "SLURM_NODEID"))
	switch {
	case vars["PMIX_NAMESPACE"] != "":
		w.PMI = "pmix"
	case vars["PMI_FD"] != "" || vars["PMI_RANK"] != "":
		w.PMI = "pmi2"
	}
	var notes []string
	if w.PMI == "" {
		notes = append(notes, "srun was started without an --mpi that a library can use (pmix for Open MPI, pmi2 for MPICH)")
	}
	return w, notes
}

// staleStep says what shows that the step's variables were inherited: a batch
// script that was submitted from inside a step (a job that queues its successor)
// has them all, with a job id, a rank and a list of local tasks of its own.
func staleStep(vars map[string]string, rank int, id string) string {
	if ns := vars["PMIX_NAMESPACE"]; strings.HasPrefix(ns, "slurm.pmix.") && ns != "slurm.pmix."+id {
		return fmt.Sprintf("PMIX_NAMESPACE=%s is not of step %s", ns, id)
	}
	if pmi := vars["PMI_JOBID"]; vars["PMI_FD"] != "" && pmi != "" && pmi != id {
		return fmt.Sprintf("PMI_JOBID=%s is not of step %s", pmi, id)
	}
	list, ok := vars["SLURM_GTIDS"]
	if !ok {
		return ""
	}
	ids := strings.Split(list, ",")
	if !slices.Contains(ids, strconv.Itoa(rank)) {
		return fmt.Sprintf("rank %d is not among this node's, SLURM_GTIDS=%s", rank, list)
	}
	if n := tasksOnNode(vars["SLURM_STEP_TASKS_PER_NODE"], number(vars, "SLURM_NODEID")); n != Unknown && n != len(ids) {
		return fmt.Sprintf("the step has %d tasks on this node, SLURM_GTIDS=%s", n, list)
	}
	return ""
}

// tasksOnNode reads Slurm's run-length list of tasks a node, "2(x3),1" = 2,2,2,1,
// and returns the entry of node i; Unknown where it does not say.
func tasksOnNode(list string, node int) int {
	if node < 0 {
		return Unknown
	}
	for _, part := range strings.Split(list, ",") {
		count, repeat, repeated := strings.Cut(part, "(x")
		n, err := strconv.Atoi(count)
		if err != nil || n < 0 {
			return Unknown
		}
		times := 1
		if repeated {
			times, err = strconv.Atoi(strings.TrimSuffix(repeat, ")"))
			if err != nil || times < 1 {
				return Unknown
			}
		}
		if node < times {
			return n
		}
		node -= times
	}
	return Unknown
}
