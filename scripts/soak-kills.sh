#!/bin/bash
# soak-kills.sh [KILLS]: kills one rank by SIGKILL at a random moment of training, KILLS times
# (20 unless told) under each launcher: the embedded one, both mpirun, srun of both wire-ups and
# batch jobs of both kinds on the test cluster. Fails unless every time the whole job is over at once,
# its exit record names the killed rank, no process and no shared memory is left on any node, and
# the newest checkpoint is whole. About 10 s a round of all of them.
set -euo pipefail
cd "$(dirname "$0")/.."
kills=${1:-20}
if ! [[ $kills =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: $0 [KILLS], a positive number; got '$kills'" >&2
    exit 2
fi
PIPETRAIN_KILLS=$kills CGO_ENABLED=0 exec go test ./cmd/pipetrain -run '^(TestKilledRank|TestSlurm/parts/kills)$' -count=1 -timeout 0 -v
