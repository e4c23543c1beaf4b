//go:build !linux

package transporttest

import "os/exec"

func dieWithParent(*exec.Cmd) {}

// DieWithParent does nothing here.
func DieWithParent() {}
