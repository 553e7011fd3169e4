#!/usr/bin/env bash
# benches/live.sh [PAIRS [SECONDS [faces|farm]]]: what company costs a playing, shielded loop, as root on a machine that may be changed.
# A loop plays on a shielded CPU (the null host). In turn, order by lot: alone, and with company. That is for
#   faces   `serve`, ten clients that follow its stream, and a `top`
#   farm    `farm send --follow` of this chain's minutes every 10 s, thirty times as often as it does by itself, to a nats-server. That and a
#           collector run here too, in both: NATS_SERVER names the program.
# Counted in both: interrupts, calls, shoot-downs and switches of the shielded CPU, periods missed; and what the first of the company
# used of a CPU. 10 pairs of 60 s are twenty minutes.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
[ "$(id -u)" = 0 ] || { echo "benches/live.sh: root is needed" >&2; exit 2; }
export PROGRAM=${QUIETCORES:-$here/../target/release/quietcores}
export NATS_SERVER=${NATS_SERVER:-$(command -v nats-server || echo "${XDG_CACHE_HOME:-$HOME/.cache}/quietcores-tools/bin/nats-server")}
exec python3 - "${1:-10}" "${2:-60}" "${3:-faces}" <<'EOF'
import json, os, pathlib, random, re, signal, socket, statistics, subprocess, sys, tempfile, time

pairs, seconds, company = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
if company not in ("faces", "farm"):
    sys.exit("benches/live.sh: faces, or farm")
program = os.environ["PROGRAM"]
work = tempfile.TemporaryDirectory()
run = pathlib.Path(work.name)
state = run / "state"
cpu = int(re.split("[,-]", pathlib.Path("/sys/devices/system/cpu/online").read_text().strip())[-1])
environment = {**os.environ, "XDG_RUNTIME_DIR": str(run), "XDG_STATE_HOME": str(run), "XDG_DATA_HOME": str(run)}
NAMES = ["devices", "ticks", "reschedules", "calls", "shoot-downs", "switches", "put off", "missed", "xruns"]


def start(*words, **more):
    return subprocess.Popen([program, *map(str, words)], env=environment, stdin=subprocess.DEVNULL, **more)


def control(path):
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(10)
    line.connect(str(path))
    line.sendall(b'{"do":"stats"}\n')
    got = b""
    while not got.endswith(b"\n"):
        got += line.recv(65536)
    return json.loads(got)


def threads_on_cpu(pid):
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        if re.search(rf"^Cpus_allowed_list:\t{cpu}$", status, re.M):
            yield task, status


def counters(player, sock):
    lines = pathlib.Path("/proc/interrupts").read_text().splitlines()
    column = lines[0].split().index(f"CPU{cpu}") + 1
    count = dict.fromkeys(NAMES, 0)
    words = {"LOC:": "ticks", "RES:": "reschedules", "CAL:": "calls", "TLB:": "shoot-downs"}
    for line in lines[1:]:
        cells = line.split()
        if len(cells) > column and cells[column].isdigit():
            name = "devices" if cells[0][:-1].isdigit() else words.get(cells[0])
            if name:
                count[name] += int(cells[column])
    for _, status in threads_on_cpu(player):
        count["switches"] += int(re.search(r"^voluntary_ctxt_switches:\t(\d+)", status, re.M)[1])
        count["put off"] += int(re.search(r"^nonvoluntary_ctxt_switches:\t(\d+)", status, re.M)[1])
    told = control(sock)
    count["missed"], count["xruns"] = told["missed"], told["xruns"]
    return count


