#!/usr/bin/env bash
# FIRs against their peers: `benches/fir.sh [CPU [PASSES]]` keeps the figures in benches/runs, with the machine
# beside them. Needs g++ and Debian's libzita-convolver-dev. QUIET_BENCH_FIR_PEERS=NAME=PROGRAM,... adds more.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
cpu=${1:-1} passes=${2:-15}
driver=$(mktemp -d)
trap 'rm -rf "$driver"' EXIT
g++ -O3 -o "$driver/zita" benches/peers/zita.cpp -lzita-convolver -lpthread
export QUIET_BENCH_FIR_PEERS=zita-convolver=$driver/zita${QUIET_BENCH_FIR_PEERS:+,$QUIET_BENCH_FIR_PEERS}
cargo bench --quiet -p quiet-dsp --bench fir --no-run
out=benches/runs/$(date +%F)-fir.txt
{
    echo "# taskset -c $cpu cargo bench -p quiet-dsp --bench fir -- $passes"
    grep -m1 '^model name' /proc/cpuinfo || true
    grep -m1 '^model\s' /proc/cpuinfo || true
    uname -srm
    uptime
    taskset -c "$cpu" cargo bench --quiet -p quiet-dsp --bench fir -- "$passes"
} | tee "$out"
