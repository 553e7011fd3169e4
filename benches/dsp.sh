#!/usr/bin/env bash
# All figures of quiet-dsp in one go: `benches/dsp.sh [CPU [ROUNDS]]`, on a machine that does nothing else. Keeps
# benches/runs/DATE-amps.{txt,json} and DATE-fir.txt, the machine beside them. QUIET_BENCH_PEERS=NAME=PROGRAM,...
# has other engines' drivers run in turn with the amps (benches/DIARY.md says how one is called).
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
cpu=${1:-1} rounds=${2:-3}
out=benches/runs/$(date +%F)-amps
export QUIET_BENCH_ROUNDS=$rounds QUIET_BENCH_PASSES=${QUIET_BENCH_PASSES:-60} QUIET_BENCH_JSON=$PWD/$out.json
cargo bench --quiet -p quiet-dsp --bench amps --bench fir --no-run
{
    echo "# benches/dsp.sh $cpu $rounds"
    grep -m1 '^model name' /proc/cpuinfo || true
    grep -m1 '^model\s' /proc/cpuinfo || true
    uname -srm
    uptime
    taskset -c "$cpu" cargo bench --quiet -p quiet-dsp --bench amps
    uptime
} | tee "$out.txt"
if echo '#include <zita-convolver.h>' | g++ -fsyntax-only -x c++ - 2>/dev/null; then
    benches/fir.sh "$cpu"
else
    echo "no libzita-convolver-dev here: FIRs without it" >&2
    out=benches/runs/$(date +%F)-fir.txt
    {
        grep -m1 '^model name' /proc/cpuinfo || true
        uname -srm
        uptime
        taskset -c "$cpu" cargo bench --quiet -p quiet-dsp --bench fir -- 15
    } | tee "$out"
fi
