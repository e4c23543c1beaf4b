package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// path returns where a path of the host lies.
func (h *Host) path(p string) string { return filepath.Join("/", h.Root, p) }

// read returns a small file's text, trimmed; empty when it cannot be read.
func (h *Host) read(p string) string {
	b, err := os.ReadFile(h.path(p))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// field returns the value of "Name: value" in a text such as /proc/self/status.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// env returns an environment variable; the last of several settings counts.
func (h *Host) env(name string) string {
	value := ""
	for _, e := range h.Env {
		if k, v, _ := strings.Cut(e, "="); k == name {
			value = v
		}
	}
	return value
}

// look returns where a program lies in the host's PATH, or "".
func (h *Host) look(name string) string {
	for _, dir := range filepath.SplitList(h.env("PATH")) {
		p := filepath.Join(dir, name)
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return p
		}
	}
	return ""
}

// maxOutput bounds what is kept of a program's output.
const maxOutput = 64 << 10

// bounded keeps the first maxOutput bytes written to it.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if room := maxOutput - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// command runs a program without input and returns stdout and stderr together.
// The program and its children end with ctx or after limit.
func (h *Host) command(ctx context.Context, limit time.Duration, extraEnv []string, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(append([]string(nil), h.Env...), extraEnv...)
	var out bounded
	cmd.Stdout, cmd.Stderr = &out, &out
	// A group of its own: mpirun's ranks and a script's children must not stay behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if ctx.Err() != nil && err != nil {
		err = fmt.Errorf("no answer within %v", limit)
	}
	return strings.TrimSpace(out.String()), err
}

// firstLine returns the first line of s that is not empty.
func firstLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}

// because joins an error and what a program printed into one line.
func because(out string, err error) string {
	line := firstLine(out)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return line
	case line == "":
		return err.Error()
	case errors.As(err, &exit):
		return fmt.Sprintf("%s (%v)", line, err)
	}
	return fmt.Sprintf("%v; it printed: %s", err, line)
}

// size prints bytes for people.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
