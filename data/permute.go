package data

import "math/bits"

// rounds of the Feistel network. Four make a random-looking permutation of a
// large domain (Luby and Rackoff 1988); small domains need more.
const rounds = 8

// permute returns the place of i in a pseudo-random permutation of [0, n) that
// the key selects. It stores nothing: a Feistel network permutes the next power
// of four, and a result outside [0, n) goes through again (cycle walking, Black
// and Rogaway 2002), fewer than four times on average.
func permute(i, n, key uint64) uint64 {
	if n < 2 {
		return 0
	}
	half := uint(bits.Len64(n-1)+1) / 2
	mask := uint64(1)<<half - 1
	for {
		left, right := i>>half, i&mask
		for r := range uint64(rounds) {
			left, right = right, left^(hash(key, r, right)&mask)
		}
		if i = left<<half | right; i < n {
			return i
		}
	}
}

// hash mixes three numbers into 64 bits that look random, with the finaliser of
// SplitMix64 (Steele, Lea and Flood 2014) after each.
func hash(a, b, c uint64) uint64 {
	return mix(mix(mix(a+golden)^b+golden) ^ c + golden)
}

const golden = 0x9e3779b97f4a7c15

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below turns 64 random bits into a number in [0, n), with a bias below n/2^64.
func below(h, n uint64) uint64 {
	hi, _ := bits.Mul64(h, n)
	return hi
}
