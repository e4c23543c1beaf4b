//go:build !linux

package cpu

func wishHugePages([]byte) {}
