#!/usr/bin/env bash
# benches/same-setting.sh [TIMES] [PAIRS] [LENGTH]: campaigns of two settings that are the same, and how many have a verdict.
# Nothing differs, the order in each round is drawn by lot, and the judge is that of `prove`: every "better" and every "worse" is false. Root.
set -euo pipefail
times=${1:-40} pairs=${2:-8} length=${3:-300ms}
program=$(realpath "${QUIETCORES:-target/release/quietcores}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat > "$dir/same.toml" <<CAMPAIGN
[campaign]
name = "same"
cpus = "1"
rounds = $pairs
for = "$length"
[[probe]]
kind = "wakeup"
interval = "200us"
[[setting]]
name = "a"
[[setting]]
name = "b"
CAMPAIGN
echo "# $(uname -srm), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)"
echo "# $times campaigns of $pairs rounds of $length, two settings that are the same, order drawn by lot"
echo "# campaign verdict a-first p99-ratio p99 beyond p99.9 missed p50"
for one in $(seq "$times"); do
  ${LOCK:+flock "$LOCK"} "$program" campaign "$dir/same.toml" --store "$dir/store" --json > "$dir/it.json" 2> "$dir/said" ||
    { cat "$dir/said" >&2; exit 2; }
  python3 - "$one" "$dir/it.json" <<'PY'
import json, sys
it = json.load(open(sys.argv[2]))["compared"][0]["compared"]
assert it["drawn"] and it["method"] == "pairs"
of = {f["id"]: f for f in it["figures"]}
word = lambda name: of[name]["verdict"].replace(" ", "-") if name in of else "-"
names = ["wakeup.p99", "wakeup.beyond", "wakeup.p99.9", "wakeup.missed", "wakeup.p50"]
first = it.get("order", {}).get("base_first", "-")
print(sys.argv[1], it["verdict"].replace(" ", "-"), first, of["wakeup.p99"]["ratio"]["value"], *map(word, names))
PY
  rm -rf "$dir/store"
done | tee "$dir/table"
awk '{ all++; n[$2]++; for (i = 5; i <= NF; i++) if ($i == "better" || $i == "worse") f[$i]++ }
  END { printf "# of %d: better %d, worse %d, not shown %d; single figures: better %d, worse %d\n",
    all, n["better"], n["worse"], n["not-shown"], f["better"], f["worse"] }' "$dir/table"
