package jobs

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/pipetrain/pipetrain/data"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/schedule"
)

// Key describes one key of the job file. The list of them is the single place
// for what is checked of a value on its own, for the documentation page and for
// the resolved job.
type Key struct {
	Name     string // "model.heads"
	Doc      string // one sentence
	Required bool
	Note     string   // what the default is, where it follows from other keys
	Choices  []string // the kinds it may name; empty: any text
	Open     bool     // a text beside the choices is a path

	min, max float64 // bounds of a number, inclusive; both 0: none
	above    bool    // min itself is excluded
	below    bool    // max itself is excluded
	path     pathKey
	owners   []string // the kinds that have the key; nil: all
}

// pathKey says how a text that names a file is made absolute.
type pathKey uint8

const (
	noPath    pathKey = iota
	isPath            // always a path
	mayBePath         // a path when it has a separator, else a name
)

// tables describes the tables, in the order of the file.
var tables = []struct{ Name, Doc string }{
	{"", "The job"},
	{"model", "The network"},
	{"data", "What it is trained on"},
	{"train", "How long, and how much at a time"},
	{"optimizer", "The update"},
	{"parallel", "Over how many ranks: world = stages × replicas × tensor"},
	{"schedule", "The order of work within a step"},
	{"device", "Where the layers run"},
	{"transport", "How ranks talk"},
	{"checkpoint", "When the state is saved"},
	{"metrics", "What is written of the steps, beside `metrics.jsonl`"},
	{"run", "Where the results go, how ranks are started"},
	{"slurm", "For the batch script that `submit` writes"},
}

