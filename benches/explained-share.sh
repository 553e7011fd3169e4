#!/usr/bin/env bash
# benches/explained-share.sh [CPU [TIMES [SECONDS [STRESS]]]]: how much of all time in gaps above 20 us is told by name or as the
# host's, under a stress, in so many runs. Prints each run and the least; root, `apt install stress-ng`.
set -euo pipefail
cpu=${1:-1} times=${2:-20} seconds=${3:-10} stress=${4:-kernel}
program=${QUIETCORES:-target/release/quietcores}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
echo "# $(uname -srm), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1); $("$program" --version)"
echo "# gap under fifo 90 on CPU $cpu, ${seconds} s, stress $stress, readings above 20 us"
for turn in $(seq "$times"); do
  "$program" explain --cpu "$cpu" --policy fifo --for "${seconds}s" --threshold 20us --stress "$stress" --json >"$dir/$turn.json" 2>"$dir/error" ||
    { cat "$dir/error" >&2; exit 2; }
  python3 - "$turn" "$dir/$turn.json" <<'PY'
import json, sys
it = json.load(open(sys.argv[2]))
cpu = it["cpus"][0]
whole = max(cpu["total"], 1)
left = cpu["readings"] - cpu["explained"]
top = ", ".join(f"{100 * s['total'] / whole:.0f} % {s['title']}" for s in cpu["causes"][:3])
print(f"run {sys.argv[1]:>3}: {cpu['readings']} gaps, {cpu['total'] / 1e6:.1f} ms, told {100 * (1 - cpu['unexplained'] / whole):.2f} % "
      f"(named {100 * cpu['named'] / whole:.1f}, host {100 * cpu['host'] / whole:.1f}); no room for {left}; {top}")
PY
done
python3 - "$dir" <<'PY'
import glob, json, sys
shares = []
for path in glob.glob(sys.argv[1] + "/*.json"):
    cpu = json.load(open(path))["cpus"][0]
    shares.append(100 * (1 - cpu["unexplained"] / max(cpu["total"], 1)))
shares.sort()
print(f"told at least {shares[0]:.2f} %, median {shares[len(shares) // 2]:.2f} %, in {sum(s >= 95 for s in shares)} of {len(shares)} runs 95 % or more")
PY
