package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/launcher"
)

// What only all ranks of a launched world together can find out. Every rank
// performs these checks, in the same order: they send to each other.

// notARank is what they find in a process that was started alone, or did not get into its world.
func notARank(h *Host) []Finding {
	if launcher.Detect(h.Env).IsRank() {
		return []Finding{ok("not tried: this rank is in no world, see \"all ranks\"")}
	}
	return []Finding{ok("not a rank: start doctor under mpirun or srun to try all ranks and hosts")}
}

// inWorld returns the world that checkAllRanks joined, nil where there is none.
func (h *Host) inWorld() *collectives.Comm {
	if h.joined == nil {
		return nil
	}
	return collectives.World(h.joined)
}

// reachLimit is how many ranks away each rank sends in checkPeers: all, in worlds up to twice as large.
const reachLimit = 64

// reachPatience bounds one exchange. A connection that a firewall drops without a word hangs for minutes.
const reachPatience = 5 * time.Second

// checkPeers has each rank exchange a message with each other: libraries connect ranks
// when they first talk, and a route or a firewall may stop two hosts in the middle of a run.
func checkPeers(ctx context.Context, h *Host) []Finding {
	c := h.inWorld()
	if c == nil {
		return notARank(h)
	}
	distance, err := reach(ctx, h.joined, reachPatience)
	if err != nil {
		return []Finding{fails("see how the two hosts reach each other: firewall, routes, several networks (Open MPI: --mca btl_tcp_if_include, MPICH: -iface)", "%v", err)}
	}
	which := "each other rank"
	if distance < c.Size()-1 {
		which = fmt.Sprintf("the %d ranks on either side", distance)
	}
	return []Finding{ok("messages to and from %s arrive", which)}
}

// reach exchanges 64 bytes with the ranks 1, 2, … away, all at once, and says how far it went.
func reach(ctx context.Context, t collectives.Transport, patience time.Duration) (int, error) {
	host, _ := os.Hostname()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	const tag = 100
	far := min(t.Size()-1, reachLimit)
	out := make([]byte, 64)
	var recvs, sends []collectives.Request
	for d := 1; d <= far; d++ {
		recvs = append(recvs, t.Irecv((t.Rank()-d+t.Size())%t.Size(), tag+d, make([]byte, 64)))
		sends = append(sends, t.Isend((t.Rank()+d)%t.Size(), tag+d, out))
	}
	var missing []string
	var why error
	for d, r := range recvs {
		if err := r.Wait(ctx); err != nil {
			missing = append(missing, fmt.Sprint((t.Rank()-d-1+t.Size())%t.Size()))
			why = err
		}
	}
	if missing != nil {
		return far, fmt.Errorf("rank %d on %s gets nothing from ranks %s: %w", t.Rank(), host, strings.Join(missing, ", "), why)
	}
	for d, s := range sends {
		if err := s.Wait(ctx); err != nil {
			return far, fmt.Errorf("rank %d on %s cannot send to rank %d: %w", t.Rank(), host, (t.Rank()+d+1)%t.Size(), err)
		}
	}
	return far, nil
}