// keyList has one entry for each field of Spec, in the order of the file.
// Bounds are far above any use and keep every size that follows within 64 bits.
var keyList = withKeys(withKeys([]Key{
	{Name: "name", Doc: "Names the run folder and the batch job: letters, digits, `.`, `_`, `-`.", Note: "the file's name without `.toml`"},
	{Name: "seed", Doc: "Seed of everything random: initial weights and the order of the data."},

	{Name: "model.kind", Doc: familyDoc(), Choices: familyNames()},

	{Name: "data.kind", Doc: kindsDoc(), Choices: kindNames()},
	{Name: "data.path", Doc: "The file, or a pattern that names several (`\"shards/train_*.bin\"`): they are read by name, and no sequence crosses from one into the next. Relative to the job file's folder; after `--set`, to the working directory.", Note: "none; `text` and `tokens` need one", path: isPath},
	{Name: "data.format", Doc: formatsDoc(), Choices: formatNames()},
	{Name: "data.holdout", Doc: "Share of the text or the tokens, at the end, never trained on but kept for evaluation.", Note: "0.05; 0 where that is shorter than one sequence", min: 0, max: 0.5},

	{Name: "train.steps", Doc: "Optimizer steps.", Required: true, min: 1, max: 1e12},
	{Name: "train.batch", Doc: "Sequences of a step, over all replicas and micro-batches; a multiple of `replicas × microbatches`.", Required: true, min: 1, max: 1 << 30},
	{Name: "train.precision", Doc: "Number format. `bf16`: activations, messages and the weights that layers read are bf16; the weights that the optimizer updates, gradients of weights, statistics and losses stay fp32 ([precision.md](precision.md)). `tf32`: fp32, but a GPU rounds the operands of matrix products to 10 bits of mantissa; needs `device.kind = \"cuda\"` (or `rehearse`).", Choices: []string{"fp32", "tf32", "bf16"}},

	{Name: "optimizer.kind", Doc: ruleDoc(), Choices: ruleNames()},
	{Name: "optimizer.lr", Doc: "Learning rate after the warm-up.", min: 0, max: 1000, above: true},
	{Name: "optimizer.min_lr", Doc: "Learning rate at the end of the run; at most `lr`.", min: 0, max: 1000},
	{Name: "optimizer.warmup", Doc: "Steps over which the rate rises linearly from 0; at most `train.steps`.", min: 0, max: 1e12},
	{Name: "optimizer.decay", Doc: decaysDoc(), Choices: decayNames()},
	{Name: "optimizer.decay_steps", Doc: "Length of the fall, at the end of the run, after a plateau (warm-up, stable, decay). 0: it begins where the warm-up ends.", min: 0, max: 1e12},
	{Name: "optimizer.weight_decay", Doc: "Weight decay of matrices; gains have none.", min: 0, max: 100},
	{Name: "optimizer.clip", Doc: "Largest norm of the gradient over all stages; longer ones are scaled down. 0: no clipping.", Note: "`1.0`; `0.0` for asynchronous kinds, which cannot clip", min: 0, max: 1e9},

	{Name: "parallel.stages", Doc: "Ranks of one pipeline.", min: 1, max: schedule.MaxRanks},
	{Name: "parallel.replicas", Doc: "Copies of the pipeline, each with its share of the batch.", min: 1, max: 1 << 16},
	{Name: "parallel.tensor", Doc: "Ranks that share each stage's matrices. Only 1, so far.", min: 1, max: 1 << 16},

	{Name: "schedule.kind", Doc: "Order of forwards and backwards; the kinds are described below. `auto` searches for the fastest under `memory_limit`, `file` runs a schedule file."},
	{Name: "schedule.file", Doc: "Schedule file to run with `kind = \"file\"`: any order of work, checked before anything starts. With `auto` it is what an earlier run found. Relative to the job file's folder; after `--set`, to the working directory.", path: isPath},
	{Name: "schedule.profile", Doc: "Measured op times, as `pipetrain profile` writes them: what `auto` and `plan` calculate with. Empty: an assumed device. A relative path is taken as that of `file`.", path: isPath},
	{Name: "schedule.microbatches", Doc: "Micro-batches of a step and replica.", Note: "as `parallel.stages`, or what the kind needs at least", min: 1, max: schedule.MaxMicrobatches},
	{Name: "schedule.chunks", Doc: "Stages a rank, for the kinds that place several; `auto` tries 1 and 2 when it is 1.", Note: "the kind's own", min: 1, max: schedule.MaxChunks},
	{Name: "schedule.backward_p2", Doc: "Where backward-p2 (gradient of the weights) goes: with backward-p1, lagging behind it, into the cooldown, or at the end (2BP, arXiv 2405.18047); `native`: where the kind itself puts it.", Note: "`cooldown`; `native` for kinds that place it themselves, `fused` for asynchronous ones"},
	{Name: "schedule.concat", Doc: "Micro-batches joined in one backward-p2: a number up to `microbatches`, or `\"all\"`. No effect when `fused` or `native`.", min: 1, max: schedule.MaxMicrobatches},
	{Name: "schedule.memory_limit", Doc: "Memory of a rank that the plan must fit: `\"70GiB\"`, `\"512MiB\"`, a number of bytes, or `\"\"` for none."},

	{Name: "device.kind", Doc: "`cpu`; `cuda`, an NVIDIA GPU for each rank; `auto`: the GPU where each rank of the host has one, else the CPU. `rehearse`: ops take modelled time and compute nothing; the times are those of `schedule.profile`, else what an assumed device needs.", Choices: []string{"auto", "cpu", "cuda", "rehearse"}},
	{Name: "device.messages", Doc: "Messages of a rehearsal: `real`, with the sizes of a real run, or `small`, so that only the schedule counts.", Choices: []string{"real", "small"}},
	{Name: "device.threads", Doc: "CPU threads a rank. 0: the host's cores shared evenly by its ranks.", min: 0, max: 4096},
	{Name: "device.bind", Doc: "CPUs of a rank: `auto`: its share of the host's cores where pipetrain starts the ranks and there is one for each, else where the launcher put it; `cores`: its share under every launcher; `numa`: the cores of one NUMA node, shared with the ranks there; `none`: all CPUs. What a rank got is in `environment.json`.", Choices: []string{"auto", "cores", "numa", "none"}},
	{Name: "device.blas", Doc: "BLAS library of the CPU device, or the path of one; `auto`: the first found.", Choices: []string{"auto", "onednn", "mkl", "blis", "openblas", "go"}, Open: true, path: mayBePath},
	{Name: "device.transfer", Doc: "How messages leave a GPU: `ipc`, straight into the memory of a GPU of the same node; `direct`, by an MPI that takes device memory (CUDA-aware); `staged`, in parts through page-locked host memory while the GPU computes; `auto`: the first of them that is proved to work at the start, for each pair of ranks.", Choices: []string{"auto", "ipc", "direct", "staged"}},
	{Name: "device.p2_stream", Doc: "Perform backward-p2 on a second stream of the GPU, beside the forward or backward-p1 that follows it."},
	{Name: "device.p2_graph", Doc: "Record backward-p2 as a CUDA graph in the first step and replay it in the others."},
	{Name: "device.share", Doc: "Let several ranks of a host use one GPU, in turn or, where NVIDIA's MPS runs, at once. Else a GPU that two ranks would use is refused."},
	{Name: "device.libcuda", Doc: "Path or name of the NVIDIA driver's library. Empty: `libcuda.so.1`.", path: mayBePath},
	{Name: "device.cublaslt", Doc: "Path or name of cublasLt, which multiplies matrices on the GPU. `auto`: the newest found, else the program's own kernels, which are several times slower; `none`: those.", Choices: []string{"auto", "none"}, Open: true, path: mayBePath},

	{Name: "transport.kind", Doc: "`local`: shared memory of one host, nothing installed. `mpi`: the cluster's library, loaded at run time. `auto`: `mpi` under an MPI launcher, else `local`.", Choices: []string{"auto", "local", "mpi"}},
	{Name: "transport.libmpi", Doc: "Path or name of the MPI library. Empty: found from the launcher.", path: mayBePath},

	{Name: "checkpoint.enabled", Doc: "Save the state at all. `false` is for measurements: nothing is saved, also at the end, and a run that is asked to stop ends with 130."},
	{Name: "checkpoint.every", Doc: "Steps between checkpoints. 0: only at the end.", min: 0, max: 1e12},
	{Name: "checkpoint.keep", Doc: "Newest checkpoints kept. 0: all.", min: 0, max: 1e12},

	{Name: "metrics.tensorboard", Doc: "Event files for TensorBoard in the run folder, written while it runs."},

	{Name: "run.dir", Doc: "Folder of the run folders; `--out` names one run's. Relative to the job file's folder; after `--set`, to the working directory.", Note: "`runs` in the working directory", path: isPath},
	{Name: "run.hello_timeout", Doc: "Time from the start of a rank's process within which it must have come up, where pipetrain starts the ranks. Longer by itself where more than 16 ranks share a core.", min: 0, max: 86400, above: true},
	{Name: "run.start_timeout", Doc: "Time from the start of the last rank within which every rank must have joined: `\"60s\"`, `\"2m\"`, or seconds. Longer by itself where more than 16 ranks share a core.", min: 0, max: 86400, above: true},
	{Name: "run.stall_timeout", Doc: "Time within which an op of a step must end on every rank, waiting for a peer included; else the run ends with code 5, and says what was waited for. Must be longer than a step, and than a save. 0: never.", min: 0, max: 604800},

	{Name: "slurm.partition", Doc: "Partition. Empty: the cluster's default."},
	{Name: "slurm.nodes", Doc: "Nodes. 0: Slurm decides.", min: 0, max: 1 << 20},
	{Name: "slurm.gpus_per_node", Doc: "GPUs asked for on each node.", min: 0, max: 1 << 10},
	{Name: "slurm.time", Doc: "Time limit as Slurm writes it: `\"30\"` (minutes), `\"04:00:00\"`, `\"1-12:00:00\"`. Empty: the partition's."},
	{Name: "slurm.account", Doc: "Account to charge. Empty: the user's default."},
	{Name: "slurm.qos", Doc: "Quality of service. Empty: the account's default."},
	{Name: "slurm.constraint", Doc: "Features that the nodes must have: `\"a100&nvlink\"`."},
	{Name: "slurm.reservation", Doc: "Reservation to run in."},
	{Name: "slurm.array", Doc: "Array of independent runs: `\"0-9\"`, `\"1,3,5%2\"`. Each has a run folder `task-N` of its own; `%a` in a `--set` of `submit` is its number."},
	{Name: "slurm.dependency", Doc: "What must have happened before the job starts: `\"afterok:123\"`, `\"singleton\"`."},
	{Name: "slurm.signal_before", Doc: "Time before the limit at which Slurm asks the ranks to save and stop. 0: not asked; the work since the last checkpoint is lost.", min: 0, max: 65535},
	{Name: "slurm.requeue", Doc: "The job goes back into the queue, to continue by itself, when it was stopped by its time limit or a preemption, or lost a rank or a node."},
	{Name: "slurm.max_restarts", Doc: "Starts in a row that may bring no new checkpoint before the job gives up.", min: 0, max: 1000},
	{Name: "slurm.launcher", Doc: "What starts the ranks within the allocation. `auto`: `srun` where it has the wire-up of the MPI library, else `mpirun`.", Choices: []string{"auto", "srun", "mpirun"}},
	{Name: "slurm.mpi", Doc: "Wire-up for `srun --mpi=`: `pmix` for Open MPI, `pmi2` for MPICH and its kin, or another name that `srun --mpi=list` gives. `auto`: from `transport.libmpi`, else from the `mpirun` found when submitting."},
	{Name: "slurm.modules", Doc: "Environment modules that the batch script loads, in this order."},
	{Name: "slurm.environment", Doc: "Variables that the batch script exports: `[\"UCX_TLS=rc,self\"]`."},
	{Name: "slurm.container", Doc: "Image that the ranks run in: a path, for Apptainer also `docker://…`. pipetrain itself stays outside the image. Relative to the job file's folder.", path: mayBePath},
	{Name: "slurm.container_tool", Doc: "What runs the image: `apptainer exec`, `singularity exec`, or Charliecloud's `ch-run`.", Choices: []string{"apptainer", "singularity", "charliecloud"}},
	{Name: "slurm.container_options", Doc: "Further options of that tool: `[\"--nv\", \"--bind=/scratch\"]`."},
	{Name: "slurm.options", Doc: "Further options of `sbatch`: `[\"--exclusive\", \"--mem=0\"]`."},
}, "optimizer.decay_steps", rules()), "model.kind", families())

