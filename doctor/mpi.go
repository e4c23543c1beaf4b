package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pipetrain/pipetrain/launcher"
)

// Families of MPI: libraries and launchers fit within one.
const (
	openMPI = "Open MPI"
	mpich   = "MPICH"
	mpiABI  = "MPI-5 ABI"
)

// mpiLibrary is one libmpi that was found.
type mpiLibrary struct {
	Family  string `json:"family"`
	Version string `json:"version"`
	Path    string `json:"path"`
}

func (l mpiLibrary) String() string {
	return strings.TrimSpace(l.Family+" "+l.Version) + " (" + l.Path + ")"
}

// mpiLauncher is one program that starts MPI ranks.
type mpiLauncher struct {
	Family  string `json:"family"` // empty: unknown
	Version string `json:"version"`
	Path    string `json:"path"`
}

func (l mpiLauncher) String() string {
	return strings.TrimSpace(l.Family+" "+l.Version) + " (" + l.Path + ")"
}

var (
	openMPIVersion = regexp.MustCompile(`\x00v([2-9]\.[0-9]+\.[0-9]+[a-z0-9]*)\x00`)
	versionNumber  = regexp.MustCompile(`[0-9]+\.[0-9]+(?:\.[0-9]+)?[a-z0-9]*`)
)

// mpiFolders adds the places that modules and distributions use to the loader's.
func mpiFolders(h *Host) []string {
	dirs := libraryFolders(h)
	for _, name := range []string{"MPI_HOME", "MPI_ROOT", "OPAL_PREFIX", "I_MPI_ROOT", "MPICH_DIR", "CRAY_MPICH_DIR", "EBROOTOPENMPI", "EBROOTMPICH"} {
		if v := h.env(name); v != "" {
			dirs = append(dirs, h.path(v+"/lib"), h.path(v+"/lib64"), h.path(v+"/lib/release"))
		}
	}
	for _, pattern := range []string{"/usr/lib/*/openmpi/lib", "/usr/lib/*/mpich/lib", "/usr/lib64/openmpi/lib", "/usr/lib64/mpich/lib", "/opt/*mpi*/lib"} {
		found, _ := filepath.Glob(h.path(pattern))
		dirs = append(dirs, found...)
	}
	return dirs
}

// findMPI returns the libraries, and what is wrong with files that look like one.
func findMPI(h *Host) (libs []mpiLibrary, bad []string) {
	paths := librariesIn(mpiFolders(h), "libmpi_abi.so.*", "libmpi.so.40*", "libmpi.so.12*", "libmpich.so.12*", "libmpi_cray.so.12*", "libmpi.so")
	if h.Job != nil && h.Job.Transport.LibMPI != "" {
		name := h.Job.Transport.LibMPI
		if !strings.Contains(name, "/") { // the loader looks for it
			all := librariesIn(mpiFolders(h), name)
			if len(all) == 0 {
				bad = append(bad, fmt.Sprintf("transport.libmpi = %q is in none of the loader's folders", name))
			}
			paths = append(all, paths...)
		} else {
			paths = append([]string{name}, paths...)
		}
		seen := map[string]bool{}
		paths = slices.DeleteFunc(paths, func(p string) bool { was := seen[p]; seen[p] = true; return was })
	}
	for _, p := range paths {
		l, err := identifyMPI(p)
		if err != nil {
			bad = append(bad, err.Error())
			continue
		}
		libs = append(libs, l)
	}
	return libs, bad
}

// identifyMPI reads from a library's symbols which binary interface it has.
func identifyMPI(path string) (mpiLibrary, error) {
	lib, err := openLibrary(path)
	if err != nil {
		return mpiLibrary{}, err
	}
	defer lib.close()
	m := mpiLibrary{Path: path}
	switch {
	case strings.HasPrefix(lib.soname, "libmpi_abi.so"):
		m.Family = mpiABI
	case lib.has("ompi_mpi_comm_self"):
		m.Family, m.Version = openMPI, lib.find(openMPIVersion)
	case lib.has("MPI_SGI_init"), strings.Contains(lib.soname, "libmpi_mpt"):
		return m, fmt.Errorf("%s is HPE MPT, whose interface is its own: not supported", path)
	case lib.has("MPI_Init_thread"):
		m.Family, m.Version = mpich, lib.text("MPII_Version_string")
	default:
		return m, fmt.Errorf("%s has no MPI_Init_thread: it is no MPI library", path)
	}
	return m, nil
}

