#!/usr/bin/env python3
"""against.py OLD NEW [ROUNDS]: how long two builds of quietcores take for what people call often, in turn, order by lot: `inspect`, `apply`,
`status`, `revert` (ms, of the whole program), and a turn of the gap probe (ns). Medians, and the median of NEW / OLD over rounds. Root, on a
machine that may be changed, with nothing else on it."""
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

WORDS = ["inspect", "apply", "status", "revert", "gap turn"]


def once(program, state, cpu):
    def call(*words):
        began = time.monotonic()
        done = subprocess.run([program, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        took = (time.monotonic() - began) * 1e3
        if done.returncode not in (0, 1):
            sys.exit(f"{program} {' '.join(words)}: {done.stderr}")
        return took, done.stdout

    took = {"inspect": call("inspect")[0]}
    took["apply"] = call("apply", "--cpus", cpu, "--yes", "--state", state)[0]
    try:
        took["status"] = statistics.median(call("status", "--state", state)[0] for _ in range(5))
        run = json.loads(call("measure", "gap", "--cpus", cpu, "--for", "2s", "--state", state, "--store", state, "--json")[1])
    finally:
        took["revert"] = call("revert", "--state", state)[0]
    took["gap turn"] = turn(run)
    return took


def turn(run):
    """ns of one turn of the probe's loop: each is a reading; the time of readings from 1 us on was taken by somebody else."""
    readings = run["threads"][0]["readings"]["buckets"]
    taken = sum(lower * count for lower, count in readings if lower >= 1000)
    return (run["lasted"] - taken) / run["threads"][0]["obtained"]


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    builds, rounds = {"old": sys.argv[1], "new": sys.argv[2]}, int(sys.argv[3]) if len(sys.argv) > 3 else 9
    cpu = pathlib.Path("/sys/devices/system/cpu/online").read_text().strip().replace("-", ",").split(",")[-1]
    took = {name: [] for name in builds}
    with tempfile.TemporaryDirectory() as state:
        for _ in range(rounds):
            for name in random.sample(list(builds), 2):
                took[name].append(once(builds[name], state, cpu))
    print(f"{rounds} rounds in turn, medians; ms, gap turn in ns")
    print(f"{'':10}{'old':>9}{'new':>9}{'new/old':>9}")
    for word in WORDS:
        old, new = ([one[word] for one in took[name]] for name in builds)
        ratio = statistics.median(b / a for a, b in zip(old, new))
        print(f"{word:10}{statistics.median(old):9.2f}{statistics.median(new):9.2f}{ratio:9.3f}")


if __name__ == "__main__":
    main()
