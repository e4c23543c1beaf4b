package mpi

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/pipetrain/pipetrain/collectives"
)

var (
	initOnce sync.Mutex
	initDone bool // MPI is initialised at most once a process
)

// Init loads the library, initialises MPI and returns the world. Call it once,
// early: before goroutines of the program's own that handle signals. Close
// finalises MPI, for good.
//
// Where the launcher says another number of ranks than MPI, the library does
// not fit the launcher, and every process would be a world of its own: that is
// an error that names both.
func Init(c Config) (collectives.Transport, error) {
	initOnce.Lock()
	defer initOnce.Unlock()
	if initDone {
		return nil, fmt.Errorf("mpi: Init was called before: MPI can be initialised once in a process")
	}
	began := time.Now()
	signals := saveSignals()
	lib, err := load(c)
	if err != nil {
		signals.restore()
		return nil, err
	}
	loaded := time.Now()
	var flag int32
	purego.SyscallN(lib.fn.initialized, uintptr(unsafe.Pointer(&flag)))
	if flag != 0 {
		return nil, fmt.Errorf("mpi: %s is already initialised by somebody else in this process", lib.path)
	}
	initDone = true
	spared, both := c.oneHost(lib), c.bothWays(lib)
	provided := int32(-1)
	r, _, _ := purego.SyscallN(lib.fn.initThread, 0, 0, uintptr(lib.threads[2]), uintptr(unsafe.Pointer(&provided)))
	changed := signals.restore()
	if err := lib.check("MPI_Init_thread", r); err != nil {
		return nil, fmt.Errorf("mpi: %s (%s): %w", lib.path, lib.version, err)
	}
	level := lib.threadLevel(provided)
	if level >= 0 && level < 2 {
		return nil, fmt.Errorf("mpi: %s (%s) offers thread level %s, MPI_THREAD_SERIALIZED is needed: use a build with threads",
			lib.path, lib.version, threadNames[level])
	}
	t := &Transport{lib: lib, cfg: c, posted: make(chan struct{}, 1), stopped: make(chan struct{}), scratch: make([]byte, 64)}
	t.sending.fn, t.receiving.fn, t.testing.fn, t.one.fn = lib.fn.isend, lib.fn.irecv, lib.fn.testsome, lib.fn.test
	t.testing.until, t.one.until = true, true
	t.testing.arg[2], t.one.arg[1] = t.testing.donePtr(), t.one.donePtr()
	if err := t.describe(); err != nil {
		return nil, err
	}
	if err := singleton(c.Launch, lib, t.size); err != nil {
		_ = t.finalize()
		return nil, err
	}
	t.info = map[string]string{
		"library": lib.version, "path": lib.path, "abi": lib.name,
		"threads":    "unknown level " + strconv.Itoa(int(provided)),
		"tag_ub":     strconv.Itoa(t.tagUB),
		"local_rank": strconv.Itoa(t.localRank), "local_size": strconv.Itoa(t.localSize),
		"load_ms": strconv.FormatInt(loaded.Sub(began).Milliseconds(), 10),
		"init_ms": strconv.FormatInt(time.Since(loaded).Milliseconds(), 10),
	}
	if level >= 0 {
		t.info["threads"] = threadNames[level]
	}
	if len(changed) > 0 {
		t.info["signals_restored"] = fmt.Sprint(changed)
	}
	if spared != "" {
		t.info["one_host"] = spared
	}
	if both != "" {
		t.info["both_ways"] = both
	}
	if c.Launch.Launcher != "" {
		t.info["launcher"] = c.Launch.Launcher
	}
	t.tune()
	t.prepareSmall()
	go t.poll()
	return t, nil
}

// describe asks MPI who this rank is, and makes the transport's communicator.
func (t *Transport) describe() error {
	l := t.lib
	fail := func(err error) error { return fmt.Errorf("mpi: %s: %w", l.path, err) }
	r, _, _ := purego.SyscallN(l.fn.setErrhandler, l.commWorld.value, l.errorsReturn.value)
	if err := l.check("MPI_Comm_set_errhandler", r); err != nil {
		return fail(err)
	}
	// Nobody else in this process uses MPI, so the world's communicator is ours alone. Making
	// one takes a collective, in which MPI spins: where ranks share cores that is tens of
	// milliseconds of the start, so none is made where tags suffice, nor for what the launcher said.
	t.comm = l.commWorld.value
	var err error
	if t.rank, t.size, err = t.rankSize(t.comm); err != nil {
		return fail(err)
	}
	if known := t.cfg.Launch; known.Size != t.size && known.Size > 0 {
		return nil // no world to go on with, see singleton
	}
	if err := t.place(); err != nil {
		return fail(err)
	}
	var value unsafe.Pointer
	var flag int32
	r, _, _ = purego.SyscallN(l.fn.getAttr, l.commWorld.value, l.tagUB, uintptr(unsafe.Pointer(&value)), uintptr(unsafe.Pointer(&flag)))
	if err := l.check("MPI_Comm_get_attr", r); err != nil {
		return fail(err)
	}
	if flag != 0 && value != nil {
		t.tagUB = int(*(*int32)(value))
	}
	if t.tagUB < collectives.MaxTag {
		return fmt.Errorf("mpi: %s (%s) allows tags up to %d, %d are needed: use another MPI, or another of its network layers", l.path, l.version, t.tagUB, collectives.MaxTag)
	}
	if err := t.apart(); err != nil {
		return fail(err)
	}
	return nil
}

