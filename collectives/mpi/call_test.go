package mpi

import (
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// The instructions that call MPI, tried on functions of the C library: seven arguments, the
// return value, repetition, its end, and what follows.
func TestCall(t *testing.T) {
	libc, err := purego.Dlopen("libc.so.6", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		t.Skip(err)
	}
	function := func(name string) uintptr {
		f, err := purego.Dlsym(libc, name)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	text, format, sem := make([]byte, 64), []byte("%d %s %ld %x\x00"), make([]int32, 8)
	word := []byte("word\x00")
	ptr := func(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }
	semaphore := uintptr(unsafe.Pointer(&sem[0]))

	print := &call{fn: function("snprintf"), arg: [7]uintptr{ptr(text), 64, ptr(format), 12, ptr(word), 1 << 40, 0xbeef}}
	print.make()
	if want := "12 word 1099511627776 beef"; string(text[:len(want)+1]) != want+"\x00" || int(print.rc) != len(want) {
		t.Errorf("%q, returned %d", text, print.rc)
	}

	// sem_post adds one and returns 0; sem_getvalue puts out what it finds.
	value := &call{fn: function("sem_getvalue"), arg: [7]uintptr{semaphore}, until: true, rounds: 1 << 40}
	value.arg[1] = value.donePtr()
	post := &call{fn: function("sem_post"), arg: [7]uintptr{semaphore}, until: true, rounds: 5, next: value}
	post.make()
	if sem[0] != 5 || value.done != 5 || post.rc != 0 || post.done != 0 {
		t.Errorf("posted %d times, then found %d", sem[0], value.done)
	}
	post.rounds, post.until, post.next = 5, false, nil
	post.make()
	post.rounds, post.until = 0, true
	post.make()
	if sem[0] != 7 {
		t.Errorf("two more calls make %d", sem[0])
	}
	// What fails is neither repeated nor followed.
	print.until, print.rounds, print.next = true, 9, post
	print.make()
	if sem[0] != 7 {
		t.Errorf("went on after a failure: %d", sem[0])
	}
}
