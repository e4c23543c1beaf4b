//go:build race

package transporttest

// Race says that the race detector is on: tests move less, and leave out
// transports whose very fault is a race.
const Race = true
