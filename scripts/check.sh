#!/usr/bin/env bash
# All checks of the project, part by part. A part that fails does not stop the
# next ones, but the whole then fails. go test comes last, so that its summary
# lines end the log.
#
#   scripts/check.sh                 all parts but unit, which test holds
#   scripts/check.sh vet race        these parts
#   PIPETRAIN_SKIP="deps race" …     leave parts out
set -euo pipefail
cd "$(dirname "$0")/.."

staticcheck_version=v0.8.2
# All parts but race see the program as it is built, without cgo: one set of compiled packages for all.
export CGO_ENABLED=0
# Per test binary. A test that hangs is cut here, with the stacks of all its goroutines.
test_timeout=${PIPETRAIN_TEST_TIMEOUT:-15m}

all_parts=(deps gofmt vet staticcheck build ptx race test)

part_deps() { scripts/install-test-deps.sh; }

part_gofmt() {
  local files
  files=$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 -r ls -d 2>/dev/null | xargs -r gofmt -l)
  [ -z "$files" ] || { printf 'not formatted; run gofmt -w on:\n%s\n' "$files"; return 1; }
}

part_vet() { go vet ./...; }

part_staticcheck() {
  local tool="honnef.co/go/tools/cmd/staticcheck@$staticcheck_version"
  if ! go run "$tool" -version >/dev/null; then
    echo "staticcheck $staticcheck_version could not be fetched or built (above: why). Without network: PIPETRAIN_SKIP=staticcheck"
    return 1
  fi
  go run "$tool" ./...
}

# The committed PTX of the CUDA kernels is that of their sources, and assembles where there is an assembler.
part_ptx() { scripts/ptx.sh check && scripts/ptxas-check.sh; }

part_build() { go build -buildvcs=false ./... && make --no-print-directory build; }

# The packages that start goroutines or share memory: found, not listed, so that a new one is not forgotten.
concurrent_packages() {
  grep -rlE --include='*.go' --exclude-dir=testdata --exclude-dir=build '^[[:space:]]*go [a-zA-Z_(]|^[[:space:]]*"sync(/atomic)?"$' . |
    xargs -r -n 1 dirname | sort -u | xargs -r go list 2>/dev/null
}

# The tests of the program start it as processes of its own, which are built with the detector then too: a run of each
# kind is enough, of several ranks, stopped, resumed, under both MPIs.
programs=./cmd/pipetrain
raced='^(TestRunFolder|TestResume|TestInterrupted|TestStoppedUnderMPI|TestReplicasUnderMPI|TestAsynchronousRuns|TestRehearse)$'

part_race() {
  local packages
  mapfile -t packages < <(concurrent_packages | grep -vx "$(go list $programs)")
  [ ${#packages[@]} -gt 0 ] || { echo "no concurrent package found: the search in check.sh is broken"; return 1; }
  # -short: the long runs prove numbers, not the absence of races.
  CGO_ENABLED=1 go test -race -short -count=1 -timeout "$test_timeout" "${packages[@]}" &&
    CGO_ENABLED=1 go test -race -short -count=1 -timeout "$test_timeout" -run "$raced" $programs
}

# What needs no other process: neither launchers nor a cluster, and none of the long runs.
part_unit() {
  local packages
  mapfile -t packages < <(go list ./... | grep -vx "$(go list $programs)")
  go test -short -timeout "$test_timeout" "${packages[@]}"
}

part_test() { go test -count=1 -timeout "$test_timeout" ./...; }

if ! command -v go >/dev/null; then
  echo "check: go is not in PATH; get Go 1.26 or later from https://go.dev/dl and add its bin folder to PATH" >&2
  exit 1
fi

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=("${all_parts[@]}")
failed=()
for part in "${parts[@]}"; do
  if ! declare -F "part_$part" >/dev/null; then
    echo "check: unknown part '$part'; known: ${all_parts[*]} unit" >&2
    exit 2
  fi
  if [[ " ${PIPETRAIN_SKIP:-} " == *" $part "* ]]; then
    echo "=== $part: left out by PIPETRAIN_SKIP"
    continue
  fi
  # Earlier failures are named here again: the log's end belongs to go test.
  echo "=== $part${failed[*]:+ (failed so far: ${failed[*]})}"
  start=$SECONDS
  # A background job rather than a condition: bash ignores set -e inside conditions.
  (set -e; "part_$part") </dev/null &
  if wait $!; then
    [ "$part" = test ] || [ "$part" = unit ] || echo "=== $part: ok, $((SECONDS - start)) s"
  else
    failed+=("$part")
    [ "$part" = test ] || [ "$part" = unit ] || echo "=== $part: FAILED, $((SECONDS - start)) s"
  fi
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "check: failed: ${failed[*]}" >&2
  exit 1
fi