// needsMPI says whether the job cannot do without.
func (h *Host) needsMPI() bool { return h.Job != nil && h.Job.Transport.Kind == "mpi" }

func checkMPILibraries(_ context.Context, h *Host) []Finding {
	libs, bad := findMPI(h)
	var all []Finding
	for _, b := range bad {
		all = append(all, warn("remove it from the loader's path, or name the right one with transport.libmpi", "%s", b))
	}
	if len(libs) == 0 {
		fix := "load the cluster's MPI module, or apt-get install openmpi-bin, or name the library with transport.libmpi"
		if h.needsMPI() {
			return append(all, fails(fix, "no MPI library in the loader's folders; the job asks for transport.kind = \"mpi\""))
		}
		return append(all, ok("none: jobs run on one host, over the local transport"))
	}
	var names []string
	for _, l := range libs {
		names = append(names, l.String())
	}
	return append(all, ok("%s", strings.Join(names, ", ")).with("libraries", libs))
}

// findLaunchers asks each launcher in PATH what it is.
func findLaunchers(ctx context.Context, h *Host) (found []mpiLauncher, bad []string) {
	seen := map[string]bool{}
	for _, name := range []string{"mpirun", "mpiexec", "mpirun.openmpi", "mpirun.mpich", "mpiexec.hydra", "prterun", "mpiexec.mpich"} {
		path := h.look(name)
		if path == "" {
			continue
		}
		real, err := filepath.EvalSymlinks(path)
		if err != nil || seen[real] {
			continue
		}
		seen[real] = true
		out, err := h.command(ctx, 10*time.Second, nil, path, "--version")
		if err != nil {
			bad = append(bad, path+" --version: "+because(out, err))
			continue
		}
		found = append(found, identifyLauncher(path, out))
	}
	// Several names of one family and version are one launcher (orterun is mpirun is mpiexec).
	found = slices.CompactFunc(found, func(a, b mpiLauncher) bool { return a.Family == b.Family && a.Version == b.Version })
	return found, bad
}

func identifyLauncher(path, version string) mpiLauncher {
	l := mpiLauncher{Path: path}
	line := firstLine(version)
	switch {
	case strings.Contains(version, "HYDRA"):
		l.Family = mpich
		line = field(version, "Version")
	case strings.Contains(version, "Intel(R) MPI"):
		l.Family = mpich
		_, line, _ = strings.Cut(line, "Version")
	case strings.Contains(version, "Open MPI"), strings.Contains(version, "OpenRTE"), strings.Contains(version, "PRRTE"):
		l.Family = openMPI
	}
	l.Version = versionNumber.FindString(line)
	return l
}

