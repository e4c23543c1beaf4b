package jobs

import (
	"fmt"
	"strings"

	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/schedule"
)

// maxName bounds a job's name: run folders carry it with a time behind.
const maxName = 64

// maxOps bounds the compute ops of a step over all ranks of a replica, so that
// a slip of the finger does not fill the memory with a schedule. A plan may have as
// many as are simulated in about a minute.
const (
	maxOps        = 1 << 22
	maxPlannedOps = 1 << 24
)

// maxTokens keeps the count of all tokens of a run within 64 bits.
const maxTokens = 1 << 62

// validate finds the combinations that cannot run. Each check looks only at
// keys that are right on their own.
func (l *loader) validate() {
	l.validateName()
	l.validateModel()
	l.validateParallel()
	l.validateTrain()
	l.validateDevice()
	l.validateOptimizer()
	l.validateSchedule()
	l.validateData()
	l.validatePlatform()
}

func isName(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
}

func (l *loader) validateName() {
	n := l.spec.Name
	if !l.ok("name") {
		return
	}
	right := "letters, digits, '.', '_' and '-', starting with a letter or digit"
	switch {
	case n == "":
		l.mistake("name", "is empty", right, "")
	case len(n) > maxName:
		l.mistake("name", fmt.Sprintf("has %d characters", len(n)), fmt.Sprintf("at most %d", maxName), "")
	case strings.ContainsFunc(n, func(r rune) bool { return !isName(r) }) || n[0] == '.' || n[0] == '-':
		l.mistake("name", show(n)+" cannot name a folder and a batch job", right, "")
	}
}

func (l *loader) validateParallel() {
	p := l.spec.Parallel
	if l.ok("parallel.tensor") && p.Tensor > 1 {
		l.mistake("parallel.tensor", fmt.Sprintf("%d ranks a stage: stages cannot be split over several ranks yet", p.Tensor), "1; use more stages or replicas", "")
	}
}

func (l *loader) validateTrain() {
	s := &l.spec
	if l.ok("train.batch", "parallel.replicas", "schedule.microbatches") {
		unit := s.Parallel.Replicas * s.Schedule.Microbatches
		if b := s.Train.Batch; b%unit != 0 {
			right := fmt.Sprintf("a multiple of %d, e.g. %d", unit, (b/unit+1)*unit)
			if b > unit {
				right += fmt.Sprintf(" or %d", b/unit*unit)
			}
			l.mistake("train.batch", fmt.Sprintf("%d sequences cannot be shared out evenly over %d replicas × %d micro-batches", b, s.Parallel.Replicas, s.Schedule.Microbatches), right, "")
		} else if rows := b / s.Parallel.Replicas; l.ok("model.seq") && rows > 1<<31/s.Model.Seq {
			// BLAS libraries count rows with 32 bits; a joined backward-p2 sees all of a replica's.
			l.mistake("train.batch", fmt.Sprintf("%d sequences of %d tokens a replica are more rows than a matrix product can have", rows, s.Model.Seq), "at most 2^31 tokens", "")
		}
	}
	if perStep := float64(s.Train.Batch) * float64(s.Model.Seq); l.ok("train.steps", "train.batch", "model.seq") && float64(s.Train.Steps) > maxTokens/perStep {
		l.mistake("train.steps", fmt.Sprintf("%d steps of %s tokens are more than a run can count", s.Train.Steps, formatFloat(perStep)), "at most 2^62 tokens in all", "")
	}
	if l.ok("train.precision", "device.kind") && s.Train.Precision == "tf32" {
		switch s.Device.Kind {
		case "cpu":
			l.mistake("train.precision", "tf32 is not for device.kind = \"cpu\": it is what the tensor cores of a GPU make of fp32", "fp32, bf16, or device.kind = \"cuda\"", "")
		case "auto":
			l.mistake("train.precision", "tf32 with device.kind = \"auto\" would depend on the host: only a GPU has it", "fp32, bf16, or device.kind = \"cuda\"", "")
		}
	}
}

