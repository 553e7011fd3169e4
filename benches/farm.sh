#!/usr/bin/env bash
# benches/farm.sh [DAYS [MACHINES...]]: simulated machines' five-minute histograms into a collector: ingest rate, size, how long questions
# take, and how all of it grows. The histograms are a run of this program, made here, drawn anew for each five minutes.
# 1,000 machines x 90 days are 26 million records: an hour or so, and some GB (those of each record are kept for RAW_DAYS, 14).
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
days=${1:-90}
shift || true
[ $# -gt 0 ] || set -- 10 100 1000
cargo build --quiet --release --locked -p quietcores
cargo build --quiet --release --locked -p quiet-farm --example simulate
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/farm.XXXXXX")
trap 'rm -rf "$dir"' EXIT
target/release/quietcores measure wakeup --interval 1ms --for 20s --policy other --priority 0 --store "$dir/store" >&2
lscpu | sed -n 's/^Model name: *//p'
for machines; do
  target/release/examples/simulate "$machines" "$days" "$dir/$machines.sqlite" "${RAW_DAYS:-14}" <"$(ls "$dir"/store/runs/*.json)"
  rm -f "$dir/$machines.sqlite"*
done