func checkMPILaunchers(ctx context.Context, h *Host) []Finding {
	found, bad := findLaunchers(ctx, h)
	var all []Finding
	for _, b := range bad {
		all = append(all, warn("fix that installation, or take it out of PATH", "%s", b))
	}
	if len(found) == 0 {
		return append(all, ok("none in PATH: under Slurm, srun starts the ranks; on one host, pipetrain itself"))
	}
	var names []string
	for _, l := range found {
		names = append(names, l.String())
		if l.Family == openMPI && os.Geteuid() == 0 && h.Root == "" && (h.env("OMPI_ALLOW_RUN_AS_ROOT") == "" || h.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") == "") {
			all = append(all, warn("run as another user, or export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "%s refuses to start as root", l.Path))
		}
	}
	return append(all, ok("%s", strings.Join(names, ", ")).with("launchers", found))
}

// checkMPIPairs says which library fits which launcher, and starts two ranks under each pair that does.
func checkMPIPairs(ctx context.Context, h *Host) []Finding {
	libs, _ := findMPI(h)
	launchers, _ := findLaunchers(ctx, h)
	if len(libs) == 0 && len(launchers) == 0 {
		return []Finding{ok("no MPI here")}
	}
	var all []Finding
	tried := map[string]bool{}
	for _, l := range launchers {
		i := slices.IndexFunc(libs, func(m mpiLibrary) bool { return m.Family == l.Family })
		if i < 0 {
			all = append(all, warn(fmt.Sprintf("install or load the library of %s, or use the launcher that belongs to your library", familyOr(l.Family)),
				"%s has no library that fits: every rank would be a world of its own", l))
			continue
		}
		tried[l.Family] = true
		all = append(all, tryPair(ctx, h, l, libs[i]))
	}
	for _, m := range libs {
		if !tried[m.Family] && len(launchers) > 0 && m.Family != mpiABI {
			all = append(all, warn("start it with srun, or put its own mpirun into PATH", "%s has no launcher in PATH", m))
			tried[m.Family] = true
		}
	}
	return all
}

func familyOr(family string) string {
	if family == "" {
		return "that launcher"
	}
	return family
}

// tryPair starts two ranks for real where the program says how.
func tryPair(ctx context.Context, h *Host, l mpiLauncher, m mpiLibrary) Finding {
	if h.MPIRank == nil {
		return ok("%s fits %s (by name; not tried)", l.Path, m)
	}
	if world := launcher.Detect(h.Env); world.IsRank() {
		return ok("%s fits %s (by name; not tried from within a rank)", l.Path, m)
	}
	argv := append([]string{l.Path, "-n", "2"}, h.MPIRank(m.Path)...)
	var env []string
	if l.Family == openMPI {
		// Two ranks on whatever there is, also as root: this starts and ends within a second.
		env = []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_rmaps_base_oversubscribe=1", "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"}
	}
	begin := time.Now()
	out, err := h.command(ctx, 30*time.Second, env, argv...)
	ranks := parseExchanges(out)
	for _, r := range ranks {
		if r.Error != "" {
			return fails("use the launcher that belongs to the library, or fix what the message says", "2 ranks under %s with %s: %s", l.Path, m, r.Error)
		}
	}
	if err != nil {
		return fails("fix that installation, or use another launcher", "2 ranks under %s with %s: %s", l.Path, m, because(lastLines(out), err))
	}
	if len(ranks) != 2 || ranks[0].Size != 2 || ranks[1].Size != 2 {
		sizes := []int{}
		for _, r := range ranks {
			sizes = append(sizes, r.Size)
		}
		return fails("use the launcher that belongs to the library", "2 ranks under %s with %s came up as worlds of %v", l.Path, m, sizes)
	}
	r := ranks[0]
	return ok("2 ranks under %s with %s: %.1f µs for 8 B, %.1f GB/s for 4 MiB, started and ended in %.2f s", l.Path, m, r.Latency*1e6, r.Bandwidth/1e9, time.Since(begin).Seconds()).
		with("ranks", ranks)
}

// lastLines returns the end of an output: launchers print banners first.
func lastLines(out string) string {
	lines := slices.DeleteFunc(strings.Split(out, "\n"), func(l string) bool { return strings.Trim(l, " -=") == "" })
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

// parseExchanges reads the lines that MPIRank made, in between what launchers print.
func parseExchanges(out string) []Exchange {
	var all []Exchange
	for line := range strings.Lines(out) {
		_, text, found := strings.Cut(line, probeMark)
		var x Exchange
		if found && json.Unmarshal([]byte(strings.TrimSpace(text)), &x) == nil {
			all = append(all, x)
		}
	}
	return all
}

// checkWorld says what the environment tells about this process's place.
func checkWorld(_ context.Context, h *Host) []Finding {
	w := launcher.Detect(h.Env)
	if w.Problem != "" {
		return []Finding{fails("start it anew with one launcher; unset the variables of the other", "%s", w.Problem)}
	}
	found := w.String()
	if len(w.Notes) > 0 {
		found += "; " + strings.Join(w.Notes, "; ")
	}
	if h.Job != nil && w.IsRank() {
		if want := h.Job.Grid().World(); want != w.Size {
			return []Finding{fails(fmt.Sprintf("start %d ranks, or change parallel.stages and parallel.replicas", want), "%s, but the job has %d ranks", found, want)}
		}
	}
	return []Finding{ok("%s", found)}
}
