#!/bin/bash
# soak-mpi.sh [STARTS]: starts and ends worlds of 2 to 4 ranks, STARTS times
# (1000 unless told) under each mpirun that is installed, and fails on any crash,
# hang (60 s) or wrong sum. About 0.3 s a start on an idle machine.
set -euo pipefail
cd "$(dirname "$0")/.."
starts=${1:-1000}
if ! [[ $starts =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: $0 [STARTS], a positive number; got '$starts'" >&2
    exit 2
fi
command -v mpirun.openmpi >/dev/null || command -v mpirun.mpich >/dev/null || {
    echo "$0: neither mpirun.openmpi nor mpirun.mpich is there: apt-get install openmpi-bin mpich" >&2
    exit 2
}
PIPETRAIN_SOAK=$starts CGO_ENABLED=0 exec go test ./collectives/mpi -run '^TestSoak$' -count=1 -timeout 0 -v