// Default returns the job that a file with only the required keys would give,
// before what follows from other keys (kv_heads, ffn, microbatches …) is filled in.
func Default() Spec {
	return Spec{
		Seed:       1,
		Model:      model.FindFamily(model.DefaultKind).Defaults,
		Data:       Data{Kind: data.KindText, Format: data.FormatAuto},
		Train:      Train{Precision: "fp32"},
		Optimizer:  Optimizer{Kind: "adamw", LR: 3e-4, Decay: "cosine", Clip: 1, values: ruleDefaults()},
		Parallel:   Parallel{Stages: 1, Replicas: 1, Tensor: 1},
		Schedule:   Schedule{Kind: "1f1b", BackwardP2: "cooldown", Concat: 1},
		Device:     Device{Messages: "real", Kind: "auto", Bind: "auto", BLAS: "auto", Transfer: "auto", CublasLt: "auto"},
		Transport:  Transport{Kind: "auto"},
		Checkpoint: Checkpoint{Enabled: true, Keep: 2},
		Run:        Run{HelloTimeout: 10 * time.Second, StartTimeout: time.Minute, StallTimeout: 30 * time.Minute},
		Slurm:      Slurm{SignalBefore: 2 * time.Minute, Requeue: true, MaxRestarts: 3, Launcher: "auto", MPI: "auto", ContainerTool: "apptainer"},
	}
}

