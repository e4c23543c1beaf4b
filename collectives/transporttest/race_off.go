//go:build !race

package transporttest

// Race says that the race detector is on.
const Race = false
