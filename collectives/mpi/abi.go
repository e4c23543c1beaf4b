package mpi

import "fmt"

// abi is one binary interface of MPI: what the C header would have told a
// compiler. A field of type handle is a value or, where the library exports
// objects, the name of a symbol whose address is the value.
type abi struct {
	name       string
	handleSize int // bytes of an MPI_Request, MPI_Comm, …
	statusSize int
	statusErr  int // offset of MPI_ERROR in MPI_Status

	commWorld, commNull handle
	byteType            handle
	requestNull         handle
	infoNull            handle
	errorsReturn        handle

	statusIgnore uintptr
	undefined    int32
	tagUB        uintptr // key of the attribute MPI_TAG_UB
	typeShared   uintptr // split type MPI_COMM_TYPE_SHARED
	threads      [4]int32
	hint         string // what starts programs of this family
}

type handle struct {
	value  uintptr
	symbol string
}

func val(v uintptr) handle   { return handle{value: v} }
func sym(name string) handle { return handle{symbol: name} }

// resolve looks up the symbols.
func (a *abi) resolve(lookup func(string) (uintptr, error)) error {
	for _, h := range []*handle{&a.commWorld, &a.commNull, &a.byteType, &a.requestNull, &a.infoNull, &a.errorsReturn} {
		if h.symbol == "" {
			continue
		}
		p, err := lookup(h.symbol)
		if err != nil {
			return fmt.Errorf("the library looks like %s but has no symbol %s: %w", a.name, h.symbol, err)
		}
		h.value = p
	}
	return nil
}

var threadNames = [4]string{"single", "funneled", "serialized", "multiple"}

// threadLevel ranks a level the library returned: 0 single … 3 multiple, -1 unknown.
func (a *abi) threadLevel(v int32) int {
	for i, x := range a.threads {
		if x == v {
			return i
		}
	}
	return -1
}
