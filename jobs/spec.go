// Package jobs has the job file: its form, defaults, validation and
// what follows from it (the grid of ranks).
package jobs

import (
	"time"

	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/schedule"
)

// Spec is a checked job: what the TOML file said, with defaults filled in.
type Spec struct {
	Name       string       `toml:"name"`
	Seed       int64        `toml:"seed"`
	Model      model.Config `toml:"model"`
	Data       Data         `toml:"data"`
	Train      Train        `toml:"train"`
	Optimizer  Optimizer    `toml:"optimizer"`
	Parallel   Parallel     `toml:"parallel"`
	Schedule   Schedule     `toml:"schedule"`
	Device     Device       `toml:"device"`
	Transport  Transport    `toml:"transport"`
	Checkpoint Checkpoint   `toml:"checkpoint"`
	Metrics    Metrics      `toml:"metrics"`
	Run        Run          `toml:"run"`
	Slurm      Slurm        `toml:"slurm"`

	custom *schedule.Schedule // of schedule.file
}

// Data says what is read.
type Data struct {
	Kind   string `toml:"kind"`   // text (bytes of files) | tokens (made beforehand) | synthetic
	Path   string `toml:"path"`   // or a pattern; in the file: relative to the file's folder; in a checked job: absolute
	Format string `toml:"format"` // of tokens: auto, or one of data.Formats
	// Holdout is the share of the text or the tokens, at the end, that is kept for evaluation.
	Holdout float64 `toml:"holdout"`
}

// Train says how long and how much at a time.
type Train struct {
	Steps     int    `toml:"steps"`
	Batch     int    `toml:"batch"`     // global batch in sequences, over all replicas and micro-batches
	Precision string `toml:"precision"` // fp32 | tf32 | bf16
}

// Optimizer describes the update.
type Optimizer struct {
	Kind        string  `toml:"kind"` // of a model.Rule
	LR          float64 `toml:"lr"`
	MinLR       float64 `toml:"min_lr"` // end of the cosine
	Warmup      int     `toml:"warmup"` // steps of linear warm-up
	Decay       string  `toml:"decay"`  // one of model.Decays
	DecaySteps  int     `toml:"decay_steps"`
	WeightDecay float64 `toml:"weight_decay"`
	Clip        float64 `toml:"clip"` // global gradient norm; 0: no clipping

	values map[string]*float64 // of the keys of all rules
}

// Parallel says over how many ranks.
type Parallel struct {
	Stages   int `toml:"stages"` // pipeline ranks of a replica
	Replicas int `toml:"replicas"`
	Tensor   int `toml:"tensor"` // 1 only, so far
}

// Schedule selects the order of work.
type Schedule struct {
	Kind         string `toml:"kind"`    // naive | gpipe | 1f1b | ... | auto | file
	File         string `toml:"file"`    // of kind file; of kind auto: what was found
	Profile      string `toml:"profile"` // measured op times, for kind auto and for plans
	Microbatches int    `toml:"microbatches"`
	Chunks       int    `toml:"chunks"`      // stages a rank, for the interleaved kinds
	BackwardP2   string `toml:"backward_p2"` // fused | lagged | cooldown | end
	Concat       Concat `toml:"concat"`
	MemoryLimit  Bytes  `toml:"memory_limit"`
}

// Concat is how many micro-batches one backward-p2 joins: n, or 0 for "all".
type Concat int

// Bytes is a size, in the file a number or text such as "70GiB"; 0: no limit.
type Bytes int64

// Device selects where the layers run.
type Device struct {
	Kind string `toml:"kind"` // auto | cpu | cuda | rehearse
	// Messages of a rehearsal: real (with the sizes of a real run) | small.
	Messages string `toml:"messages"`
	Threads  int    `toml:"threads"` // CPU threads a rank; 0: the host's cores shared by its ranks
	Bind     string `toml:"bind"`    // auto | cores | numa | none
	BLAS     string `toml:"blas"`    // auto | onednn | mkl | blis | openblas | go | path of a library
	// Transfer is the way messages leave a GPU: auto | ipc | direct | staged.
	Transfer string `toml:"transfer"`
	P2Stream bool   `toml:"p2_stream"` // backward-p2 on a second stream
	P2Graph  bool   `toml:"p2_graph"`  // backward-p2 as a CUDA graph
	Share    bool   `toml:"share"`     // ranks of a host may use one GPU together
	LibCUDA  string `toml:"libcuda"`   // the driver's library, name or path
	CublasLt string `toml:"cublaslt"`  // auto | none | name or path of the library
}

// Transport selects how ranks talk.
type Transport struct {
	Kind   string `toml:"kind"` // auto | local | mpi
	LibMPI string `toml:"libmpi"`
}

// Metrics says what is written of the steps beside metrics.jsonl.
type Metrics struct {
	TensorBoard bool `toml:"tensorboard"`
}

// Checkpoint says when the state is saved.
type Checkpoint struct {
	Enabled bool `toml:"enabled"` // false: nothing is saved, for measurements
	Every   int  `toml:"every"`   // steps; 0: only at the end
	Keep    int  `toml:"keep"`    // newest ones kept; 0: all
}

// Run says where the results go and how ranks are started.
type Run struct {
	Dir          string        `toml:"dir"`           // folder of run folders; --out names one
	HelloTimeout time.Duration `toml:"hello_timeout"` // within which a rank's process must have come up
	StartTimeout time.Duration `toml:"start_timeout"` // within which every rank must have joined
	StallTimeout time.Duration `toml:"stall_timeout"` // within which an op must end; 0: however long it takes
}

// Slurm holds what `submit` writes into the batch script.
type Slurm struct {
	Partition        string        `toml:"partition"`
	Nodes            int           `toml:"nodes"`
	GPUsPerNode      int           `toml:"gpus_per_node"`
	Time             string        `toml:"time"`
	Account          string        `toml:"account"`
	QOS              string        `toml:"qos"`
	Constraint       string        `toml:"constraint"`
	Reservation      string        `toml:"reservation"`
	Array            string        `toml:"array"`
	Dependency       string        `toml:"dependency"`
	SignalBefore     time.Duration `toml:"signal_before"` // before the time limit
	Requeue          bool          `toml:"requeue"`
	MaxRestarts      int           `toml:"max_restarts"` // in a row without a new checkpoint
	Launcher         string        `toml:"launcher"`     // auto | srun | mpirun
	MPI              string        `toml:"mpi"`          // auto | pmix | pmi2 | another of srun --mpi=list
	Modules          List          `toml:"modules"`
	Environment      List          `toml:"environment"`    // NAME=value
	Container        string        `toml:"container"`      // image: path, or docker://… of Apptainer
	ContainerTool    string        `toml:"container_tool"` // apptainer | singularity | charliecloud
	ContainerOptions List          `toml:"container_options"`
	Options          List          `toml:"options"` // further options of sbatch
}

// List is a list of texts; nil when empty.
type List []string
