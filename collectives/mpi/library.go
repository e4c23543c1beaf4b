package mpi

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// library is a loaded libmpi.
type library struct {
	*abi
	path    string
	dl      uintptr // of dlopen
	version string  // first line of MPI_Get_library_version
	about   string  // all of it
	fn      functions
}

// functions are the addresses of what is called.
type functions struct {
	initThread, initialized, finalize, abort                    uintptr
	commRank, commSize, commDup, commFree, commSplitType        uintptr
	setErrhandler, getAttr                                      uintptr
	isend, irecv, test, testsome, cancel, requestFree           uintptr
	getCount, errorClass, errorString, getLibraryVersion, probe uintptr
}

func (l *library) functionTable() map[string]*uintptr {
	f := &l.fn
	return map[string]*uintptr{
		"MPI_Init_thread": &f.initThread, "MPI_Initialized": &f.initialized, "MPI_Finalize": &f.finalize, "MPI_Abort": &f.abort,
		"MPI_Comm_rank": &f.commRank, "MPI_Comm_size": &f.commSize, "MPI_Comm_dup": &f.commDup, "MPI_Comm_free": &f.commFree,
		"MPI_Comm_split_type": &f.commSplitType, "MPI_Comm_set_errhandler": &f.setErrhandler, "MPI_Comm_get_attr": &f.getAttr,
		"MPI_Isend": &f.isend, "MPI_Irecv": &f.irecv, "MPI_Test": &f.test, "MPI_Testsome": &f.testsome, "MPI_Cancel": &f.cancel,
		"MPI_Request_free": &f.requestFree, "MPI_Get_count": &f.getCount, "MPI_Error_class": &f.errorClass,
		"MPI_Error_string": &f.errorString, "MPI_Get_library_version": &f.getLibraryVersion, "MPI_Iprobe": &f.probe,
	}
}

// candidates lists what to load, best first. A name without a slash is looked
// for where the system's loader looks (LD_LIBRARY_PATH, ld.so.cache).
func candidates(c Config) []string {
	if p := c.LibMPI; p != "" {
		if strings.Contains(p, "/") && !strings.Contains(filepath.Base(p), ".so") {
			return []string{p + "/libmpi.so", p + "/libmpi_abi.so.1", p + "/lib/libmpi.so", p + "/lib/libmpi_abi.so.1"}
		}
		return []string{p}
	}
	open := []string{"libmpi.so.40"}
	if c.Launch.Prefix != "" {
		open = append([]string{c.Launch.Prefix + "/lib/libmpi.so.40", c.Launch.Prefix + "/lib64/libmpi.so.40"}, open...)
	}
	family := []string{"libmpi.so.12", "libmpich.so.12", "libmpi_cray.so.12", "libmpi_intel.so.12"}
	std := []string{"libmpi_abi.so.1"}
	switch c.Launch.Family {
	case OpenMPI:
		return append(append(open, std...), "libmpi.so")
	case MPICH:
		return append(append(family, std...), "libmpi.so")
	}
	return append(append(append(std, open...), family...), "libmpi.so")
}

// load opens the first candidate that is an MPI we know.
func load(c Config) (*library, error) {
	var tried []string
	for _, path := range candidates(c) {
		h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err != nil {
			tried = append(tried, fmt.Sprintf("%s: %v", path, err))
			continue
		}
		l, err := recognise(path, h)
		if err == nil {
			return l, nil
		}
		tried = append(tried, fmt.Sprintf("%s: %v", path, err))
		if errors.Is(err, errMPT) {
			break
		}
	}
	why := "install an MPI library or load its module"
	if c.LibMPI != "" {
		why = "correct [transport] libmpi, or leave it out to have the library chosen"
	}
	for _, t := range tried {
		if strings.Contains(t, "static TLS") {
			why = "the library wants static TLS space: start with GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384"
		}
	}
	return nil, fmt.Errorf("mpi: no usable MPI library (launcher: %s); %s. Tried:\n\t%s",
		nonEmpty(c.Launch.Launcher, "none"), why, strings.Join(tried, "\n\t"))
}

var errMPT = errors.New("this is HPE MPT, whose binary interface is its own: use an MPICH or Open MPI built for the system")

// recognise tells the interface of a loaded library by its symbols: the version
// string alone cannot tell libmpi_abi from libmpi.
func recognise(path string, h uintptr) (*library, error) {
	l := &library{path: path, dl: h}
	has := func(name string) bool { p, err := purego.Dlsym(h, name); return err == nil && p != 0 }
	lookup := func(name string) (uintptr, error) { return purego.Dlsym(h, name) }
	switch {
	case abiMajor(h) > 0:
		l.abi = standard()
	case has("ompi_mpi_comm_self"):
		l.abi = openMPI()
	case has("MPI_SGI_vtune_is_running") || has("mpi_sgi_status_ignore"):
		return nil, errMPT
	case has("MPI_Init_thread"):
		l.abi = mpich()
	default:
		return nil, errors.New("no MPI library: it has no MPI_Init_thread")
	}
	if err := l.resolve(lookup); err != nil {
		return nil, err
	}
	for name, p := range l.functionTable() {
		var err error
		if *p, err = lookup(name); err != nil {
			return nil, fmt.Errorf("%s: no function %s: %w", l.name, name, err)
		}
	}
	buf, n := make([]byte, 8192), int32(0)
	purego.SyscallN(l.fn.getLibraryVersion, uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&n)))
	text := string(buf[:max(0, bytes.IndexByte(buf, 0))])
	if strings.Contains(text, "HPE MPT") || strings.Contains(text, "SGI MPT") {
		return nil, errMPT
	}
	l.version, l.about = firstLine(text), text
	return l, nil
}

// abiMajor is the major version of the standard interface, 0 without one.
func abiMajor(h uintptr) int32 {
	f, err := purego.Dlsym(h, "MPI_Abi_get_version")
	if err != nil || f == 0 {
		return 0
	}
	major, minor := int32(-1), int32(-1)
	purego.SyscallN(f, uintptr(unsafe.Pointer(&major)), uintptr(unsafe.Pointer(&minor)))
	return major
}

// firstLine cuts a version text to one line of single blanks.
func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if open, _, ok := strings.Cut(s, ","); ok && strings.HasPrefix(open, "Open MPI") {
		s = open
	}
	return strings.Join(strings.Fields(s), " ")
}

// call makes one call; what is not MPI_SUCCESS becomes an error.
func (l *library) check(name string, r uintptr) error {
	if int32(r) == 0 {
		return nil
	}
	return l.errorOf(name, int32(r))
}

// Error is an error MPI returned.
type Error struct {
	Call  string // "MPI_Isend"
	Code  int    // what the call returned
	Class int    // its class (MPI_ERR_…), as numbered by the library
	Text  string // MPI_Error_string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: error %d (class %d): %s", e.Call, e.Code, e.Class, e.Text)
}

func (l *library) errorOf(name string, code int32) *Error {
	class, n, buf := int32(-1), int32(0), make([]byte, 8192)
	purego.SyscallN(l.fn.errorClass, uintptr(code), uintptr(unsafe.Pointer(&class)))
	purego.SyscallN(l.fn.errorString, uintptr(code), uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&n)))
	text := string(buf[:min(max(int(n), 0), len(buf))])
	return &Error{Call: name, Code: int(code), Class: int(class), Text: strings.Join(strings.Fields(text), " ")}
}
