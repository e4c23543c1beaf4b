#!/usr/bin/env bash
# Assembles the PTX of the CUDA kernels for several cards, which shows what clang does
# not look at (inline assembly), and prints registers, shared memory and spills of
# each kernel. ptxas comes with NVIDIA's toolkit or its Python package
# nvidia-cuda-nvcc-cu12; where neither is there, this says so and ends well.
#
#   scripts/ptxas-check.sh            one line in the end
#   scripts/ptxas-check.sh --table    registers and shared memory of each kernel, for docs/cuda-kernels.md
#   PTXAS=/path/to/ptxas scripts/ptxas-check.sh
set -euo pipefail
cd "$(dirname "$0")/.."

targets=(sm_80 sm_89 sm_90 sm_100)
ptxas=${PTXAS:-$(command -v ptxas || true)}
if [ -z "$ptxas" ] && command -v python3 >/dev/null; then
  ptxas=$(python3 -c 'import nvidia.cuda_nvcc as p; print(list(p.__path__)[0] + "/bin/ptxas")' 2>/dev/null || true)
fi
if [ -z "$ptxas" ] || [ ! -x "$ptxas" ]; then
  echo "ptxas: SKIPPED: not found (PTXAS=, PATH, Python package nvidia-cuda-nvcc-cu12); the PTX was not assembled"
  exit 0
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for f in kernels/cuda/ptx/*.ptx.gz; do gzip -dc "$f" >"$out/$(basename "${f%.gz}")"; done
for target in "${targets[@]}"; do
  for f in "$out"/*.ptx; do
    "$ptxas" -arch="$target" -v -o /dev/null "$f" 2>"$out/log" || { cat "$out/log" >&2; echo "ptxas: $(basename "$f") for $target" >&2; exit 1; }
    awk -v target="$target" '
      /Compiling entry function/ { split($0, q, "\x27"); name = q[2] }
      /bytes stack frame/ { match($0, /[0-9]+ bytes spill stores/); spill = substr($0, RSTART) + 0 }
      /Used [0-9]+ registers/ {
        match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
        shared = 0
        if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART) + 0
        print target, name, registers, shared, spill
      }' "$out/log"
  done
done >"$out/all"

if [ "${1:-}" = --table ]; then
  echo "| kernel | registers | static shared memory, bytes | spilled, bytes |"
  echo "|---|---|---|---|"
  # Registers and spills of all targets, where they differ: smallest to largest.
  LC_ALL=C sort -k2,2 -k3,3n "$out/all" | awk '
    function put() { if (name != "") print "| `" name "` | " (low == high ? low : low "–" high) " | " shared " | " spill " |" }
    $2 != name { put(); name = $2; low = $3; shared = $4; spill = 0 }
    { high = $3; if ($5 > spill) spill = $5 }
    END { put() }'
  exit 0
fi
awk '$5 > 0 { print "spills: " $1, $2 ": " $5 " bytes" }' "$out/all"
echo "ptxas: $(awk '{ print $2 }' "$out/all" | sort -u | wc -l) kernels assembled for ${targets[*]}"
