package cpu

import "golang.org/x/sys/unix"

// hugeFrom is the size from which a mapping asks for huge pages. Products walk
// down columns of large matrices, where 4 KiB pages cost a TLB miss per row.
const hugeFrom = 2 << 20

func wishHugePages(m []byte) {
	if len(m) >= hugeFrom {
		_ = unix.Madvise(m, unix.MADV_HUGEPAGE) // kernels without them say EINVAL
	}
}
