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
# Objects are kept by what they are made of: variants share most of them.
objects=$here/../../../build/emulation/objects
mkdir -p "$objects"
compile() { # digest of what it includes, source, object, options: in the background, as many at once as there are processors
  local kept source=$2 object=$3
  kept=$objects/$( (echo "$1 ${flags[*]} ${*:4}"; cat "$source") | sha256sum | cut -c 1-24).o
  shift 3
  if [ -f "$kept" ]; then
    cp "$kept" "$object"
    return
  fi
  if [ "$running" -ge "$most" ]; then
    wait -n || failed=1
    running=$((running - 1))
  fi
  (g++ "${flags[@]}" "$@" -c -o "$object" "$source" && cp "$object" "$object.kept" && mv "$object.kept" "$kept") &
  running=$((running + 1))
}

sources=${PIPETRAIN_KERNEL_SOURCES:-$here/../src}
includes=$(cat "$here/emulation.h" "$sources"/*.h | sha256sum)
for f in "$sources"/*.cu; do
  compile "$includes" "$f" "$out/kernel_$(basename "${f%.cu}").o" -x c++ -DPIPETRAIN_EMULATION -I"$here" ${checks[@]+"${checks[@]}"}
done
includes=$(cat "$here"/*.h | sha256sum)
for f in "$here"/*.cc; do compile "$includes" "$f" "$out/$(basename "${f%.cc}").o"; done
while [ "$running" -gt 0 ]; do
  wait -n || failed=1
  running=$((running - 1))
done
[ $failed = 0 ] || exit 1
g++ -shared -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -Wl,--no-undefined -o "$out/libcuda.so.1" "$out"/*.o -pthread