// validateDevice refuses settings of a GPU where none computes.
func (l *loader) validateDevice() {
	d := l.spec.Device
	if !l.ok("device.kind") {
		return
	}
	if l.ok("device.bind") && d.Bind != "auto" && d.Kind == DeviceRehearse {
		l.mistake("device.bind", "has no effect with device.kind = \"rehearse\", which computes nothing", "leave it out", "")
	}
	for _, k := range []struct {
		name string
		set  bool
		p2   bool
	}{
		{"device.p2_stream", d.P2Stream, true},
		{"device.p2_graph", d.P2Graph, true},
		{"device.transfer", d.Transfer != "auto", false},
		{"device.share", d.Share, false},
		{"device.libcuda", d.LibCUDA != "", false},
		{"device.cublaslt", d.CublasLt != "auto", false},
	} {
		switch {
		case !k.set || !l.ok(k.name):
		case d.Kind == "cpu" || d.Kind == DeviceRehearse:
			l.mistake(k.name, "is a setting of GPUs, and device.kind = "+show(d.Kind), "device.kind = \"cuda\", or leave it out", "")
		case k.p2 && l.ok("schedule.backward_p2") && l.spec.Schedule.BackwardP2 == string(schedule.PlaceFused) && l.spec.Schedule.Kind != KindFile && l.spec.Schedule.Kind != KindAuto:
			l.mistake(k.name, "has no effect: schedule.backward_p2 = \"fused\" has no backward-p2 of its own", "another schedule.backward_p2, or leave it out", "")
		}
	}
}

func (l *loader) validateOptimizer() {
	o := l.spec.Optimizer
	if l.ok("optimizer.lr", "optimizer.min_lr") && o.MinLR > o.LR {
		l.mistake("optimizer.min_lr", fmt.Sprintf("%s is above optimizer.lr = %s", formatFloat(o.MinLR), formatFloat(o.LR)), "the rate falls from lr to min_lr", "")
	}
	if l.ok("optimizer.warmup", "train.steps") && o.Warmup > l.spec.Train.Steps {
		l.mistake("optimizer.warmup", fmt.Sprintf("%d steps are more than train.steps = %d", o.Warmup, l.spec.Train.Steps), "at most train.steps", "")
	}
	if l.ok("optimizer.decay_steps", "optimizer.decay") && o.DecaySteps > 0 {
		switch left := l.spec.Train.Steps - o.Warmup; {
		case o.Decay == model.DecayConstant:
			l.mistake("optimizer.decay_steps", "has no effect with optimizer.decay = \"constant\"", "leave it out, or another optimizer.decay", "")
		case l.ok("optimizer.warmup", "train.steps") && o.Warmup <= l.spec.Train.Steps && o.DecaySteps > left:
			l.mistake("optimizer.decay_steps", fmt.Sprintf("%d steps are more than the %d after the warm-up", o.DecaySteps, left), fmt.Sprintf("at most %d", left), "")
		}
	}
	if l.ok("optimizer.lr") && float32(o.LR) == 0 {
		l.mistake("optimizer.lr", formatFloat(o.LR)+" is 0 in fp32", "at least 1e-45", "")
	}
	l.validateRule()
}

func (l *loader) validateSchedule() {
	s := &l.spec
	c := &s.Schedule
	if l.ok("schedule.profile") && c.Profile != "" {
		if _, what := fileSize(c.Profile); what != "" {
			l.mistake("schedule.profile", showPath(c.Profile)+" "+what, "pipetrain profile writes one", "")
		}
	}
	if l.ok("schedule.concat", "schedule.microbatches") && int(c.Concat) > c.Microbatches {
		l.mistake("schedule.concat", fmt.Sprintf("%d micro-batches cannot be joined: schedule.microbatches = %d", c.Concat, c.Microbatches), fmt.Sprintf(`1 to %d, or "all"`, c.Microbatches), "")
	}
	if !l.ok("schedule.kind", "schedule.chunks", "schedule.microbatches", "schedule.backward_p2", "schedule.concat", "parallel.stages") {
		return
	}
	info, builder := schedule.Lookup(c.Kind)
	if builder && c.File != "" {
		l.mistake("schedule.file", "has no effect with schedule.kind = "+show(c.Kind), "schedule.kind = \"file\", or leave it out", "")
	}
	if !builder {
		if !l.validateCustom() {
			return
		}
		if s.custom.Async != nil {
			l.validateAsync()
		}
		l.validateStages()
		return
	}
	if !info.Chunks && c.Chunks != info.DefaultChunks {
		l.mistake("schedule.chunks", fmt.Sprintf("%d stages a rank: %s places %d", c.Chunks, c.Kind, info.DefaultChunks), chunkedKinds(), "")
		return
	}
	if least := info.MinMicrobatches(s.Parallel.Stages, c.Chunks); c.Microbatches < least {
		l.mistake("schedule.microbatches", fmt.Sprintf("%d are too few: %s over %d ranks needs %d", c.Microbatches, c.Kind, s.Parallel.Stages, least), fmt.Sprintf("at least %d, with train.batch to match", least), "")
		return
	}
	if ops := 3 * s.Parallel.Stages * c.Chunks; c.Microbatches > l.ops/ops {
		l.mistake("schedule.microbatches", fmt.Sprintf("%d over %d stages make more than %d ops a step", c.Microbatches, s.Parallel.Stages*c.Chunks, l.ops), fmt.Sprintf("at most %d", max(1, l.ops/ops)), "")
		return
	}
	if info.Async {
		l.validateAsync()
	}
	l.validateStages()
}

