// Package rank is the engine: it performs one rank's lowered program of a
// schedule step after step, over any transport and device, and what belongs to a step
// beside it (reduction, clipping, optimizer), to a run (checkpoints, profile,
// prediction beside measurement) and to a rehearsal, which computes nothing.
//
// Memory is planned by performing a step on the null device: the same allocations
// in the same order, so that the plan is exact (PlanMemory).
package rank
