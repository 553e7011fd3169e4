#!/usr/bin/env bash
# benches/tune.sh [TIMES [LENGTH]]: what tune says on this machine where it is known what is so. A thread under FIFO 95 computes 300 us
# of every ms on the CPU that is to be shielded: exactly one step (partition) takes it away. Beside the plan's steps one is tried that
# does nothing for latency (fs.lease-break-time). In TIMES tunes (20) of LENGTH (45s) the first has to be named first as helping, of the
# second nothing may be shown. Prints a line a tune; ends with 1 where it was otherwise. Needs root and python3.
set -euo pipefail
times=${1:-20} length=${2:-45s}
here=$(dirname "$(readlink -f "$0")")
program=${QUIETCORES:-$here/../target/debug/quietcores}
cpu=${CPU:-$(($(nproc) - 1))}
work=$(mktemp -d)
hog=
trap '[ -z "$hog" ] || kill "$hog" 2>/dev/null || true; rm -rf "$work"' EXIT
"$program" --version
uname -srm
grep -m1 "model name" /proc/cpuinfo || true
echo "load before: $(cat /proc/loadavg)"
python3 - "$cpu" <<'PY' &
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(95))
while True:
    end = time.monotonic() + 300e-6
    while time.monotonic() < end:
        pass
    time.sleep(700e-6)
PY
hog=$!
sleep 1
old=$(cat /proc/sys/fs/lease-break-time)
first=0 silent=0
for ((at = 1; at <= times; at++)); do
  began=$SECONDS
  status=0
  "$program" tune --cpus "$cpu" --for "$length" --block 200ms --stress none --seed "$at" --try /proc/sys/fs/lease-break-time=$((old + 1)) \
    --state "$work/state" --store "$work/store" --json >"$work/$at.json" 2>"$work/$at.err" || status=$?
  [ $status != 2 ] || { cat "$work/$at.err"; exit 2; }
  said=$(python3 - "$work/$at.json" <<'PY'
import json, sys
it = json.load(open(sys.argv[1]))
steps = it["steps"]
top = steps[0]
noop = next(s for s in steps if s["factor"]["name"] == "lease-break-time")
shown = [s["factor"]["name"] + " " + s["says"] for s in steps if s["says"] != "not shown"]
r = top["effects"][0]["ratio"]
found = top["factor"]["name"] == "partition" and top["says"] == "helps"
print(int(found), int(noop["says"] == "not shown"),
      f"first {top['factor']['name']} {top['says']} x{r['value']:.3f} [{r['low']:.3f}, {r['high']:.3f}]; no-op {noop['says']} p {min(e['p_value'] for e in noop['effects']):.2f};",
      f"shown: {', '.join(shown) or 'none'}; smallest: {' + '.join((it.get('smallest') or {}).get('steps', [])) or '-'} {(it.get('smallest') or {}).get('says', '-')};",
      f"pairs {it['design']['pairs']}; back {it['restored']['exact']}")
PY
)
  read -r found quiet rest <<<"$said"
  first=$((first + found)) silent=$((silent + quiet))
  echo "$at: $rest; $((SECONDS - began)) s"
done
echo "the hog's step first and helping: $first of $times; the step that does nothing not shown: $silent of $times"
echo "load after: $(cat /proc/loadavg)"
[ "$first" = "$times" ] && [ "$silent" = "$times" ]