// checkSharedFolder has rank 0 make a file where runs are written, and the others read it:
// all ranks write their parts of a checkpoint into one folder.
func checkSharedFolder(ctx context.Context, h *Host) []Finding {
	c := h.inWorld()
	if c == nil {
		return notARank(h)
	}
	fix := "name a folder on a file system that all hosts share with --out (or run.dir)"
	var word struct{ File, Text, Err string }
	if c.Rank() == 0 {
		word.Text = fmt.Sprintf("%s %d %d", hostName(h), os.Getpid(), time.Now().UnixNano())
		dir, err := filepath.Abs(h.runDir())
		if err == nil {
			word.File = filepath.Join(existing(dir), fmt.Sprintf(".pipetrain-doctor-shared-%d", time.Now().UnixNano()))
			err = writeSynced(word.File, []byte(word.Text))
			defer os.Remove(word.File)
		}
		if err != nil {
			word.Err = err.Error()
		}
	}
	b, _ := json.Marshal(word)
	all, err := c.AllGather(ctx, b) // of rank 0's word alone
	if err != nil {
		return []Finding{fails("see the lines above", "%v", err)}
	}
	if err := json.Unmarshal(all[0], &word); err != nil {
		return []Finding{fails("please report this", "%v", err)}
	}
	if word.Err != "" {
		return []Finding{fails("see the line of the run folder", "rank 0 cannot write there: %s", word.Err)}
	}
	var found []Finding
	switch text, err := awaitFile(word.File); {
	case err != nil:
		found = []Finding{fails(fix, "%s does not see what rank 0 wrote: %v", hostName(h), err)}
	case text != word.Text:
		found = []Finding{fails(fix, "%s sees another file in %s than rank 0 wrote", hostName(h), filepath.Dir(word.File))}
	default:
		found = []Finding{ok("what rank 0 writes to %s is read here", filepath.Dir(word.File))}
	}
	if err := c.Barrier(ctx); err != nil { // rank 0 removes it
		found = append(found, fails("see the lines above", "%v", err))
	}
	return found
}

// awaitFile reads a file that another host has just written: network file systems
// remember for a few seconds that it was not there.
func awaitFile(path string) (string, error) {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		b, err := os.ReadFile(path)
		if err == nil || !errors.Is(err, os.ErrNotExist) || time.Now().After(end) {
			return string(b), err
		}
	}
}

// runDir is the place of runs.
func (h *Host) runDir() string {
	if h.RunDir == "" {
		return "runs"
	}
	return h.RunDir
}

// checkSharedGPUs finds ranks of a host that were given one card.
func checkSharedGPUs(ctx context.Context, h *Host) []Finding {
	c := h.inWorld()
	if c == nil {
		return notARank(h)
	}
	card := h.ownGPU()
	host, _ := os.Hostname()
	b, _ := json.Marshal([2]string{host, card})
	all, err := c.AllGather(ctx, b)
	if err != nil {
		return []Finding{fails("see the lines above", "%v", err)}
	}
	var same []string
	for r, b := range all {
		var other [2]string
		if err := json.Unmarshal(b, &other); err != nil {
			return []Finding{fails("please report this", "rank %d: %v", r, err)}
		}
		if card != "" && other == [2]string{host, card} {
			same = append(same, fmt.Sprint(r))
		}
	}
	switch {
	case card == "":
		return []Finding{ok("this rank was given no GPU")}
	case len(same) < 2:
		return []Finding{ok("GPU %s is this rank's alone", card)}
	}
	text := fmt.Sprintf("ranks %s on %s have one GPU, %s", strings.Join(same, ", "), host, card)
	fix := "ask for as many GPUs a node as ranks (slurm.gpus_per_node; srun --gpus-per-node), or set device.share = true"
	switch {
	case h.Job != nil && (h.Job.Device.Share || h.Job.Device.Kind == "cpu"):
		return []Finding{ok("%s, as the job allows", text)}
	case h.Job != nil && h.Job.Device.Kind == "cuda":
		return []Finding{fails(fix, "%s", text)}
	}
	return []Finding{warn(fix, "%s", text)}
}

// ownGPU names the card that this rank would compute on, by its UUID where a driver tells
// it, else by what the launcher made visible; empty for none.
func (h *Host) ownGPU() string {
	local := max(0, launcher.Detect(h.Env).LocalRank)
	if h.CUDA != nil {
		if c, err := h.CUDA(h.Job); err == nil && len(c.GPUs) > 0 {
			return c.GPUs[local%len(c.GPUs)].UUID
		}
	}
	visible := h.env("CUDA_VISIBLE_DEVICES")
	if visible == "" || visible == "-1" || visible == "NoDevFiles" {
		return ""
	}
	list := strings.Split(visible, ",")
	return list[local%len(list)]
}
