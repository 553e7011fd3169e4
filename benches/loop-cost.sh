#!/usr/bin/env bash
# benches/loop-cost.sh: what the engine's loop costs in instructions, counted by callgrind: a look that finds nothing, and a period
# of stereo S32. No figure of it depends on what else the machine does. Needs valgrind.
#
#   copy     the seed's loop: look, and copy a period from ring to ring as it is
#   convert  the same with samples as an engine needs them (planar floats, and back, rounded and cut off at full scale), written
#            down plainly
#   kernels  the same by the engine's own conversion, and nothing else of it
#   ours     the engine: conversion, the player and its rings with a wire as strip, times, levels of both channels in and out, what
#            is not finite, counters
#
# With `--time` also ns a period, the least of 15 runs in turn: for a quiet machine.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
cargo bench --quiet -p quiet-engine --bench duplex --no-run
loop=$(ls -t target/release/deps/duplex-* | grep -v '\.d$' | head -1)
kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT

instructions() { # KIND PERIODS EMPTY FRAMES
  valgrind --tool=callgrind --callgrind-out-file="$kept/callgrind" "$loop" "$@" 2>&1 >"$kept/ns" | sed -n 's/.*Collected : //p'
}

for frames in 16 64; do
  for kind in copy convert kernels ours; do
    # Two lengths each: what is done once falls out.
    a=$(instructions $kind 2000 0 $frames) b=$(instructions $kind 4000 0 $frames) c=$(instructions $kind 2000 100 $frames)
    awk -v kind=$kind -v frames=$frames -v a="$a" -v b="$b" -v c="$c" \
      'BEGIN { printf "%s %s %.2f %.1f\n", kind, frames, (c - a) / 2000 / 100, (b - a) / 2000 }'
  done
done | awk '{ look[$1, $2] = $3; period[$1, $2] = $4 }
  END { for (f = 16; f <= 64; f += 48) {
    c = period["convert", f]
    printf "%d frames: a look: copy %.1f, ours %.1f (x%.2f); a period: copy %.0f, convert %.0f, kernels %.0f, ours %.0f (x%.2f of convert, x%.1f of copy)\n", f,
      look["copy", f], look["ours", f], look["ours", f] / look["copy", f], period["copy", f], c, period["kernels", f], period["ours", f],
      period["ours", f] / c, period["ours", f] / period["copy", f] } }'

if [ "${1:-}" = --time ]; then
  for frames in 16 64; do
    for turn in $(seq 15); do
      for kind in copy convert kernels ours; do echo "$kind $("$loop" $kind 200000 0 $frames)"; done
    done | awk -v frames=$frames '!($1 in least) || $2 < least[$1] { least[$1] = $2 }
      END { printf "%d frames: ns a period: copy %s, convert %s, kernels %s, ours %s (x%.2f of convert)\n", frames,
        least["copy"], least["convert"], least["kernels"], least["ours"], least["ours"] / least["convert"] }'
  done
fi
