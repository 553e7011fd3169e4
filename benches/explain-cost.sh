#!/usr/bin/env bash
# benches/explain-cost.sh [CPU [LENGTH]]: what watching a CPU costs its wake-ups, at rest and under the stress `kernel`: p50 and p99 with the trace
# over without, 95 % interval over pairs of blocks of one run. Each takes LENGTH (5min). Root, `apt install stress-ng`.
set -euo pipefail
cpu=${1:-1} length=${2:-5min}
program=${QUIETCORES:-target/release/quietcores}
echo "# $(uname -srm), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1); $("$program" --version)"
for stress in "" kernel; do
  # At rest the host's quick changes are what there is to even out.
  [ -n "$stress" ] && block=500ms || block=100ms
  "$program" explain --cpu "$cpu" --cost --policy fifo --interval 200us --block "$block" --for "$length" ${stress:+--stress "$stress"}
done
