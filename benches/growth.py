#!/usr/bin/env python3
"""How the cost of each verb grows: `growth.py PROGRAM [PART...]`; see growth.sh, which runs it.

Each part is measured at four sizes, three times each; the least CPU time counts, for what comes on top is the neighbours'. Where that
still grows too fast, all four and no size at all are measured up to twice more: what is really steep stays so. Events, forks and runs are not measured again.
With GROWTH_WALL=1 it is the time of the clock, which means something on a machine that does nothing else.
The exponent is the slope of a line through the logarithms of size and time, after what the verb costs at no size at all
(the smallest machine) is taken away. Parts that change the machine run as root only, in a state directory of their own, and are
put back.
"""

import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM = os.path.abspath(sys.argv[1])
PARTS = sys.argv[2:]
TIMES = int(os.environ.get("GROWTH_TIMES", "3"))
WALL = bool(os.environ.get("GROWTH_WALL"))
LIMIT = 1.1
rows = []
skipped = []


def run(*words, okay=(0, 1), stdin=None):
    """Seconds of CPU time that the program takes (WALL: of the clock), and what it prints."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([PROGRAM, *words], capture_output=True, stdin=stdin or subprocess.DEVNULL)
    after, took = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    if not WALL:
        took = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    if done.returncode not in okay:
        raise SystemExit(f"{' '.join(words)}: exit {done.returncode}: {done.stderr.decode()[-2000:]}")
    return took, done.stdout


def least(*words, **more):
    return min(run(*words, **more)[0] for _ in range(TIMES))


def exponent(sizes, times, base):
    """Slope of the logarithms over all sizes; times that drown in the base say nothing."""
    points = [(math.log(n), math.log(t - base)) for n, t in zip(sizes, times) if t - base > 0.5 * base and t - base > 0.002]
    if len(points) < 2:
        return None
    x = sum(p[0] for p in points) / len(points)
    y = sum(p[1] for p in points) / len(points)
    return sum((p[0] - x) * (p[1] - y) for p in points) / sum((p[0] - x) ** 2 for p in points)


def grow(of, sizes, at, base):
    """Rows of the verbs that `at(size)` measures, from the least time of up to three turns; `base()` is what each costs at no size."""
    least_of = {}
    for turn in range(3):
        # What is taken away is measured again too: where it was too long by chance, the rest looks steep.
        for size, measured in [(0, base), *((size, lambda size=size: at(size)) for size in sizes)]:
            for verb, took in measured().items():
                least_of.setdefault(verb, {})[size] = min(took, least_of.get(verb, {}).get(size, took))
        times = {verb: [took[size] for size in sizes] for verb, took in least_of.items()}
        steep = [verb for verb, took in times.items() if (exponent(sizes, took, least_of[verb][0]) or 0) > LIMIT]
        if not steep:
            break
        if turn < 2:
            print(f"  {', '.join(steep)} by {of}: above {LIMIT}, measured again", flush=True)
    for verb, took in times.items():
        row(verb, of, sizes, took, least_of[verb][0])


def row(what, of, sizes, times, base):
    slope = exponent(sizes, times, base)
    rows.append((what, of, sizes, times, slope))
    told = "  ".join(f"{n}: {t * 1000:.1f} ms" for n, t in zip(sizes, times))
    print(f"  {what:<18} {of:<28} {told}  -> {'flat' if slope is None else f'{slope:.2f}'}", flush=True)


# A machine of files, as `inspect` reads it: constructed, no real one has these sizes.

FIXED, USER = 69238848, 4194304


class Tree:
    """`silent`: the board tells no effective CPU, and delivers every interrupt to CPU 0."""

    def __init__(self, cpus, irqs, threads, processes=1, silent=False):
        self.dir = tempfile.mkdtemp(prefix="quietcores-growth-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        last = cpus - 1
        self.put("proc/sys/kernel/osrelease", "6.12.0-rt")
        self.put("proc/sys/kernel/version", "#1 SMP PREEMPT_RT")
        self.put("proc/cmdline", "quiet")
        self.put("proc/filesystems", "nodev cgroup2")
        self.put("proc/uptime", "5000.00 9000.00")
        self.put("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
        self.put("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
        self.put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids")
        self.put("sys/fs/cgroup/cgroup.subtree_control", "cpu memory")
        self.put("sys/devices/system/cpu/online", f"0-{last}")
        self.put("sys/devices/system/cpu/possible", f"0-{last}")
        stat = ["cpu  0 0 0 0 0 0 0 0 0 0"]
        for cpu in range(cpus):
            d = f"sys/devices/system/cpu/cpu{cpu}"
            first = cpu & ~1
            self.put(f"{d}/topology/core_id", cpu // 2)
            self.put(f"{d}/topology/physical_package_id", 0)
            self.put(f"{d}/topology/thread_siblings_list", f"{first}-{first + 1}" if cpus > 1 else "0")
            self.put(f"{d}/cache/index3/level", 3)
            self.put(f"{d}/cache/index3/shared_cpu_list", f"{cpu // 16 * 16}-{min(cpu // 16 * 16 + 15, last)}")
            self.put(f"{d}/cache/index3/size", "32768K")
            self.put(f"{d}/power/pm_qos_resume_latency_us", 0)
            self.put(f"{d}/cpufreq/scaling_governor", "powersave")
            for state in range(3):
                self.put(f"{d}/cpuidle/state{state}/name", f"C{state}")
                self.put(f"{d}/cpuidle/state{state}/latency", state * 50)
                self.put(f"{d}/cpuidle/state{state}/disable", 0)
            stat.append(f"cpu{cpu} 100 0 50 9000 3 0 1 0 0 0")
            self.task(10 + cpu, 10 + cpu, f"ksoftirqd/{cpu}", cpu, str(cpu), FIXED)
        self.put("proc/stat", "\n".join(stat))
        rows = ["      " + "".join(f"{f'CPU{cpu}':<11}" for cpu in range(cpus))]
        counts = "".join(f"{0 if silent and cpu else 7:>10} " for cpu in range(cpus))
        for irq in range(irqs):
            number = 16 + irq
            rows.append(f"{number:4}: {counts} PCI-MSI {number}-edge      dev{irq}")
            self.put(f"proc/irq/{number}/smp_affinity_list", f"0-{last}")
            self.put(f"proc/irq/{number}/effective_affinity_list", "" if silent else irq % cpus)
            self.put(f"proc/irq/{number}/node", 0)
            self.put(f"sys/kernel/irq/{number}/actions", f"dev{irq}")
            self.task(20_000 + irq, 20_000 + irq, f"irq/{number}-dev{irq}", irq % cpus, str(irq % cpus), FIXED)
        self.put("proc/interrupts", "\n".join(rows))
        self.holds = {"cpus": cpus, "irqs": irqs, "tasks": cpus + irqs + 1 + threads}
        self.put("proc/irq/default_smp_affinity", "ffffffff")
        self.task(1, 1, "init", 0, f"0-{last}", USER)
        tid = 100_000
        for process in range(processes):
            pid = tid
            for _ in range(threads // processes):
                self.task(pid, tid, f"player{process}", tid % cpus, f"0-{last}", USER)
                tid += 1

    def put(self, path, text):
        path = f"{self.dir}/{path}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(f"{text}\n")

    def task(self, pid, tid, name, cpu, allowed, flags):
        d = f"proc/{pid}/task/{tid}"
        stat = (
            f"{tid} ({name}) S 1 0 0 0 -1 {flags} 0 0 0 0 0 5 0 0 20 0 1 0 {100 + tid} 0 0 18446744073709551615 "
            f"0 0 0 0 0 0 0 2147483647 0 0 0 0 17 {cpu} 0 0 0 0 0"
        )
        status = f"Name:\t{name}\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t{allowed}"
        self.put(f"{d}/stat", stat)
        self.put(f"{d}/status", status)
        self.put(f"{d}/cgroup", "0::/")
        if pid == tid:
            self.put(f"proc/{pid}/stat", stat)
            self.put(f"proc/{pid}/status", status)

    def chain(self, links):
        path = f"{self.dir}/chain.toml"
        with open(path, "w") as file:
            file.write('[chain]\nname = "growth"\n')
            for at, (kind, value) in enumerate(links):
                target = f"irq = {{ number = {value} }}" if kind == "irq" else f'process = "{value}"'
                file.write(f'[[link]]\nname = "l{at}"\n{target}\n')
        return path

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dir)


def made(of, sizes, tree, chain):
    """`inspect`, `check` and `plan` of machines of files."""

    def at(size):
        with tree(size) as there:
            path = there.chain(chain(size))
            return {
                "inspect": least("inspect", "--json", "--root", there.dir),
                "check": least("check", "--json", "--root", there.dir, path),
                "plan": least("plan", "--json", "--root", there.dir, path),
            }

    with tree(sizes[-1]) as there:
        seen = json.loads(run("inspect", "--json", "--root", there.dir)[1])
        # What a made tree holds and the program does not see would grow nothing.
        if not all(len(seen[what]) == count for what, count in there.holds.items()):
            raise SystemExit(f"{of}: {there.holds} are not what inspect sees: {seen['unread'][:3]}")
    grow(of, sizes, at, lambda: at(None))


def part_machine():
    one = [("process", "player0")]
    made("CPUs", [64, 128, 256, 512], lambda n: Tree(n or 4, 8, 8), lambda _: one)
    made("IRQs of 64 CPUs", [250, 500, 1000, 2000], lambda n: Tree(64, n or 1, 8), lambda _: one)
    made("IRQs of 512 CPUs", [250, 500, 1000, 2000], lambda n: Tree(512, n or 1, 8), lambda _: one)
    made("IRQs all to CPU 0", [250, 500, 1000, 2000], lambda n: Tree(64, n or 1, 8, 1, True), lambda _: one)
    made("threads of a process", [1250, 2500, 5000, 10_000], lambda n: Tree(4, 8, n or 1), lambda _: one)
    made("processes", [250, 500, 1000, 2000], lambda n: Tree(4, 8, n or 1, n or 1), lambda _: one)
    links = lambda n: [("irq", 16 + at) for at in range(n or 1)]
    made("links to an IRQ each", [32, 64, 128, 256], lambda n: Tree(4, 2000, 8), links)
    links = lambda n: [("process", f"player{at}") for at in range(n or 1)]
    made("links to a process each", [32, 64, 128, 256], lambda n: Tree(4, 8, 2000, 2000), links)


# Of the running machine.

LOAD = """
import ctypes, os, sys, threading, time
threading.stack_size(65536)
libc = ctypes.CDLL(None)
count, processes, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
stop = threading.Event()
def serve(threads):
    libc.prctl(15, name.encode(), 0, 0, 0)
    for _ in range(threads - 1):
        threading.Thread(target=stop.wait, daemon=True).start()
