package record

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestEnvironment(t *testing.T) {
	f := runFolder(t)
	h := ProbeHost(0)
	if h.Name == "" || h.PID != os.Getpid() || h.Cores < 1 || h.CoresHost < h.Cores || h.MemoryBytes < 1<<20 ||
		!strings.HasPrefix(h.Kernel, "Linux ") || h.CPU == "" {
		t.Errorf("%+v", h)
	}
	hosts := []Host{h, {Rank: 1, Name: "b"}, {Rank: 2, Name: h.Name}}
	e := NewEnvironment("1.2.3", []string{"pipetrain", "job.toml", "--set", "slurm.api_key=x", "--set", `slurm.environment=["MODE=hunter2"]`}, []string{"OMP_NUM_THREADS=2", "HOME=/root"}, hosts)
	e.Device = map[string]string{"library": "oneDNN"}
	if err := f.WriteEnvironment(e); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.File(EnvironmentName))
	if err != nil {
		t.Fatal(err)
	}
	var got Environment
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != "1.2.3" || got.Go != runtime.Version() || !slices.Equal(got.Nodes, []string{h.Name, "b"}) || len(got.Hosts) != 3 ||
		got.Variables["OMP_NUM_THREADS"] != "2" || got.Device["library"] != "oneDNN" || strings.Contains(string(b), "slurm.api_key=x") || strings.Contains(string(b), "hunter2") {
		t.Errorf("%s", b)
	}
	if v, _, _ := BuildInfo(""); v == "" {
		t.Error("no version")
	}
}

// TestVariables: what changes a run is kept, credentials never.
func TestVariables(t *testing.T) {
	got := Variables([]string{
		"SLURM_JOB_ID=7", "OMPI_MCA_btl=tcp,self", "MKL_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES=0,1", "GOMAXPROCS=2", "LD_LIBRARY_PATH=/opt/lib",
		"UCX_TLS=rc", "PIPETRAIN_RANK=1",
		"SLURM_JWT=eyJ", "OMPI_MCA_orte_precondition_transports=0123-4567", "OMPI_MCA_orte_hnp_uri=tcp", "SLURM_AUTH_x=1", "PIPETRAIN_TOKEN=t",
		"NCCL_SOCKET=https://user:pw@host", "AWS_SECRET_ACCESS_KEY=s", "GITHUB_TOKEN=g", "HOME=/root", "PATH=/bin", "OMPX=1", "broken", "=x",
		"SLURM_API_key=k", "PMI_JOB_PASSWD=p",
	})
	want := []string{"CUDA_VISIBLE_DEVICES", "GOMAXPROCS", "LD_LIBRARY_PATH", "MKL_NUM_THREADS", "OMPI_MCA_btl", "PIPETRAIN_RANK", "SLURM_JOB_ID", "UCX_TLS"}
	if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, want) {
		t.Errorf("%v, want %v", keys, want)
	}
}

func TestProcFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cpuinfo")
	text := "processor\t: 0\nmodel name\t: Test: CPU @ 2 GHz\n\nprocessor\t: 1\nmodel name\t: Test: CPU @ 2 GHz\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if model, n := cpuInfo(path); model != "Test: CPU @ 2 GHz" || n != 2 {
		t.Error(model, n)
	}
	if model, n := cpuInfo(filepath.Join(dir, "none")); model != "" || n != 0 {
		t.Error(model, n)
	}
	if err := os.WriteFile(path, []byte("NAME=x\nPRETTY_NAME=\"Debian 12\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := field(path, "PRETTY_NAME", "="); got != "Debian 12" {
		t.Error(got)
	}
}
