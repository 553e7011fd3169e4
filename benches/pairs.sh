#!/usr/bin/env bash
# benches/pairs.sh [COMPARISONS] [PAIRS] [SECONDS]: compares a setting with itself, over and over, and counts the verdicts.
# Nothing differs between the two sides: every "better" and every "worse" is false. Root, and an otherwise idle machine.
set -euo pipefail
comparisons=${1:-40} pairs=${2:-6} seconds=${3:-0.5}
program=${QUIETCORES:-target/release/quietcores}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
one() { # SIDE
  "$program" measure wakeup --cpus 1 --policy fifo --priority 90 --interval 200us --for "${seconds}s" --label "$1" \
    --store "$dir/$comparison" > /dev/null 2>&1
}
echo "# $(uname -srm), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)"
echo "# $comparisons comparisons of $pairs runs of ${seconds} s a side, in turn (ABBA): quietcores compare label=a label=b"
echo "# comparison verdict p99-ratio p99-verdict beyond-verdict p99.9-verdict missed-verdict p50-verdict"
for comparison in $(seq "$comparisons"); do
  for pair in $(seq "$pairs"); do
    if [ $((pair % 2)) -eq 1 ]; then one a; one b; else one b; one a; fi
  done
  "$program" compare label=a label=b --store "$dir/$comparison" --json > "$dir/verdict.json" || [ $? -eq 1 ]
  python3 - "$comparison" "$dir/verdict.json" <<'PY'
import json, sys
it = json.load(open(sys.argv[2]))
of = {f["id"]: f for f in it["figures"]}
word = lambda name: of[name]["verdict"].replace(" ", "-") if name in of else "-"
names = ["wakeup.p99", "wakeup.beyond", "wakeup.p99.9", "wakeup.missed", "wakeup.p50"]
print(sys.argv[1], it["verdict"].replace(" ", "-"), of["wakeup.p99"]["ratio"]["value"], *map(word, names))
PY
  rm -rf "${dir:?}/$comparison"
done | tee "$dir/table"
awk '{ all++; n[$2]++; for (i = 4; i <= NF; i++) if ($i == "better" || $i == "worse") f[$i]++ }
  END { printf "# of %d: better %d, worse %d, not shown %d; single figures: better %d, worse %d\n",
    all, n["better"], n["worse"], n["not-shown"], f["better"], f["worse"] }' "$dir/table"
