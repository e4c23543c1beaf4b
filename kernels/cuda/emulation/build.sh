#!/usr/bin/env bash
# Compiles the kernels, the emulation and the stand-in for the driver for the host's processor.
#
#   build.sh FOLDER [--fast] [g++ options]    FOLDER/libcuda.so.1
#
# --fast leaves the checks of each memory access out: several times as fast, for runs
# whose numbers matter. Prints nothing unless something is wrong.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?build.sh FOLDER}
shift
checks=(-fsanitize=thread --param tsan-instrument-func-entry-exit=0)
if [ "${1:-}" = --fast ]; then
  checks=()
  shift
fi
command -v g++ >/dev/null || { echo "build.sh: g++ is not there: apt-get install g++" >&2; exit 1; }
mkdir -p "$out"
flags=(-std=c++17 -O2 -g1 -fPIC -fvisibility=hidden -fno-strict-aliasing -ffp-contract=off -Wall -Wextra "$@")
# fmaf is an instruction of every processor of the last ten years, else a slow function.
if grep -qw fma /proc/cpuinfo 2>/dev/null; then flags+=(-mfma); fi

failed=0
most=$(nproc 2>/dev/null || echo 2)
running=0
compile() { # source, object, options: in the background, as many at once as there are processors
  local source=$1 object=$2
  shift 2
  if [ "$running" -ge "$most" ]; then
    wait -n || failed=1
    running=$((running - 1))
  fi
  g++ "${flags[@]}" "$@" -c -o "$object" "$source" &
  running=$((running + 1))
}

sources=${PIPETRAIN_KERNEL_SOURCES:-$here/../src}
for f in "$sources"/*.cu; do
  compile "$f" "$out/kernel_$(basename "${f%.cu}").o" -x c++ -DPIPETRAIN_EMULATION -I"$here" ${checks[@]+"${checks[@]}"}
done
for f in "$here"/*.cc; do compile "$f" "$out/$(basename "${f%.cc}").o"; done
while [ "$running" -gt 0 ]; do
  wait -n || failed=1
  running=$((running - 1))
done
[ $failed = 0 ] || exit 1
g++ -shared -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -Wl,--no-undefined -o "$out/libcuda.so.1" "$out"/*.o -pthread