// Keys returns every key of the job file in the order of the documentation.
func Keys() []Key {
	list := make([]Key, len(keyList))
	copy(list, keyList)
	for i := range list {
		list[i].Choices = list[i].choices()
	}
	return list
}

// choices returns the kinds a key may name; those of schedules are the package's own.
func (k Key) choices() []string {
	switch k.Name {
	case "schedule.kind":
		return scheduleKinds()
	case "schedule.backward_p2":
		return placements()
	}
	return k.Choices
}

// Type returns the key's type in the words of the documentation.
func (k Key) Type() string {
	var s Spec
	switch field(&s, k.Name).Interface().(type) {
	case string:
		return "text"
	case int, int64:
		return "integer"
	case float64:
		return "number"
	case bool:
		return "true or false"
	case Concat:
		return `integer or "all"`
	case Bytes:
		return "size"
	case time.Duration:
		return "time"
	case List:
		return "list of texts"
	}
	panic("jobs: key " + k.Name + " has a type without a name")
}

// Range returns the bounds of a number in words, empty where there are none.
func (k Key) Range() string {
	if k.min == 0 && k.max == 0 {
		return ""
	}
	from, to := "at least "+formatFloat(k.min), "at most "+formatFloat(k.max)
	if k.above {
		from = "above " + formatFloat(k.min)
	}
	if k.below {
		to = "below " + formatFloat(k.max)
	}
	return from + ", " + to
}

func (k Key) table() string {
	if t, _, ok := strings.Cut(k.Name, "."); ok {
		return t
	}
	return ""
}

// leaf returns the name within its table.
func (k Key) leaf() string { return k.Name[strings.LastIndexByte(k.Name, '.')+1:] }

// keysByName finds a Key by its name.
var keysByName = func() map[string]*Key {
	m := make(map[string]*Key, len(keyList))
	for i := range keyList {
		m[keyList[i].Name] = &keyList[i]
	}
	return m
}()

func isTable(name string) bool {
	for _, t := range tables {
		if t.Name == name && name != "" {
			return true
		}
	}
	return false
}

// field returns the settable field of s that a key names.
func field(s *Spec, name string) reflect.Value {
	if leaf, ok := strings.CutPrefix(name, "optimizer."); ok && isRuleKey(leaf) {
		return reflect.ValueOf(s.Optimizer.value(leaf)).Elem()
	}
	v := reflect.ValueOf(s).Elem()
	for part := range strings.SplitSeq(name, ".") {
		v = fieldByTag(v, part)
	}
	return v
}

func fieldByTag(v reflect.Value, tag string) reflect.Value {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("toml") == tag {
			return v.Field(i)
		}
	}
	panic(fmt.Sprintf("jobs: no field for key part %q in %s", tag, v.Type()))
}
