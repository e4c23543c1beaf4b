// Detect prints what a process makes of what its launcher told it.
package main

import (
	"encoding/json"
	"os"

	"github.com/pipetrain/pipetrain/launcher"
)

func main() {
	if err := json.NewEncoder(os.Stdout).Encode(launcher.Detect(os.Environ())); err != nil {
		os.Exit(1)
	}
}