def used(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def faces():
    server = start("serve", "--as-root", "--listen", "127.0.0.1:0", "--state", state, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    address = server.stdout.readline().strip().split("?")[0]
    yield server
    yield start("top", "--json", "--state", state, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(10):
        yield subprocess.Popen(["curl", "-sN", "-o", "/dev/null", address + "api/v1/stream"])


def sender():
    yield start("farm", "send", "--follow", "--every", "10s", "--store", run / "store", "--state", state,
                stdout=subprocess.DEVNULL, stderr=open(run / "sent", "a"))


def farm():
    """A farm of one machine, that is joined: its server and its collector."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, db = f"nats://127.0.0.1:{port}", run / "farm.sqlite"
    yield subprocess.Popen([os.environ["NATS_SERVER"], "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", run / "js"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(50):
        if start("farm", "serve", url, "--make", "1", "--once", "--db", db, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait() == 0:
            break
        time.sleep(0.2)
    yield start("farm", "serve", url, "--db", db, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if start("farm", "join", url, "--live", "--yes", "--as", "bench", "--store", run / "store", stdout=subprocess.DEVNULL).wait() != 0:
        sys.exit("it joins no farm")


def records():
    asked = start("farm", "ask", "probe=blocks", "--json", "--db", run / "farm.sqlite", stdout=subprocess.PIPE, text=True)
    return json.loads(asked.communicate()[0])["records"]


def phase(player, sock, accompanied):
    helpers, share = [], None
    if accompanied:
        helpers = list(faces() if company == "faces" else sender())
    # Who begins is not what is measured.
    time.sleep(3)
    before, began = counters(player, sock), time.monotonic()
    began_used = used(helpers[0].pid) if helpers else 0
    time.sleep(seconds)
    lasted = time.monotonic() - began
    after = counters(player, sock)
    if helpers:
        share = (used(helpers[0].pid) - began_used) / lasted
    for one in reversed(helpers):
        one.send_signal(signal.SIGTERM)
    for one in helpers:
        one.wait()
    return {name: (after[name] - before[name]) / lasted for name in NAMES}, share


def interval(values):
    drawn = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(4000))
    return statistics.median(values), drawn[100], drawn[3899]


def main():
    strip = run / "strip.toml"
    strip.write_text('[strip]\nname = "bench"\nchannels = 1\n[[stage]]\nkind = "gain"\n')
    done = subprocess.run([program, "apply", "--cpus", str(cpu), "--yes", "--state", state], capture_output=True, text=True)
    if done.returncode > 1:
        sys.exit(done.stdout + done.stderr)
    player = start("play", "--host", "null", "--period", 64, "--channels", 1, "--mode", "sleep", "--user", "root", "--state", state, strip,
                   stdout=subprocess.DEVNULL, stderr=open(run / "played", "w"))
    sock = None
    for _ in range(200):
        sock = next(iter([*run.glob("quietcores/play*.sock"), *pathlib.Path("/run/quietcores").glob("play*.sock")]), None)
        if sock or player.poll() is not None:
            break
        time.sleep(0.1)
    if not sock:
        sys.exit("it does not play: " + (run / "played").read_text())
    servers = []
    try:
        for server in farm() if company == "farm" else []:
            servers.append(server)
        alone, watched, shares = [], [], []
        for number in range(pairs):
            order = [False, True]
            random.shuffle(order)
            for is_watched in order:
                counts, share = phase(player.pid, sock, is_watched)
                (watched if is_watched else alone).append(counts)
                if share is not None:
                    shares.append(share)
            print(f"pair {number + 1} of {pairs}: {shares[-1] * 100:.2f} % of a CPU", file=sys.stderr)
        collected = records() if company == "farm" else 0
    finally:
        for server in servers:
            server.terminate()
            server.wait()
        player.send_signal(signal.SIGINT)
        player.wait()
        subprocess.run([program, "revert", "--state", state], stdout=subprocess.DEVNULL, check=False)
    machine = f"{os.uname().release}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    named = {"faces": "ten clients and a top", "farm": f"farm send --follow --every 10s ({collected} records of the chain collected)"}[company]
    print(f"benches/live.sh {pairs} {seconds:g} {company}: {named} beside a loop on shielded CPU {cpu}, against none, in turn; "
          f"{model[1] if model else os.uname().machine}, {machine}")
    print(f"{'a second':<14}{'alone':>12}{'with':>12}   more, median over pairs [95 % interval]")
    for name in NAMES:
        differences = [with_[name] - without[name] for with_, without in zip(watched, alone)]
        median, low, high = interval(differences)
        print(f"{name:<14}{statistics.median(c[name] for c in alone):>12.3f}{statistics.median(c[name] for c in watched):>12.3f}   "
              f"{median:+.3f} [{low:+.3f}, {high:+.3f}]")
    median, low, high = interval(shares)
    print(f"{'serve' if company == 'faces' else 'farm send'} used {median * 100:.2f} % [{low * 100:.2f}, {high * 100:.2f}] of one housekeeping CPU (aim: below 3)")


main()
EOF
