#!/usr/bin/env python3
"""What watching costs: p99 of `measure wakeup` with --explain against without, in turn.

    benches/explain-cost.py target/release/quietcores CPU PAIRS [stress]

Prints each pair, the median ratio and its 95 % bootstrap interval over pairs.
"""
import json, random, statistics, subprocess, sys, tempfile

program, cpu, pairs = sys.argv[1], sys.argv[2], int(sys.argv[3])
stress = ["--stress", sys.argv[4]] if len(sys.argv) > 4 else []


def percentile(explain, q):
    with tempfile.TemporaryDirectory() as store:
        command = [program, "measure", "wakeup", "--cpus", cpu, "--policy", "fifo", "--interval", "200us",
                   "--for", "2s", "--bucket", "50ns", "--buckets", "400000", "--json", "--store", store]
        out = subprocess.run(command + stress + (["--explain"] if explain else []),
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    run = json.loads(out.stdout)
    all = run["threads"][0]["corrected"]
    left = all["count"] * (1 - q)
    linear = all["linear"]
    left -= linear["over"]
    for bucket, count in sorted(linear["counts"], reverse=True):
        left -= count
        if left <= 0:
            return bucket * 50 / 1000, run
    return 0.0, run


ratios = []
for turn in range(pairs):
    first = turn % 2 == 1
    values = {}
    for explain in (first, not first):
        values[explain], run = percentile(explain, 0.99)
        if explain:
            seen = run["explained"]["source"]
    ratios.append(values[True] / values[False])
    print(f"pair {turn + 1:2}: p99 {values[False]:9.2f} us without, {values[True]:9.2f} us with ({seen}), x{ratios[-1]:.3f}", flush=True)
chance = random.Random(1)
medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(10000))
print(f"median x{statistics.median(ratios):.3f}, 95 % interval x{medians[250]:.3f} to x{medians[9749]:.3f}, {pairs} pairs")
