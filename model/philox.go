package model

import "math/bits"

// philox is Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3" (SC 2011): four random words as a function of counter and key, so that
// any number of a stream is computed alone, wherever it is needed.
func philox(ctr [4]uint32, key [2]uint32) [4]uint32 {
	const (
		m0, m1 = 0xD2511F53, 0xCD9E8D57 // multipliers of the two halves
		w0, w1 = 0x9E3779B9, 0xBB67AE85 // Weyl steps of the key
	)
	for range 10 {
		h0, l0 := bits.Mul32(m0, ctr[0])
		h1, l1 := bits.Mul32(m1, ctr[2])
		ctr = [4]uint32{h1 ^ ctr[1] ^ key[0], l1, h0 ^ ctr[3] ^ key[1], l0}
		key[0] += w0
		key[1] += w1
	}
	return ctr
}
