#!/bin/bash
# Measures the probes against cyclictest and oslat and keeps the result in benches/runs.
# Usage: benches/peers.sh [CPU [PAIRS [SECONDS]]]   (as root; needs rt-tests)
set -euo pipefail
cd "$(dirname "$0")/.."
name="benches/runs/$(date -u +%Y-%m-%d)-peers"
PEERS_JSON="$PWD/$name.json" cargo bench --quiet -p quietcores --bench peers -- "$@" | tee "$name.txt"
