#!/usr/bin/env bash
# The project's own benchmarks as a nightly: each round runs the baseline's and tonight's benchmarks one after the
# other, the order alternating, and the two are judged by the gate of pipetrain compare.
#
#   scripts/bench-nightly.sh save                  tonight's test programs become the baseline
#   scripts/bench-nightly.sh                       5 rounds against it; ends with 9 where something is slower
#   PACKAGES="./kernels/cpu ./schedule" ROUNDS=10 BENCH=Simulate scripts/bench-nightly.sh
set -euo pipefail
cd "$(dirname "$0")/.."

read -ra packages <<<"${PACKAGES:-./kernels/cpu ./model ./schedule}"
rounds=${ROUNDS:-5}
bench=${BENCH:-.}
benchtime=${BENCHTIME:-0.2s}
baseline=build/bench-baseline
tonight=build/bench-tonight
export CGO_ENABLED=0

# build FOLDER: a test program a package, with the commit it is of.
build() {
  rm -rf "$1"
  mkdir -p "$1"
  local p
  for p in "${packages[@]}"; do go test -c -o "$1/$(tr / _ <<<"${p#./}").test" "$p"; done
  git describe --tags --always --dirty >"$1/commit"
}

if [ "${1:-}" = save ]; then
  build "$baseline"
  echo "baseline: $(cat "$baseline/commit") in $baseline"
  exit 0
fi
[ -d "$baseline" ] || { echo "bench-nightly: no baseline yet: scripts/bench-nightly.sh save" >&2; exit 2; }
build "$tonight"
make --no-print-directory build

for side in "$baseline" "$tonight"; do
  printf 'commit: %s\nhost: %s\ncores: %s\ncommand: %s\n' "$(cat "$side/commit")" "$(hostname)" "$(nproc)" "scripts/bench-nightly.sh" >"$side/results.txt"
done
measure() { # side package
  local program results="$PWD/$1/results.txt"
  program="$PWD/$1/$(tr / _ <<<"${2#./}").test"
  [ -x "$program" ] || return 0 # the baseline lacks the package: its benchmarks are new
  (cd "$2" && "$program" -test.run '^$' -test.bench "$bench" -test.benchtime "$benchtime" -test.timeout 30m) | grep '^Benchmark' >>"$results" || true
}
for round in $(seq "$rounds"); do
  for p in "${packages[@]}"; do
    if [ $((round % 2)) = 0 ]; then measure "$baseline" "$p"; measure "$tonight" "$p"; else measure "$tonight" "$p"; measure "$baseline" "$p"; fi
  done
done
exec bin/pipetrain compare --gate --metric sec/op "$baseline/results.txt" "$tonight/results.txt"
