#!/usr/bin/env bash
# Writes the text the demo trains on: source files of the Go distribution that
# builds this project, in a fixed order, so the same Go gives the same bytes.
#
#   scripts/go-source.sh OUT
set -euo pipefail

out=${1:?usage: go-source.sh OUT}
root=$(go env GOROOT)
src=$root/src
# Packages of hand-written code; crypto and unicode are mostly tables and would teach digits.
packages=(bufio bytes context encoding errors fmt go io log net os path reflect regexp sort strconv strings sync testing text)

for p in "${packages[@]}"; do
  if [ ! -d "$src/$p" ]; then
    echo "go-source: $src/$p is not there, so there is no text to train on. On Debian: apt-get install golang-src; or train on a file of yours: bin/pipetrain jobs/examples/demo.toml --set data.path=FILE" >&2
    exit 1
  fi
done

mkdir -p "$(dirname "$out")"
tmp=$out.tmp.$$
trap 'rm -f "$tmp"' EXIT
# z*.go are generated tables of system constants.
(cd "$src" && find "${packages[@]}" -name '*.go' ! -name '*_test.go' ! -name 'z*.go' ! -path '*/testdata/*' -print0 |
  LC_ALL=C sort -z | xargs -0 cat) >"$tmp"
# Complete or not at all: an interrupted run must not leave half a text that make takes for the whole.
mv "$tmp" "$out"
echo "go-source: $out, $(wc -c <"$out") bytes of $(go env GOVERSION)'s source"
