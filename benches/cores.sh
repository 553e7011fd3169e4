#!/usr/bin/env bash
# benches/cores.sh [SECONDS [ROUNDS]]: what a second CPU gains a strip: the part of a period that each block takes in the thread that plays, on
# one CPU and on two, in turn, on the card that does not exist. Kept in benches/runs (or at QUIET_OUT) with the machine beside it. A release
# build, two CPUs that are otherwise idle, the right to real-time priorities. The bits are compared first: a faster wrong sound is none.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
seconds=${1:-5} rounds=${2:-7} period=128
[ -n "${QUIETCORES:-}" ] || cargo build --quiet --release -p quietcores
program=${QUIETCORES:-target/release/quietcores}
out=${QUIET_OUT:-benches/runs/$(date +%F)-cores.txt}
kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT
amp() { printf 'kind = "amp"\nfile = "%s/fixtures/amps/%s.nam"\n' "$PWD" "$1"; }
{
  printf '[strip]\nchannels = 1\n'
  for _ in 1 2 3 4; do printf '[[stage]]\n'; amp BossWN-standard; done
} >"$kept/row.toml"
{
  printf '[strip]\nchannels = 1\n[[stage]]\nkind = "split"\n'
  for name in a b c d; do printf '[[stage.branch]]\nname = "%s"\n[[stage.branch.stage]]\n' $name; amp BossWN-standard; done
} >"$kept/fork.toml"
python3 - "$kept/in.wav" <<'PY'
import random, struct, sys
random.seed(7)
data = b"".join(struct.pack("<h", random.randrange(-8000, 8000)) for _ in range(48000))
open(sys.argv[1], "wb").write(b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 48000, 96000, 2, 16)
                              + b"data" + struct.pack("<I", len(data)) + data)
PY
for strip in row fork; do
  for cores in 1 2; do "$program" render "$kept/in.wav" "$kept/$cores.wav" "$kept/$strip.toml" --cores $cores --force >/dev/null; done
  cmp "$kept/1.wav" "$kept/2.wav" || { echo "benches/cores.sh: $strip: not the same bits" >&2; exit 1; }
done
for round in $(seq "$rounds"); do
  for strip in row fork; do
    for cores in 1 2; do
      "$program" play "$kept/$strip.toml" --host null --allow "$PWD/fixtures/amps" --period $period --mode never-sleep --cpu 0 --cores $cores --for "${seconds}s" --control none --force \
        --json >"$kept/$strip.$cores.$round.json" 2>"$kept/$strip.$cores.said" || [ $? = 1 ] # 1: it had xruns
    done
  done
done
{
  echo "# benches/cores.sh $seconds $rounds: a strip of four WaveNet standard amps, in a row and side by side, period $period at 48 kHz, never-sleep, not"
  echo "# shielded. Rendered first: the same bits on one CPU and on two. Medians of the rounds, of the part of a period that a block takes in the"
  echo "# thread that plays. $(uname -srm), $(nproc) CPUs, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | sed -n 1p)"
  python3 - "$kept" "$rounds" <<'PY'
import json, statistics, sys
kept, rounds = sys.argv[1], int(sys.argv[2])
print(f'{"strip":<6}{"CPUs":>5}{"mean":>8}{"p99":>6}{"xruns":>7}{"of one":>9}')
for strip in ("row", "fork"):
    one = None
    for cores in (1, 2):
        runs = [json.load(open(f"{kept}/{strip}.{cores}.{n}.json")) for n in range(1, rounds + 1)]
        mean = [r["status"]["load"]["mean"] for r in runs]
        one = one or mean
        ratio = statistics.median(a / b for a, b in zip(mean, one))
        p99 = statistics.median(r["status"]["load"]["p99"] for r in runs)
        print(f'{strip:<6}{cores:>5}{statistics.median(mean):>7.1f}%{p99:>5}%{sum(r["status"]["xruns"] for r in runs):>7}{ratio:>9.3f}')
PY
  for strip in row fork; do sed -n "s/.*on two CPUs/$strip: on two CPUs/p" "$kept/$strip.2.said"; done
} | tee "$out"
