#!/usr/bin/env bash
# The plugin in two hosts for ten minutes of sound each, while the machine is stressed: `benches/hosts.sh [STRESS]`.
# CLAP: the harness on clack-host, which keeps time as a DAW does, block by block. LV2: jalv on a JACK server without a
# card. Each sample that is heard is held against `render`, bit by bit. Keeps benches/runs/DATE-hosts.txt. Needs jackd2,
# jalv, gcc and stress-ng, and the program: QUIETCORES=..., else target/debug/quietcores.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
stress=${1:-kernel}
out=benches/runs/$(date +%F)-hosts.txt
cargo test --quiet -p quiet-plugin --test clap --test jalv --no-run
"${QUIETCORES:-target/debug/quietcores}" stress "$stress" --for 30min >/dev/null 2>&1 &
stressed=$!
trap 'kill "$stressed" 2>/dev/null || true' EXIT
sleep 2
kill -0 "$stressed" # It runs, or this ends.
heard() {
    QUIETCORES_LONG=1 cargo test --quiet -p quiet-plugin --test "$1" "$2" -- --exact --nocapture 2>&1 |
        sed -n "s/^\(.*difference.*\)/$1: \1/p; s/^test result: /$1: /p"
}
{
    echo "# benches/hosts.sh $stress"
    grep -m1 '^model name' /proc/cpuinfo || true
    grep -m1 '^model\s' /proc/cpuinfo || true
    uname -srm
    uptime
    heard clap a_host_that_keeps_time_hears_what_render_writes &
    clap=$!
    heard jalv a_saved_state_sounds_as_render_and_a_preset_while_it_plays
    wait "$clap"
    uptime
    kill -0 "$stressed" && echo "the stress ran to the end"
} | tee "$out"
