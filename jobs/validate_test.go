package jobs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/schedule"
)

// Each line is one impossible combination; the report must be that one line.
func TestImpossible(t *testing.T) {
	dir := t.TempDir()
	short, long := filepath.Join(dir, "short"), filepath.Join(dir, "long")
	if os.WriteFile(short, make([]byte, 32), 0o644) != nil || os.WriteFile(long, make([]byte, 1000), 0o644) != nil {
		t.Fatal("cannot write")
	}
	for _, c := range []struct{ sets, want string }{
		{"model.heads=3", "model.heads: 3 does not divide model.dim = 64 (one of 1, 2, 4, 8, 16)"},
		{"model.heads=64", "model.heads: a head gets dim / heads = 1 columns, and rotary embedding turns pairs (one of 2, 4, 8, 16, 32)"},
		{"model.dim=63 model.heads=1", "a head gets dim / heads = 63 columns, and rotary embedding turns pairs (none fits: make model.dim even)"},
		{"model.kv_heads=3", "model.kv_heads: 3 does not divide model.heads = 4 (one of 1, 2, 4)"},
		{"model.layers=3 parallel.stages=4", "model.layers: 3 layers are too few for 4 stages (at least 4 layers, or fewer stages)"},
		{"model.layers=4096 model.dim=262144 model.heads=4096 model.seq=1048576", "job.toml:1: model: "},
		{"train.batch=7 schedule.microbatches=2", "train.batch: 7 sequences cannot be shared out evenly over 1 replicas × 2 micro-batches (a multiple of 2, e.g. 8 or 6)"},
		{"train.batch=3 parallel.replicas=4", "(a multiple of 4, e.g. 4)"},
		{"train.batch=1073741824", "train.batch: 1073741824 sequences of 32 tokens a replica are more rows than a matrix product can have"},
		{"train.steps=1000000000000 train.batch=10000000 schedule.microbatches=1", "train.steps: 1000000000000 steps of 320000000 tokens are more than a run can count"},
		{"train.precision=tf32", "train.precision: tf32 with device.kind = \"auto\" would depend on the host"},
		{"train.precision=tf32 device.kind=cpu", "train.precision: tf32 is not for device.kind = \"cpu\""},
		{"parallel.tensor=2", "parallel.tensor: 2 ranks a stage: stages cannot be split over several ranks yet"},
		{"optimizer.min_lr=0.01", "optimizer.min_lr: 0.01 is above optimizer.lr = 0.0003"},
		{"optimizer.decay_steps=9 optimizer.warmup=2", "optimizer.decay_steps: 9 steps are more than the 8 after the warm-up (at most 8)"},
		{"optimizer.decay_steps=3 optimizer.decay=constant", "optimizer.decay_steps: has no effect with optimizer.decay = \"constant\""},
		{"optimizer.warmup=11", "optimizer.warmup: 11 steps are more than train.steps = 10"},
		{"optimizer.lr=1e-50", "optimizer.lr: 1e-50 is 0 in fp32"},
		{"optimizer.eps=1e-50", "optimizer.eps: 1e-50 is 0 in fp32"},
		{"optimizer.beta2=0.99999999999", "optimizer.beta2: 0.99999999999 is 1 in fp32"},
		{"optimizer.lr=0", "optimizer.lr: is 0 (above 0, at most 1000)"},
		{"optimizer.beta1=1", "optimizer.beta1: is 1 (at least 0, below 1)"},
		{"schedule.concat=2 schedule.microbatches=1", "schedule.concat: 2 micro-batches cannot be joined: schedule.microbatches = 1 (1 to 1, or \"all\")"},
		{"device.kind=cpu device.p2_stream=true", "device.p2_stream: is a setting of GPUs, and device.kind = \"cpu\" (device.kind = \"cuda\", or leave it out)"},
		{"device.kind=rehearse device.transfer=staged", "device.transfer: is a setting of GPUs, and device.kind = \"rehearse\""},
		{"device.kind=cuda device.p2_graph=true schedule.backward_p2=fused", "device.p2_graph: has no effect: schedule.backward_p2 = \"fused\" has no backward-p2 of its own"},
		{"schedule.concat=0", "schedule.concat: is 0 (at least 1, at most 1048576)"},
		{"schedule.concat=some", "schedule.concat: is \"some\" (a number of micro-batches, or \"all\")"},
		{"schedule.chunks=2", "schedule.chunks: 2 stages a rank: 1f1b places 1"},
		{"schedule.microbatches=1048576 train.batch=1048576 parallel.stages=4", "schedule.microbatches: 1048576 over 4 stages make more than 4194304 ops a step (at most 349525)"},
		{"schedule.memory_limit=-1", "schedule.memory_limit: is negative: -1"},
		{"schedule.kind=pipedream optimizer.clip=1 parallel.stages=2", "optimizer.clip: 1 needs the gradient norm over all stages, and pipedream updates each stage at its own time within the step (0, or a synchronous schedule.kind)"},
		{"schedule.kind=pipedream-2bw model.kind=gpt2 parallel.stages=2", "model.kind: the gradients of embedding and head must be added before an update"},
		{"model.kind=gpt2 model.norm=rmsnorm", "model.norm: has no effect with model.kind = \"gpt2\" (leave it out)"},
		{"model.kind=gpt2 model.positions=31", "model.positions: 31 are fewer than the tokens of a sequence, model.seq = 32 (at least 32)"},
		{"schedule.kind=pipedream-2bw model.tied=true parallel.stages=2", "model.tied: the gradients of embedding and head must be added before an update, and pipedream-2bw updates each stage at its own time within the step (false, or a synchronous schedule.kind)"},
		{"schedule.kind=zero", "schedule.kind: no such kind: \"zero\""},
		{"data.kind=text", "data.path: is missing (data.kind = \"text\" reads files)"},
		{"data.kind=text data.path=" + dir, "is a folder (name its files by a pattern: "},
		{"data.kind=text data.path=" + dir + "/nix", "does not exist (paths are relative"},
		{"data.kind=text data.path=" + dir + "/*.txt", "matches no file (paths are relative"},
		{"data.kind=text data.path=" + short + "/x", "cannot be read: not a directory"},
		{"data.kind=text data.path=/dev/zero", "is no regular file: ranks read it at many places at once"},
		{"data.kind=text data.path=" + short, "is too short: 32 bytes to train on, a sequence with its targets needs seq + 1 = 33"},
		{"data.kind=text model.seq=600 data.holdout=0.5 data.path=" + long, "is too short: 500 bytes to train on"},
		{"data.kind=text data.holdout=0.01 data.path=" + long, "data.holdout: 0.01 of 1000 bytes is 10, less than the seq + 1 = 33 of one sequence"},
		{"data.kind=text model.vocab=255 data.path=" + long, "model.vocab: 255 is too small for data.kind = \"text\", whose tokens are bytes (256)"},
		{"slurm.nodes=1 slurm.gpus_per_node=2 parallel.stages=4 device.kind=cuda", "slurm.gpus_per_node: 1 nodes × 2 GPUs are fewer than the 4 ranks"},
		{"slurm.nodes=2 transport.kind=local parallel.stages=2", "transport.kind: local joins the ranks of one host, and slurm.nodes = 2 (mpi or auto)"},
		{"slurm.nodes=2", "slurm.nodes: 2 nodes for 1 ranks leave some without work (at most 1)"},
		{"slurm.time=4h", "slurm.time: \"4h\" is no time limit"},
		{"slurm.array=1-", "slurm.array: \"1-\" is no array"},

		{"slurm.dependency=afterwards:1", "slurm.dependency: \"afterwards:1\" is no dependency"},
		{"slurm.constraint=a#b", "slurm.constraint: \"a#b\" cannot stand"},
		{"slurm.mpi=none", "slurm.mpi: \"none\" would start one world a rank"},
		{"slurm.environment=2X=1", "slurm.environment: \"2X=1\" is no variable"},
		{"slurm.environment=[1]", "slurm.environment: entry 1 is the integer 1"},
		{"slurm.modules=7", "slurm.modules: is the integer 7, not a list of texts"},
		{"slurm.modules=-x", "slurm.modules: \"-x\" is no module"},
		{"slurm.options=--time=5", "slurm.options: --time is the script's own (slurm.time)"},
		{"slurm.options=--tim=5", "slurm.options: --time is the script's own (slurm.time)"},
		{"slurm.options=exclusive", "slurm.options: \"exclusive\" is no option"},
		{"slurm.container_options=--nv", "slurm.container_options: are given without an image"},
		{"slurm.signal_before=70000", "slurm.signal_before: is 70000 (at least 0, at most 65535)"},
		{"slurm.partition=gpu;rm", "slurm.partition: \"gpu;rm\" cannot stand in a batch script"},
		{"name=../up", "name: \"../up\" cannot name a folder and a batch job"},
		{"name=.", "name: \".\" cannot name a folder"},
		{"name=", "name: is empty"},
		{"name=" + strings.Repeat("n", 65), "name: has 65 characters (at most 64)"},
		{"run.start_timeout=0", "run.start_timeout: is 0 (above 0, at most 86400)"},
	} {
		_, err := Parse("job.toml", []byte(minimal), strings.Fields(c.sets), ".")
		switch {
		case err == nil:
			t.Errorf("%s passes; want %q", c.sets, c.want)
		case !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: %v\nwant %q", c.sets, err, c.want)
		case strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "model: model:"):
			t.Errorf("%s: more than one report:\n%v", c.sets, err)
		}
	}
}