// validateStages builds the schedule and holds the model against its stages.
func (l *loader) validateStages() {
	s := &l.spec
	c := &s.Schedule
	plan, err := s.BuildSchedule()
	if err != nil {
		info, _ := schedule.Lookup(c.Kind)
		l.mistake("schedule.kind", err.Error(), info.Rule, "")
		return
	}
	if l.ok("model.layers") && s.Model.Layers < plan.Stages {
		how := ""
		if plan.Stages == s.Parallel.Stages*c.Chunks && c.Chunks > 1 {
			how = fmt.Sprintf(" (parallel.stages = %d × schedule.chunks = %d)", s.Parallel.Stages, c.Chunks)
		}
		l.mistake("model.layers", fmt.Sprintf("%d layers are too few for %d stages%s", s.Model.Layers, plan.Stages, how), fmt.Sprintf("at least %d layers, or fewer stages", plan.Stages), "")
	}
}

// validateAsync finds what needs all stages at once, which a schedule that updates
// each stage at its own time does not have.
func (l *loader) validateAsync() {
	s := &l.spec
	name := s.ScheduleName()
	if clip := s.Optimizer.Clip; l.ok("optimizer.clip") && clip > 0 {
		l.mistake("optimizer.clip", fmt.Sprintf("%s needs the gradient norm over all stages, and %s updates each stage at its own time within the step", formatFloat(clip), name), "0, or a synchronous schedule.kind", "")
	}
	tied, right := "model.tied", "false, or a synchronous schedule.kind"
	if !keysByName[tied].of(s.Model.Kind) { // the family always is
		tied, right = "model.kind", "another family, or a synchronous schedule.kind"
	}
	if l.ok(tied) && s.Model.Tied {
		l.mistake(tied, fmt.Sprintf("the gradients of embedding and head must be added before an update, and %s updates each stage at its own time within the step", name), right, "")
	}
}

func chunkedKinds() string {
	var names []string
	for _, i := range schedule.Kinds() {
		if i.Chunks {
			names = append(names, i.Name)
		}
	}
	if len(names) == 0 {
		return "leave it out"
	}
	return "leave it out, or choose a kind that takes a number: " + strings.Join(names, ", ")
}

func (l *loader) validatePlatform() {
	s := &l.spec
	world := s.Parallel.Stages * s.Parallel.Replicas * s.Parallel.Tensor
	worldOK := l.ok("parallel.stages", "parallel.replicas", "parallel.tensor")
	gpus := s.Slurm.Nodes * s.Slurm.GPUsPerNode
	if worldOK && l.ok("slurm.nodes", "slurm.gpus_per_node", "device.kind") && gpus > 0 && s.Device.Kind == "cuda" && !s.Device.Share && world > gpus {
		l.mistake("slurm.gpus_per_node", fmt.Sprintf("%d nodes × %d GPUs are fewer than the %d ranks, and a rank needs one", s.Slurm.Nodes, s.Slurm.GPUsPerNode, world), "more nodes or GPUs, fewer stages or replicas, or device.share = true", "")
	}
	if l.ok("slurm.nodes", "transport.kind") && s.Slurm.Nodes > 1 && s.Transport.Kind == "local" {
		l.mistake("transport.kind", fmt.Sprintf("local joins the ranks of one host, and slurm.nodes = %d", s.Slurm.Nodes), "mpi or auto", "")
	}
	if worldOK && l.ok("slurm.nodes") && s.Slurm.Nodes > world {
		l.mistake("slurm.nodes", fmt.Sprintf("%d nodes for %d ranks leave some without work", s.Slurm.Nodes, world), fmt.Sprintf("at most %d", world), "")
	}
	l.validateSlurm()
}
