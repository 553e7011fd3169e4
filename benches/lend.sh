#!/usr/bin/env bash
# benches/lend.sh [PAIRS [RETURNS]]: what a loan gives and takes, as root on a machine that may be changed.
# 1. The same compilation without a shield and with a shield that is lent, in turn (PAIRS, 12), order by lot: medians and their ratio.
# 2. RETURNS (1000) times lent and taken back: how long taking back took (the program's own figure), against periods at 48 kHz.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
pairs=${1:-12} returns=${2:-1000}
program=${QUIETCORES:-$here/../target/release/quietcores}
[ "$(id -u)" = 0 ] || { echo "benches/lend.sh: root is needed" >&2; exit 2; }
work=$(mktemp -d)
state=$work/state
cpus=$(nproc)
last=$(sed 's/.*[,-]//' /sys/devices/system/cpu/online)
trap '"$program" revert --state "$state" >/dev/null 2>&1 || true; rm -rf "$work"' EXIT

# A source that keeps a compiler busy for some tenths of a second, and no disk.
{
  for n in $(seq 400); do
    echo "unsigned f$n(unsigned x) { unsigned y = x * ${n}u; for (unsigned i = 0; i < x; i++) y ^= (y << ($n % 13)) + i * y; return y; }"
  done
} >"$work/one.c"
compile() {
  local since until
  since=$(date +%s%N)
  seq $((cpus * 6)) | xargs -P "$cpus" -I{} cc -O2 -c "$work/one.c" -o "$work/{}.o"
  until=$(date +%s%N)
  echo $(((until - since) / 1000000))
}
up() { "$program" apply --cpus "$last" --yes --state "$state" >/dev/null 2>&1 || [ $? = 1 ]; }
down() { "$program" revert --state "$state" >/dev/null; }
lent() { "$program" lend --for 1h --state "$state" >/dev/null; }
free_run() { compile >>"$work/free"; }
lent_run() { up; lent; compile >>"$work/lent"; down; }
fenced_run() { up; compile >>"$work/fenced"; down; }
compile >/dev/null
for _ in $(seq "$pairs"); do
  if [ $((RANDOM % 2)) = 0 ]; then free_run; lent_run; else lent_run; free_run; fi
done
for _ in 1 2 3; do fenced_run; done
median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
echo "compilation, ms: no shield $(median "$work/free"), lent $(median "$work/lent"), shielded $(median "$work/fenced") ($pairs pairs; 3 shielded)"
paste "$work/lent" "$work/free" | awk '{ print $1 / $2 }' >"$work/ratios"
echo "lent against no shield, pair by pair: median $(median "$work/ratios"), $(sort -n "$work/ratios" | sed -n '1p;$p' | tr '\n' ' ')"

up
for _ in $(seq "$returns"); do
  lent
  "$program" lend --return --json --state "$state" | sed -n 's/.*"took": *\([0-9]*\).*/\1/p' >>"$work/took"
done
down
sort -n "$work/took" | awk '{ v[NR] = $1 / 1000 }
  END { printf "taken back, us: median %d, 99 %% %d, most %d (%d times)\n", v[int((NR + 1) / 2)], v[int(NR * 0.99 + 0.5)], v[NR], NR
    split("64 128 256 512 1024", frames, " ")
    for (at = 1; at <= 5; at++) { limit = frames[at] / 48000 * 1e6; n = 0; for (i = 1; i <= NR; i++) n += v[i] <= limit
      printf "before the next period of %d frames (%d us): %.1f %%\n", frames[at], limit, 100 * n / NR } }'