// apart keeps the rest of long messages apart from heads: by tags that no caller has, or, in a
// library without room for those, on a communicator of its own.
func (t *Transport) apart() (err error) {
	t.bodyComm, t.bodyTag = t.comm, collectives.MaxTag+1
	if t.tagUB >= 2*collectives.MaxTag+1 && !t.cfg.FewTags {
		return nil
	}
	t.bodyTag = 0
	t.bodyComm, err = t.newComm("MPI_Comm_dup", func(out *uint64) uintptr {
		r, _, _ := purego.SyscallN(t.lib.fn.commDup, t.comm, uintptr(unsafe.Pointer(out)))
		return r
	})
	return err
}

// place finds this rank's place on its node, by MPI where the launcher did not say.
func (t *Transport) place() error {
	l := t.lib
	if k := t.cfg.Launch; k.LocalRank >= 0 && k.LocalSize > k.LocalRank {
		t.localRank, t.localSize = k.LocalRank, k.LocalSize
		return nil
	}
	node, err := t.newComm("MPI_Comm_split_type", func(out *uint64) uintptr {
		r, _, _ := purego.SyscallN(l.fn.commSplitType, t.comm, l.typeShared, uintptr(t.rank), l.infoNull.value, uintptr(unsafe.Pointer(out)))
		return r
	})
	if err != nil {
		return err
	}
	t.localRank, t.localSize, err = t.rankSize(node)
	slot := uint64(node)
	purego.SyscallN(l.fn.commFree, uintptr(unsafe.Pointer(&slot)))
	return err
}

func (t *Transport) newComm(name string, make func(out *uint64) uintptr) (uintptr, error) {
	out := new(uint64) // zeroed and 8 bytes: a 4-byte handle leaves the rest zero
	if err := t.lib.check(name, make(out)); err != nil {
		return 0, err
	}
	h := uintptr(*out)
	r, _, _ := purego.SyscallN(t.lib.fn.setErrhandler, h, t.lib.errorsReturn.value)
	return h, t.lib.check("MPI_Comm_set_errhandler", r)
}

func (t *Transport) rankSize(comm uintptr) (rank, size int, err error) {
	var a, b int32
	r, _, _ := purego.SyscallN(t.lib.fn.commRank, comm, uintptr(unsafe.Pointer(&a)))
	if err := t.lib.check("MPI_Comm_rank", r); err != nil {
		return 0, 0, err
	}
	r, _, _ = purego.SyscallN(t.lib.fn.commSize, comm, uintptr(unsafe.Pointer(&b)))
	return int(a), int(b), t.lib.check("MPI_Comm_size", r)
}

// MisfitError is the error for a library that does not belong to the launcher: every
// process became a world of its own.
type MisfitError struct {
	Launch  Launch
	Path    string // of the library
	Version string // first line of MPI_Get_library_version
	ABI     string // "Open MPI", "MPICH", …
	Size    int    // of the world that MPI made
	Hint    string // what starts programs of this library
}

func (m *MisfitError) Error() string {
	from := nonEmpty(m.Launch.Launcher, "unknown")
	return fmt.Sprintf("mpi: the launcher (%s) started %d ranks, but MPI made a world of %d: "+
		"the library %s (%s) does not belong to that launcher. Start with %s, or set [transport] libmpi to the library of %s",
		from, m.Launch.Size, m.Size, m.Path, m.Version, m.Hint, from)
}

// singleton refuses a world of another size than the launcher's.
func singleton(l Launch, lib *library, size int) error {
	if l.Size < 1 || l.Size == size {
		return nil
	}
	return &MisfitError{Launch: l, Path: lib.path, Version: lib.version, ABI: lib.name, Size: size, Hint: lib.hint}
}

// tune chooses how waiters wait.
func (t *Transport) tune() {
	cores := t.cfg.Cores
	if cores <= 0 {
		cores = runtime.NumCPU()
	}
	t.yields = t.localSize > cores
	switch {
	case t.cfg.Spin > 0:
		t.spin = t.cfg.Spin
	case t.cfg.Spin < 0:
	case t.yields:
		t.spin = 20 * time.Microsecond
	default:
		t.spin = time.Millisecond
	}
	t.pause = t.cfg.Poll
	if t.pause == 0 {
		t.pause = 100 * time.Microsecond
	}
	t.limit = t.cfg.MaxMessage
	if t.limit <= 0 || t.limit > 1<<31-1 {
		t.limit = 1<<31 - 1
	}
	t.info["cores"] = strconv.Itoa(cores)
	t.info["spin"], t.info["poll"] = t.spin.String(), t.pause.String()
	if runtime.NumCPU() == 1 && t.localSize <= 2 {
		t.info["warning"] = "this rank may use one core only (Open MPI binds up to two ranks to a core each): start with mpirun --bind-to none"
	}
}

// Abort ends the world with this exit code.
func (t *Transport) Abort(code int) {
	// MPI may be in use by a goroutine that never comes back; the world ends all the same.
	for end := time.Now().Add(100 * time.Millisecond); !t.mu.TryLock() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if t.lib.name == mpich().name {
		// Hydra ends at that word, and what this rank has just written is lost unless it has been read.
		time.Sleep(50 * time.Millisecond)
	}
	if !t.finalized {
		purego.SyscallN(t.lib.fn.abort, t.lib.commWorld.value, uintptr(code))
	}
	os.Exit(code)
}
