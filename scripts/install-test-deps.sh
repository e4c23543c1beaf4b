#!/usr/bin/env bash
# Installs what the tests use beside Go: two MPIs, Slurm, BLAS libraries, a C
# compiler for the race detector. Does nothing when all of it is there.
# Nothing of this is needed to build or to run pipetrain.
#
#   scripts/install-test-deps.sh            install what is missing
#   scripts/install-test-deps.sh --list     print the packages, one a line
#   scripts/install-test-deps.sh --missing  print the missing ones; exit 1 when there are any
set -euo pipefail

packages=(
  make                        # the test command itself
  gcc g++ libc6-dev           # go test -race; the emulated CUDA kernels
  clang-22                    # the CUDA kernels' PTX is compiled anew and compared
  openmpi-bin mpich           # both MPIs, side by side: mpirun.openmpi, mpirun.mpich
  slurm-wlm munge             # a real Slurm on this machine
  libpmix-dev                 # srun --mpi=pmix opens libpmix.so, a name that only this package has
  charliecloud-runtime        # ch-run, for slurm.container: Debian has no Apptainer
  libopenblas0 libdnnl2 libblis4 # BLAS libraries, chosen at run time
  python3-numpy               # reads the checkpoints back as another program
  iproute2 procps             # namespaces as nodes; ps
  shellcheck                  # the batch scripts that submit makes
)

missing() {
  local p
  for p in "${packages[@]}"; do
    # "install ok installed" and not just known: a removed package keeps its configuration.
    if [ "$(dpkg-query -W -f '${Status}' "$p" 2>/dev/null)" != "install ok installed" ]; then
      echo "$p"
    fi
  done
}

case "${1:-}" in
--list)
  printf '%s\n' "${packages[@]}"
  exit 0
  ;;
"" | --missing) ;;
*)
  echo "install-test-deps: unknown argument '$1'; known: --list, --missing" >&2
  exit 2
  ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  cat >&2 <<MSG
install-test-deps: no apt on this system, so nothing can be installed from here.
The tests use the equivalents of these Debian packages; install them with your package manager:
  ${packages[*]}
Then run the tests with PIPETRAIN_SKIP=deps make test
MSG
  exit 1
fi

mapfile -t want < <(missing)
if [ "${1:-}" = --missing ]; then
  [ ${#want[@]} -eq 0 ] || { printf '%s\n' "${want[@]}"; exit 1; }
  exit 0
fi
if [ ${#want[@]} -eq 0 ]; then
  echo "install-test-deps: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install-test-deps: installing needs root, and sudo is not there. As root: apt-get install ${want[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "install-test-deps: installing ${want[*]}"
apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y
  -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 -o Acquire::http::Timeout=30 -o Dpkg::Use-Pty=0)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The output is hundreds of lines that matter only when something fails.
if ! { "${as_root[@]}" "${apt[@]}" update && "${as_root[@]}" "${apt[@]}" install --no-install-recommends "${want[@]}"; } >"$log" 2>&1 </dev/null; then
  tail -n 40 "$log" >&2
  echo "install-test-deps: apt-get could not install ${want[*]}; its last lines are above" >&2
  exit 1
fi
echo "install-test-deps: done"
