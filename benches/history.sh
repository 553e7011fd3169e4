#!/usr/bin/env bash
# benches/history.sh [RUNS]: how long `runs` takes with so many runs in the store; minima of 15 passes. 40 kernels, 4 settings.
set -euo pipefail
runs=${1:-10000}
program=${QUIETCORES:-target/release/quietcores}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$program" import fixtures/results/latmus-vim3l-hectic-200us.txt -o "$dir/one.json" 2> /dev/null
python3 - "$dir" "$runs" <<'PY'
import json, os, sys
dir, runs = sys.argv[1], int(sys.argv[2])
os.makedirs(f"{dir}/store/runs")
one = json.load(open(f"{dir}/one.json"))
for at in range(runs):
    day, second = divmod(at * 240, 86400)
    stamp = f"2026-{1 + day // 28:02}-{1 + day % 28:02}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000Z"
    one["id"] = stamp[:19].replace("-", "").replace(":", "") + f"Z-wakeup-{at:05}"
    one["started"] = stamp
    one["host"]["release"] = f"6.{at * 40 // runs}.0"
    one["before"]["files"] = {"proc/sys/kernel/sched_rt_runtime_us": str(950000 + at * 160 // runs % 4)}
    json.dump(one, open(f"{dir}/store/runs/{one['id']}.json", "w"))
PY
once() { local from to; from=$(date +%s%N); "$@" > /dev/null || [ $? -eq 1 ]; to=$(date +%s%N); echo $(((to - from) / 1000)); }
least() { for _ in $(seq 15); do once "$@"; done | sort -n | head -1; }
echo "# $(uname -srm), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1); $("$program" --version); $runs runs of $(stat -c %s "$dir"/store/runs/*00000.json) bytes"
echo "index made anew:        $(once "$program" runs --rebuild --store "$dir/store") us"
echo "runs (newest 20):       $(least "$program" runs --store "$dir/store") us"
echo "runs --all:             $(least "$program" runs --all --store "$dir/store") us"
echo "runs --trend:           $(least "$program" runs --trend --store "$dir/store") us"
echo "runs kernel=6.17* --all: $(least "$program" runs 'kernel=6.17*' --all --store "$dir/store") us"
