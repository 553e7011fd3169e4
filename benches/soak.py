#!/usr/bin/env python3
"""benches/soak.py PROGRAM [MINUTES [SEED]]: `play` never asleep on the card that does not exist, while strips, amps, IRs and parameters are
changed at random through its socket; memory, descriptors and threads are read every ten seconds. Ends with 1 where they grow, a request
fails, or a sample was not finite. Two CPUs; xruns are told and judged by nobody: the machine may be busy.
"""
import json, os, platform, random, resource, socket, subprocess, sys, tempfile, time

program, minutes = os.path.abspath(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 30
seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
random.seed(seed)
amps = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../fixtures/amps")
with tempfile.TemporaryDirectory() as dir:
    def strip(name, *stages):
        path = f"{dir}/{name}.toml"
        with open(path, "w") as file:
            file.write(f'[strip]\nname = "{name}"\n' + "".join(f'[[stage]]\nkind = "{kind}"\nname = "{kind}"\n{rest}\n' for kind, rest in stages))
        return path

    gain = ("gain", "gain = -6.0")
    models = sorted(f"{amps}/{name}" for name in os.listdir(amps) if name.endswith(".nam") and os.path.getsize(f"{amps}/{name}") < 300_000)
    with open(f"{dir}/ir.txt", "w") as file:
        file.write("\n".join(str(random.uniform(-1, 1) * 0.99 ** n / 10) for n in range(2048)))
    ir = ("ir", f'file = "{dir}/ir.txt"')
    strips = [strip("one", gain), strip("two", gain, ir)]
    strips += [strip(f"amp{n}", ("amp", f'file = "{model}"'), gain) for n, model in enumerate(models[:3])]
    control = f"{dir}/s.sock"
    # An ordinary thread: a limit on real-time running would end one that never sleeps, so the engine takes no real-time priority.
    limit = lambda: resource.setrlimit(resource.RLIMIT_RTTIME, (60_000_000, 60_000_000))
    child = subprocess.Popen([program, "play", strips[0], "--host", "null", "--mode", "never-sleep", "--cpu", str(os.cpu_count() - 1),
                              "--channels", "1", "--period", "256", "--buffer", "2048", "--allow", amps, "--control", control, "--json"],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, preexec_fn=limit, text=True)
    code = 1
    try:
        end = time.monotonic() + 60
        while True:
            try:
                stream = socket.socket(socket.AF_UNIX)
                stream.connect(control)
                break
            except OSError:
                if child.poll() is not None or time.monotonic() > end:
                    sys.exit("play did not start")
                time.sleep(0.1)
        lines = stream.makefile("rw")

        def ask(**request):
            lines.write(json.dumps(request) + "\n")
            lines.flush()
            return json.loads(lines.readline())

        def usage():
            status = dict(line.split(":", 1) for line in open(f"/proc/{child.pid}/status"))
            return int(status["VmRSS"].split()[0]), len(os.listdir(f"/proc/{child.pid}/fd")), int(status["Threads"])

        swaps = sets = refused = 0
        readings, began, shown = [], time.monotonic(), -1.0
        while time.monotonic() - began < minutes * 60:
            turn = random.random()
            if turn < 0.5:
                answer = ask(do="swap", strip=random.choice(strips))
                swaps += answer["ok"]
            elif turn < 0.8:
                answer = ask(do="set", param="gain.gain", value=random.uniform(-30, 6))
                sets += answer["ok"]
            else:
                answer = ask(do="bypass", on=turn < 0.9)
            if not answer["ok"]:
                # Too many orders wait, or a worst block that a busy machine measured too long: told, and nothing changed.
                refused += 1
                last = answer["error"]
            time.sleep(random.uniform(0, 0.03))
            if time.monotonic() - shown >= 10:
                shown = time.monotonic()
                readings.append(usage())
        # The last fades end, and what is spent comes home.
        time.sleep(1)
        readings.append(usage())
        stats = ask(do="stats")
        ask(do="quit")
        played = json.loads(child.communicate(timeout=60)[0])
        # The first third is the way to where all of it has been used once.
        steady = readings[len(readings) // 3:]
        growth = steady[-1][0] - steady[0][0]
        print(f"# soak.py {minutes:g} {seed}; {platform.release()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; {len(models)} amps, {len(strips)} strips")
        print(f"{stats['blocks']} blocks, {swaps} swaps, {sets} parameters set, {stats['collected']} spent strips came home, {refused} requests refused"
              + (f" (last: {last})" if refused else ""))
        print(f"xruns {played['status']['xruns']}, not finite {stats['broken']}, events without room {stats['dropped_events']}")
        print("memory MiB, descriptors, threads: " + "; ".join(f"{r[0] / 1024:.1f} {r[1]} {r[2]}" for r in readings[:: max(1, len(readings) // 12)]))
        flat = growth < 4096 and len({r[1:] for r in steady}) == 1 and stats["broken"] == 0 and swaps > 0
        print(f"memory grew by {growth} KiB in the last two thirds: " + ("flat" if flat else "NOT FLAT"))
        code = 0 if flat else 1
    finally:
        child.kill()
        child.wait()
sys.exit(code)
