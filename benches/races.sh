#!/usr/bin/env bash
# benches/races.sh: the rings and the counters that the playing thread shares with the rest of the program, under
# ThreadSanitizer. Needs the nightly toolchain with rust-src (`rustup component add rust-src --toolchain nightly`).
#
# It runs the loop's own tests, 10,000 swaps, and the engine on the card that does not exist with orders from another thread.
# The rings themselves are rtrb's, whose makers check them exhaustively. Without the right to lock memory: the sanitizer's shadow of it
# is larger than any machine, and the engine locks what it has.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
export RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target/races}
host=$(rustc -vV | sed -n 's/^host: //p')
runner=CARGO_TARGET_$(tr a-z- A-Z_ <<<"$host")_RUNNER
ulimit -l 64
[ "$(id -u)" != 0 ] || export "$runner"="setpriv --bounding-set=-ipc_lock,-sys_nice --inh-caps=-all"
# Unoptimised: what is looked for is in the order of the accesses.
cargo +nightly test --locked -Zbuild-std --target "$host" \
  --config 'profile.dev.package.quiet-dsp.opt-level=0' --config 'profile.dev.debug="line-tables-only"' \
  -p quiet-rt -p quiet-engine --no-default-features --test board --test duplex --test allocation --test swap --test null "$@"
