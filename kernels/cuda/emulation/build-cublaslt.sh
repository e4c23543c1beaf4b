#!/usr/bin/env bash
# Compiles the stand-in for cublasLt.
#
#   build-cublaslt.sh FOLDER    FOLDER/libcublasLt.so.12
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?build-cublaslt.sh FOLDER}
command -v g++ >/dev/null || { echo "build-cublaslt.sh: g++ is not there: apt-get install g++" >&2; exit 1; }
mkdir -p "$out"
g++ -std=c++17 -O3 -g1 -fPIC -fvisibility=hidden -Wall -Wextra -shared -Wl,-soname,libcublasLt.so.12 -o "$out/libcublasLt.so.12" \
  "$here"/cublaslt/*.cc -ldl
