#!/bin/bash
# How the cost of each verb grows with threads, processes, CPUs, IRQs, links, forks, events and runs: benches/growth.sh [PART...]
# Parts: machine (constructed machines: inspect, check, plan), threads (apply, status, revert), watch (a look; beside forks),
# events (explain), runs (runs, trends, compare).
# Prints a table with the fitted exponents; ends with 1 where one is above 1.1. What changes the machine needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked --quiet -p quietcores
echo "$(uname -sr), $(nproc) CPUs, $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2-); load $(cut -d' ' -f1-3 /proc/loadavg)"
exec python3 benches/growth.py target/release/quietcores "$@"
