#!/usr/bin/env bash
# benches/tune.sh [TIMES [LENGTH]]: what tune says on this machine where it is known what is so. TIMES tunes (20) of LENGTH (25s) each:
#   no-op  a file is tried beside the plan's steps that does nothing for latency (fs.lease-break-time): nothing may be shown of it
#   hog    a thread under FIFO 95 computes 2 ms of every 5 on the CPU that is to be shielded: exactly one step (partition) takes it away,
#          and has to be named first as helping; of the no-op nothing may be shown
#   thief  somebody writes the tried file back 100 times a second: read back, it has to be found out, and be void
# Three steps of the plan are left out, so that a tune is short. Prints a line a tune; ends with 1 where it was otherwise. ONLY names one of the three. Needs root and python3. The machine is shared
# with the tests by their lock, tune by tune.
set -euo pipefail
times=${1:-20} length=${2:-25s}
here=$(dirname "$(readlink -f "$0")")
program=${QUIETCORES:-$here/../target/debug/quietcores}
cpu=${CPU:-$(($(nproc) - 1))}
work=$(mktemp -d)
file=/proc/sys/fs/lease-break-time
old=$(cat $file)
planted=
clear() { [ -z "$planted" ] || { kill "$planted" 2>/dev/null || true; wait "$planted" 2>/dev/null || true; }; planted=; }
trap 'clear; rm -rf "$work"' EXIT
"$program" --version
uname -srm
grep -m1 "model name" /proc/cpuinfo || true
echo "load before: $(cat /proc/loadavg)"
hog() {
  python3 - "$cpu" 9>&- <<'PY' &
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(95))
while True:
    end = time.monotonic() + 2e-3
    while time.monotonic() < end:
        pass
    time.sleep(3e-3)
PY
  planted=$!
}
thief() {
  python3 - "$file" "$old" 9>&- <<'PY' &
import sys, time
while True:
    with open(sys.argv[1], "r+") as file:
        if file.read().strip() != sys.argv[2]:
            file.seek(0)
            file.write(sys.argv[2])
    time.sleep(0.01)
PY
  planted=$!
}
# What a tune has to have said, and what it said, in a line.
cat >"$work/look.py" <<'PY'
import json, sys
what, it = sys.argv[1], json.load(open(sys.argv[2]))
steps = it["steps"]
top = steps[0]
noop = next(s for s in steps if s["factor"]["name"] == "lease-break-time")
good = {
    "no-op": noop["says"] == "not shown",
    "hog": top["factor"]["name"] == "partition" and top["says"] == "helps" and noop["says"] == "not shown",
    "thief": noop["says"] == "void" and any(f["id"] == "tune.void" and "lease-break-time" in f["title"] for f in it["findings"]),
}[what]
shown = [s["factor"]["name"] + " " + s["says"] for s in steps if s["says"] not in ("not shown", "void")]
r = top["effects"][0]["ratio"]
print(int(good), f"first {top['factor']['name']} {top['says']} x{r['value']:.3f} [{r['low']:.3f}, {r['high']:.3f}];",
      f"planted no-op {noop['says']}, p {min(e['p_value'] for e in noop['effects']):.2f}, not in force in {noop['void']} blocks;",
      f"shown: {', '.join(shown) or 'none'}; pairs {it['design']['pairs']}; back {it['restored']['exact']}")
PY
bad=0
for what in ${ONLY:-no-op hog thief}; do
  good=0
  for ((at = 1; at <= times; at++)); do
    # The tests' own. Another user's file is only opened: in a sticky folder the kernel refuses to make it anew.
    [ -e /tmp/quietcores-machine.lock ] || (umask 0 && : >>/tmp/quietcores-machine.lock)
    exec 9</tmp/quietcores-machine.lock
    flock 9
    began=$SECONDS status=0
    [ "$what" = no-op ] || "$what"
    # It is what it will be before the machine is looked at.
    [ "$what" != hog ] || until [ "$(ps -o cls= -p "$planted" | tr -d ' ')" = FF ]; do sleep 0.05; done
    sleep 0.5
    # The lock is not for the program to hand on to what it starts.
    "$program" tune --cpus "$cpu" --for "$length" --block 100ms --stress none --keep-off interrupts,new_interrupts,kernel_threads --seed "$at" --try $file=$((old + 1)) \
      --state "$work/state" --store "$work/store" --json >"$work/one.json" 2>"$work/one.err" 9>&- || status=$?
    clear
    exec 9>&-
    [ $status != 2 ] || { cat "$work/one.err"; exit 2; }
    said=$(python3 "$work/look.py" "$what" "$work/one.json")
    good=$((good + ${said%% *}))
    echo "$what $at: ${said#* }; $((SECONDS - began)) s"
  done
  echo "$what: as it has to be in $good of $times"
  [ $good = "$times" ] || bad=1
done
echo "load after: $(cat /proc/loadavg)"
exit $bad
