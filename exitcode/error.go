package exitcode

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// Error is an error that knows the exit code of the process it ends.
type Error struct {
	Code Code
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// With gives err the exit code. A nil err stays nil. The outermost code of a
// chain wins: who knows more may overrule.
func With(code Code, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Err: err}
}

// Errorf is With(code, fmt.Errorf(format, args...)).
func Errorf(code Code, format string, args ...any) error {
	return With(code, fmt.Errorf(format, args...))
}

// BlamedError is an error that its rank was told of: another one failed.
type BlamedError struct {
	Rank int // the one that failed
	Err  error
}

func (e *BlamedError) Error() string { return e.Err.Error() }
func (e *BlamedError) Unwrap() error { return e.Err }

// Culprit returns the rank that err blames, or own where it blames none.
func Culprit(err error, own int) int {
	if b := (*BlamedError)(nil); errors.As(err, &b) {
		return b.Rank
	}
	return own
}

// ReportedError is an error that the user has been told already.
type ReportedError struct{ Err error }

func (e *ReportedError) Error() string { return e.Err.Error() }
func (e *ReportedError) Unwrap() error { return e.Err }

// environment are errors of the system that mean "this machine", not "a bug".
var environment = []error{
	fs.ErrNotExist, fs.ErrPermission,
	syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS, syscall.ESTALE, syscall.ENODEV,
	syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN,
}

// Of returns the exit code of err: Finished for nil, the code given by With, a
// code derived from a system error (no memory, no space, no such file), else
// Unexpected.
func Of(err error) Code {
	if err == nil {
		return Finished
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	if errors.Is(err, syscall.ENOMEM) {
		return OutOfMemory
	}
	for _, env := range environment {
		if errors.Is(err, env) {
			return Environment
		}
	}
	return Unexpected
}