// Every kind of schedule works with the defaults that follow from it, from one
// rank to many, and asks for a layer a stage.
func TestEveryKindHasDefaults(t *testing.T) {
	for _, info := range schedule.Kinds() {
		for _, stages := range []int{1, 2, 4, 6} {
			micro := max(stages, info.MinMicrobatches(stages, info.DefaultChunks))
			job := fmt.Sprintf("parallel.stages=%d schedule.kind=%s model.layers=%d train.batch=%d", stages, info.Name, 4*stages, 2*micro)
			s, err := Parse("job.toml", []byte(minimal), strings.Fields(job), ".")
			if err != nil {
				// Some kinds want an even number of ranks, or more than one: they must say so.
				if !strings.Contains(err.Error(), "schedule.kind: ") || info.Rule == "" || stages == 4 {
					t.Errorf("%s over %d ranks: %v", info.Name, stages, err)
				}
				continue
			}
			roundTrip(t, s)
			plan, err := s.BuildSchedule()
			if err != nil {
				t.Fatal(err)
			}
			if err := schedule.Check(plan); err != nil {
				t.Errorf("%s over %d ranks: %v", info.Name, stages, err)
			}
			if _, err := Parse("job.toml", []byte(minimal), append(strings.Fields(job), fmt.Sprintf("model.layers=%d", plan.Stages-1)), "."); err == nil {
				t.Errorf("%s over %d ranks: %d layers for %d stages pass", info.Name, stages, plan.Stages-1, plan.Stages)
			}
		}
	}
}

