#!/usr/bin/env bash
# benches/farm-peers.sh [MACHINES [DAYS]]: one question, "p99.9 by kernel, last week", of the same five-minute histograms, in one run: by a
# collector, by VictoriaMetrics (the series that `farm metrics` prints, a scrape each five minutes), by the raw files. The raw files have
# to answer the same, VictoriaMetrics within its buckets, four a doubling. VICTORIA names its program.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
machines=${1:-1000} days=${2:-14}
victoria=${VICTORIA:-$(command -v victoria-metrics)} || { echo "benches/farm-peers.sh: victoria-metrics is needed; VICTORIA names it" >&2; exit 2; }
cargo build --quiet --release --locked --bin quietcores
cargo build --quiet --release --locked -p quiet-farm --example simulate
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/farm.XXXXXX")
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; wait; rm -rf "$dir"' EXIT
target/release/quietcores measure wakeup --interval 1ms --for 20s --policy other --priority 0 --store "$dir/store" >&2
lscpu | sed -n 's/^Model name: *//p'
"$victoria" --version 2>&1 | sed -n "/./{p;q}"
target/release/examples/simulate "$machines" "$days" "$dir/ours.sqlite" 14 "$dir/beside" <"$(ls "$dir"/store/runs/*.json)" | tee "$dir/ours"
echo "raw_files_mb $(cat "$dir"/beside/*.records | wc -c | awk '{ printf "%d", $1 / 1048576 }')"
"$victoria" -storageDataPath="$dir/victoria" -httpListenAddr=127.0.0.1:18428 -retentionPeriod=100y -search.maxQueryDuration=20m \
  -search.maxSamplesPerQuery=10000000000 -search.maxUniqueTimeseries=3000000 -loggerLevel=ERROR 2>"$dir/log" &
server=$!
python3 - "$dir" <<'PY'
import json, pathlib, subprocess, sys, time, urllib.parse, urllib.request

work = pathlib.Path(sys.argv[1])
at = "http://127.0.0.1:18428"
told = [line.split() for line in (work / "ours").read_text().splitlines()]
value = {line[0]: line[1:] for line in told}
for _ in range(100):
    try:
        urllib.request.urlopen(f"{at}/health").read()
        break
    except OSError:
        time.sleep(0.1)
else:
    sys.exit((work / "log").read_text())
began = time.monotonic()
subprocess.run(["curl", "--fail", "--silent", "--show-error", "-T", work / "beside/series.jsonl", f"{at}/api/v1/import"], check=True)
urllib.request.urlopen(f"{at}/internal/force_flush").read()
took = time.monotonic() - began
records, samples = int(value["machines"][4]), int(value["series_samples"][0])
# What it holds in memory goes to its disk every 5 s.
time.sleep(15)
size = sum(path.stat().st_size for path in (work / "victoria").rglob("*") if path.is_file())
print(f"victoria ingest_records_a_second {records / took:.0f} samples_a_second {samples / took:.0f} bytes_a_record {size / records:.0f} mb {size >> 20}")
words = {"query": "histogram_quantile(0.999, sum(increase(quietcores_latency_seconds_bucket[7d])) by (le, kernel))",
         "time": value["answered_at"][0], "nocache": "1"}
times = []
for _ in range(3):
    began = time.monotonic()
    got = json.load(urllib.request.urlopen(f"{at}/api/v1/query?{urllib.parse.urlencode(words)}", timeout=1300))
    times.append((time.monotonic() - began) * 1e3)
theirs = {one["metric"]["kernel"]: float(one["value"][1]) * 1e9 for one in got["data"]["result"]}
ours = {line[1]: int(line[2]) for line in told if line[0] == "answer"}
assert ours.keys() == theirs.keys(), (ours, theirs)
for kernel, ns in ours.items():
    # Both lie in one bucket: it is at most a quarter wide.
    assert abs(theirs[kernel] - ns) <= ns / 4, (kernel, ns, theirs[kernel])
    print(f"answer {kernel} ours_us {ns / 1e3:.1f} victoria_us {theirs[kernel] / 1e3:.1f}")
question = next(line for line in told if line[:2] == ["question", "p99.9_by_kernel_last_week"])
ms = float(question[6])
raw = float(value["raw_files_question_ms"][0])
times.sort()
print(f"ms: collector {ms:.1f}, victoria {times[1]:.0f} (x{times[1] / ms:.0f}), raw files {raw:.0f} (x{raw / ms:.0f})")
PY
