#!/usr/bin/env bash
# benches/engine.sh [CPU [SECONDS [ROUNDS]]]: the engine on the card that does not exist, kept in benches/runs (or at QUIET_OUT)
# with the machine beside it. Root, a release build, and an otherwise idle machine; stress-ng and valgrind.
#
# 1. Lost periods at 16 frames x 2 and 96 kHz, and at smaller buffers: asleep and never, shared and shielded, under the `kernel` stress
#    and without, all cells in turn, ROUNDS times; medians over the rounds and their ratios.
# 2. Who took the time: `explain` inside a shield, under the same stress.
# 3. The loop's own cost against plain loops: benches/loop-cost.sh.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
cpu=${1:-1} seconds=${2:-10} rounds=${3:-7}
[ -n "${QUIETCORES:-}" ] || cargo build --quiet --release -p quietcores
program=${QUIETCORES:-target/release/quietcores}
out=${QUIET_OUT:-benches/runs/$(date +%F)-engine}
kept=$(mktemp -d)
# A shield of this script's is taken down before the note of it goes.
trap '"$program" revert --state "$kept/state" > "$kept/said" 2>&1 || cat "$kept/said"; rm -rf "$kept"' EXIT

table() { # NAME ARGUMENT...: measures, and keeps the table as JSON
  local name=$1; shift
  "$program" measure buffers --host null --cpu "$cpu" --modes sleep,never-sleep --shield --stress none,kernel \
    --for "${seconds}s" --rounds "$rounds" --store "$kept" --json "$@" > "$out-$name.json" 2> "$kept/said" || [ $? -eq 1 ] || { cat "$kept/said"; exit 2; }
}

medians() { # NAME
  python3 - "$out-$1.json" <<'PY'
import json, statistics, sys
table = json.load(open(sys.argv[1]))
per_minute = lambda trial: trial["missed"] / (trial["lasted"] / 60e9)
cells = {}
print(f'{"buffer":>8} {"load":>5} {"stress":<8}{"setting":<10}{"mode":<12}{"policy":<15}{"missed/min":>11} {"each round":<48} xruns  steal ms')
for cell in table["cells"]:
    of = [per_minute(t) for t in cell["trials"]]
    if not of:
        print("refused:", cell.get("refused"))
        continue
    key = (cell["period"], cell["buffer"], cell["stress"], cell["setting"], cell["mode"])
    cells[key] = of
    steal = sum(t["steal"] or 0 for t in cell["trials"]) / 1e6
    size = f'{cell["period"]} x {cell["buffer"] // cell["period"]}'
    each = " ".join(f"{x:.0f}" for x in of)
    print(f'{size:>8} {table["load"]:>5.0%} {cell["stress"]:<8}{cell["setting"]:<10}{cell["mode"]:<12}{cell["trials"][0]["policy"]:<15}'
          f'{statistics.median(of):>11.0f} {each:<48} {sum(t["xruns"] for t in cell["trials"]):>5} {steal:>9.0f}')
# Half a lost period in a round is what a round cannot tell from none.
half = 0.5 / (table["cells"][0]["trials"][0]["lasted"] / 60e9)
def ratio(a, b):
    pairs = [(x + half) / (y + half) for x, y in zip(cells[a], cells[b])]
    wins = sum(x < y for x, y in zip(cells[b], cells[a]))
    return f"x{statistics.median(pairs):.3g} (median of {len(pairs)} rounds; the second lost less in {wins})"
for period, buffer, stress in sorted({k[:3] for k in cells}):
    at = lambda setting, mode: (period, buffer, stress, setting, mode)
    if not all(at(s, m) in cells for s in ("shared", "shielded") for m in ("sleep", "never-sleep")):
        continue
    print(f"{period} x {buffer // period}, stress {stress}: lost periods of the first to the second, round by round")
    for name, a, b in [
        ("shared, sleep : shielded, never-sleep", at("shared", "sleep"), at("shielded", "never-sleep")),
        ("shared, never-sleep : shielded, never-sleep", at("shared", "never-sleep"), at("shielded", "never-sleep")),
        ("shared, sleep : shielded, sleep", at("shared", "sleep"), at("shielded", "sleep")),
        ("shielded, sleep : shielded, never-sleep", at("shielded", "sleep"), at("shielded", "never-sleep")),
    ]:
        print(f"  {name:<46} {ratio(a, b)}")
PY
}

{
  echo "# benches/engine.sh $cpu $seconds $rounds"
  grep -m1 '^model name' /proc/cpuinfo || true
  echo "$(uname -srm), $(nproc) CPUs, up $(cut -d. -f1 /proc/uptime) s, load $(cut -d' ' -f1-3 /proc/loadavg)"
  echo "sched_rt_runtime_us $(cat /proc/sys/kernel/sched_rt_runtime_us); null host, CPU $cpu, $seconds s a cell and round"
  echo
  echo "## 96 kHz, work of 10 % of a period"
  table light --rate 96000 --periods 16 --counts 2 --dsp-load 10%; medians light
  echo
  echo "## 96 kHz, work of 80 % of a period, as latencytest had it"
  table heavy --rate 96000 --periods 16 --counts 2 --dsp-load 80%; medians heavy
  echo
  echo "## 192 kHz, 4 frames x 2: 21 us a period, work of 30 %"
  table small --rate 192000 --periods 4 --counts 2 --dsp-load 30%; medians small
  echo
  echo "## Who took the time from a spinning thread in a shield, under the kernel stress"
  "$program" apply --cpus "$cpu" --never-sleep --yes --state "$kept/state" > "$kept/said" 2>&1 ||
    [ $? -eq 1 ] || { cat "$kept/said"; exit 2; }
  "$program" explain --cpus "$cpu" --for 10s --stress kernel --state "$kept/state" 2>&1 | head -60 || true
  "$program" revert --state "$kept/state" > "$kept/said" 2>&1
  echo
  echo "## The loop's own cost"
  benches/loop-cost.sh --time
} | tee "$out.txt"