// What is close to impossible but is not.
func TestPossible(t *testing.T) {
	dir := t.TempDir()
	exact := filepath.Join(dir, "exact")
	if err := os.WriteFile(exact, make([]byte, 33), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, sets := range []string{
		"model.heads=32", "model.kv_heads=1", "parallel.stages=4 schedule.microbatches=1", "schedule.microbatches=8 schedule.concat=8",
		"schedule.backward_p2=fused schedule.concat=all", "optimizer.warmup=10", "optimizer.min_lr=3e-4",
		"train.precision=tf32 device.kind=cuda", "train.precision=tf32 device.kind=rehearse", "train.precision=bf16", "train.precision=bf16 device.kind=cpu",
		"model.norm=layernorm model.activation=gelu",
		"data.kind=text data.path=" + exact, "slurm.nodes=4 slurm.gpus_per_node=0 parallel.stages=4 device.kind=cuda",
		"optimizer.clip=0 optimizer.weight_decay=0 optimizer.beta1=0", "parallel.replicas=8",
	} {
		s, err := Parse("job.toml", []byte(minimal), strings.Fields(sets), ".")
		if err != nil {
			t.Errorf("%s: %v", sets, err)
			continue
		}
		roundTrip(t, s)
	}
	s := parse(t, minimal, "data.kind=text", "data.path="+exact)
	if s.Data.Holdout != 0 {
		t.Errorf("33 bytes hold out %v", s.Data.Holdout)
	}
	if err := os.WriteFile(exact, make([]byte, 10_000), 0o644); err != nil {
		t.Fatal(err)
	}
	if s = parse(t, minimal, "data.kind=text", "data.path="+exact); s.Data.Holdout != 0.05 {
		t.Errorf("10000 bytes hold out %v", s.Data.Holdout)
	}
}

// Options of sbatch come as --name=value; what a blank parts from its value is not looked through.
func TestSlurmOptions(t *testing.T) {
	for option, want := range map[string]string{
		"--comment=x=y": "", "--comment=two words": "", "--exclusive": "", "--gpus=2": "", "--mem=64G": "", "--time-min=5": "",
		"--comment x=y": "is no option with its value", "--nodes 4=": "is no option with its value",
		"--time=5": "--time is the script's own", "--part=gpu": "--partition is the script's own", "--no-req": "--no-requeue is the script's own",
	} {
		_, err := Parse("job.toml", []byte(minimal), []string{fmt.Sprintf("slurm.options=[%q]", option)}, ".")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", option, err, want)
		}
	}
}