for _ in range(processes - 1):
    if os.fork() == 0:
        libc.prctl(1, 9, 0, 0, 0)
        serve(count // processes)
        os.write(1, b".")
        stop.wait()
serve(count // processes)
os.write(1, b".")
stop.wait()
"""


# Nobody waits for the children; before all others, or a busy machine forks less than is asked for.
FORKS = """
import os, signal, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.nice(-15)
rate, seconds = float(sys.argv[1]), float(sys.argv[2])
done, began = 0, time.monotonic()
while time.monotonic() < began + seconds:
    if os.fork() == 0:
        os._exit(0)
    done += 1
    time.sleep(max(0, began + done / rate - time.monotonic()))
print(done / (time.monotonic() - began))
"""


class Load:
    """So many threads in so many processes, that wait."""

    def __init__(self, count, processes):
        words = [sys.executable, "-c", LOAD, str(count), str(processes), "qcgrowth"]
        self.child = subprocess.Popen(words, stdout=subprocess.PIPE)
        told = 0
        while told < processes:
            told += len(os.read(self.child.stdout.fileno(), 65536))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()


def can_shield():
    if os.geteuid() != 0:
        skipped.append("what changes the machine: root is needed")
        return False
    if os.cpu_count() < 2:
        skipped.append("what changes the machine: one CPU cannot be shared out")
        return False
    return True


def last_cpu():
    with open("/sys/devices/system/cpu/online") as file:
        return file.read().strip().replace(",", "-").split("-")[-1]


def shield(state, more):
    apply = run("apply", "--yes", "--cpus", last_cpu(), "--state", state, *more)[0]
    status = least("status", "--json", "--state", state)
    revert = run("revert", "--state", state)[0]
    return {"apply": apply, "status": status, "revert": revert}


def live(of, sizes, processes, chain):
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as dir:
        path = f"{dir}/chain.toml"
        with open(path, "w") as file:
            file.write('[[link]]\nname = "player"\nprocess = "qcgrowth"\npriority = 70\n')
        more = [path] if chain else []

        def at():
            best = None
            for _ in range(TIMES):
                took = shield(f"{dir}/state", more)
                best = took if best is None else {verb: min(best[verb], took[verb]) for verb in took}
            return best

        def beside(size):
            with Load(size, processes(size)):
                return {"inspect": least("inspect", "--json"), **at()}

        grow(of, sizes, beside, lambda: {"inspect": least("inspect", "--json"), **at()})


def part_threads():
    if not can_shield():
        return
    sizes = [1250, 2500, 5000, 10_000]
    live("threads of one process", sizes, lambda _: 1, False)
    live("threads of a link", sizes, lambda _: 1, True)
    live("processes", [250, 500, 1000, 2000], lambda n: n, False)


def ticks(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def part_watch():
    """CPU time of a look, by the threads there are; and of a watch beside forks."""
    if not can_shield():
        return
    with tempfile.TemporaryDirectory() as dir:
        state, seconds = f"{dir}/state", 12

        def watch(beside):
            run("apply", "--yes", "--cpus", last_cpu(), "--state", state)
            child = subprocess.Popen([PROGRAM, "watch", "--every", "1s", "--state", state], stdout=subprocess.DEVNULL)
            try:
                time.sleep(2)
                began, then = ticks(child.pid), time.monotonic()
                forks = beside(then + seconds)
                return (ticks(child.pid) - began) / (time.monotonic() - then), forks
            finally:
                child.send_signal(signal.SIGTERM)
                child.wait()
                run("revert", "--state", state)

        def idle(until):
            time.sleep(max(0, until - time.monotonic()))
            return 0

        def forks(rate):
            def beside(until):
                seconds = until - time.monotonic()
                forker = subprocess.run([sys.executable, "-c", FORKS, str(rate), str(seconds)], capture_output=True, check=True)
                return float(forker.stdout)

            return beside

        def look(size):
            with Load(size, 1):
                return {"watch, a look": watch(idle)[0]}

        idly = lambda: {"watch, a look": watch(idle)[0]}
        grow("threads of one process", [1250, 2500, 5000, 10_000], look, idly)
        rates, times, had = [125, 250, 500, 1000], [], []
        for rate in rates:
            share, forked = watch(forks(rate))
            times.append(share)
            had.append(forked)
        row("watch, a second", "forks a second", rates, times, watch(idle)[0])
        print("    really forked a second:", " ".join(f"{rate:.0f}" for rate in had))


# Of what was measured.


def part_events():
    """`explain`, without the measuring: what a made trace costs to be explained."""
    build = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "quiet-report", "--example", "causes"]
    subprocess.run(build, check=True)
    causes = os.path.join(os.path.dirname(PROGRAM), "examples", "causes")

    def at(count):
        return min(float(subprocess.run([causes, str(count)], capture_output=True, check=True).stdout) for _ in range(TIMES))

    sizes = [1_250_000, 2_500_000, 5_000_000, 10_000_000]
    row("explain", "events", sizes, [at(size) for size in sizes], at(1000))


def write_run(path, one, at, count, rng):
    """One of `count` runs, one every four minutes: 40 kernels one after the other, two labels in turn."""
    day, second = divmod(at * 240, 86400)
    year, day = divmod(day, 336)
    stamp = f"{2000 + year}-{1 + day // 28:02}-{1 + day % 28:02}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000Z"
    one["id"] = stamp[:19].replace("-", "").replace(":", "") + f"Z-wakeup-{at:06}"
    one["started"] = stamp
    one["label"] = "ab"[at % 2]
    one["host"]["release"] = f"6.{at * 40 // count}.0"
    for thread in one["threads"]:
        buckets = thread["readings"]["buckets"]
        more = rng.randrange(len(buckets))
        buckets[more][1] += 1 + rng.randrange(20)
        thread["readings"]["count"] = sum(n for _, n in buckets)
    with open(f"{path}/{one['id']}.json", "w") as file:
        json.dump(one, file)


def part_runs():
    """`runs`, trends, and `compare` of half of them with the other half: as two sets, and in pairs made in turn."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as dir:
        run("import", "fixtures/results/latmus-vim3l-hectic-200us.txt", "-o", f"{dir}/one.json")
        with open(f"{dir}/one.json") as file:
            text = file.read()

        def at(count):
            store, rng = f"{dir}/{count}", random.Random(7)
            os.makedirs(f"{store}/runs")
            for number in range(count):
                write_run(f"{store}/runs", json.loads(text), number, count, rng)
            names = sorted(os.listdir(f"{store}/runs"))
            middle = json.load(open(f"{store}/runs/{names[count // 2]}"))["started"]
            took = {
                "runs --rebuild": run("runs", "--rebuild", "--store", store)[0],
                "runs": least("runs", "--store", store),
                "runs --all": least("runs", "--all", "--store", store),
                "runs --trend": least("runs", "--trend", "--store", store),
                "compare, sets": run("compare", f"until={middle}", f"since={middle}", "--json", "--store", store)[0],
                "compare, pairs": run("compare", "label=a", "label=b", "--json", "--store", store)[0],
            }
            shutil.rmtree(store)
            return took

        base, sizes = at(2), [12_500, 25_000, 50_000, 100_000]
        times = [at(size) for size in sizes]
        for what, least_of in base.items():
            row(what, "runs", sizes, [took[what] for took in times], least_of)


def main():
    parts = {name[5:]: part for name, part in globals().items() if name.startswith("part_")}
    for name in PARTS or parts:
        print(f"{name}:", flush=True)
        parts[name]()
    print()
    print(f"{'what':<18} {'grows with':<28} {'at the largest':>18} {'exponent':>9}")
    over = 0
    for what, of, sizes, times, slope in rows:
        bad = slope is not None and slope > LIMIT
        over += bad
        told = "flat" if slope is None else f"{slope:.2f}"
        print(f"{what:<18} {of:<28} {f'{sizes[-1]}: {times[-1] * 1000:.0f} ms':>18} {told:>9}{'  above ' + str(LIMIT) if bad else ''}")
    for why in skipped:
        print("skipped:", why)
    sys.exit(1 if over else 0)


main()
