package mpi

import (
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// The instructions that call MPI, tried on functions of the C library: seven arguments, the
// return value, repetition, its end, and what follows.
func TestCall(t *testing.T) {
	for name, way := range map[string]func(*call){"make": (*call).make, "quick": (*call).quick} {
		t.Run(name, func(t *testing.T) { tryCall(t, way) })
	}
}

func tryCall(t *testing.T, way func(*call)) {
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
	way(print)
	if want := "12 word 1099511627776 beef"; string(text[:len(want)+1]) != want+"\x00" || int(print.rc) != len(want) {
		t.Errorf("%q, returned %d", text, print.rc)
	}

	// sem_post adds one and returns 0; sem_getvalue puts out what it finds.
	value := &call{fn: function("sem_getvalue"), arg: [7]uintptr{semaphore}, until: true, rounds: 1 << 40}
	value.arg[1] = value.donePtr()
	post := &call{fn: function("sem_post"), arg: [7]uintptr{semaphore}, until: true, rounds: 5, next: value}
	way(post)
	if sem[0] != 5 || value.done != 5 || post.rc != 0 || post.done != 0 {
		t.Errorf("posted %d times, then found %d", sem[0], value.done)
	}
	post.rounds, post.until, post.next = 5, false, nil
	way(post)
	post.rounds, post.until = 0, true
	way(post)
	if sem[0] != 7 {
		t.Errorf("two more calls make %d", sem[0])
	}
	// What fails is neither repeated nor followed.
	print.until, print.rounds, print.next = true, 9, post
	way(print)
	if sem[0] != 7 {
		t.Errorf("went on after a failure: %d", sem[0])
	}
}

// What may take long is counted, for the calls that may not be quick then.
func TestTableCountsLong(t *testing.T) {
	l, q := &library{abi: openMPI()}, &table{}
	for i, role := range []int{roleSend, roleBody, roleFirst, roleSendBody, roleDevice} {
		*q.push(l, &transfer{tag: i}, role) = byte(i)
	}
	for _, c := range []struct{ index, tag, long int }{{0, 4, 3}, {0, 3, 2}, {2, -1, 2}, {1, -1, 1}, {0, -1, 0}} {
		q.remove(l, c.index)
		if q.long != c.long {
			t.Errorf("%d long ones of %v, want %d", q.long, q.role[:q.n], c.long)
		}
		if c.tag >= 0 && (q.owner[c.index].tag != c.tag || int(q.handles[c.index*l.handleSize]) != c.tag) {
			t.Errorf("entry %d became that of tag %d, want %d", c.index, q.owner[c.index].tag, c.tag)
		}
	}
	for _, r := range q.owner[:cap(q.owner)] {
		if r != nil {
			t.Errorf("the table keeps the transfer of tag %d", r.tag)
		}
	}
}
