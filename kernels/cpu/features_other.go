//go:build !amd64

package cpu

func hasAVX512() bool { return false }
