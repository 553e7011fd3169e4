#!/usr/bin/env bash
# benches/races.sh: the rings and the counters that the playing thread shares with the rest of the program, under
# ThreadSanitizer, and the rings under Miri in 200 schedules, with every stale read that the memory model allows it to choose.
# Needs the nightly toolchain (`rustup component add rust-src miri --toolchain nightly`).
#
# It runs the loop's own tests, 10,000 swaps, and the engine on the card that does not exist with orders from another thread.
# The rings themselves are rtrb's. Without the right to lock memory: the sanitizer's shadow of it
# is larger than any machine, and the engine locks what it has.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
CARGO_TARGET_DIR=${MIRI_TARGET_DIR:-target/miri} MIRIFLAGS="-Zmiri-many-seeds=0..200 -Zmiri-disable-isolation" \
  cargo +nightly miri test --locked -p quiet-engine --no-default-features --test rings
export RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target/races}
host=$(rustc -vV | sed -n 's/^host: //p')
runner=CARGO_TARGET_$(tr a-z- A-Z_ <<<"$host")_RUNNER
ulimit -l 64
[ "$(id -u)" != 0 ] || export "$runner"="setpriv --bounding-set=-ipc_lock,-sys_nice --inh-caps=-all"
# Unoptimised: what is looked for is in the order of the accesses.
cargo +nightly test --locked -Zbuild-std --target "$host" \
  --config 'profile.dev.package.quiet-dsp.opt-level=0' --config 'profile.dev.debug="line-tables-only"' \
  -p quiet-rt -p quiet-engine --no-default-features --test board --test duplex --test allocation --test swap --test rings --test null "$@"
