#!/usr/bin/env python3
"""benches/servers.py PROGRAM jackd|pipewire [MINUTES [STRESS [PERIOD]]]: xruns that `play` tells against those that the server
reports, on a server without a card, under a stress. Ends with 1 where the two differ. Root; jackd2, or pipewire,
pipewire-jack, wireplumber, dbus-run-session and tmux; stress-ng.

On jackd three count: `play`; another client of the server's own library, which has nothing of ours; and jackd, by the lines of its log.

On PipeWire two: `play`, and the server, by its log: the cycles that it begins while the graph, whose only client is `play`, is not ready with the
one before (until 1.0: "graph not finished", and how many of those were suppressed) or that node is not (from 1.2: "xrun state"). A block that is handed over
in the moment in which the server looks may be late for one and in time for the other: how often that was is in the log, and so much is allowed. Clients of JACK's interface are
told of a card's xruns alone, and there is no card, so another client would tell of none, and would be part of the graph. What the server
suppressed it tells with the next event later than 2 s: so `play` is stopped for three periods at the end of each count.
Its column ERR in pw-top is printed beside and not compared: in 0.3.65 it rises by two for a cycle that was not finished, once when that is seen and
once when it is closed, and by one where a client that was late is already awake again; from 1.2 on by the wake-ups that a client missed as well.

Each is read when none has moved for a second, before the stress and after it, and the differences are compared: what happens while clients
come and go is told to those that are there at the time, and nobody's to compare.
"""
import ctypes, json, os, platform, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time

program, kind = os.path.abspath(sys.argv[1]), sys.argv[2]
minutes = float(sys.argv[3]) if len(sys.argv) > 3 else 10
stress = sys.argv[4] if len(sys.argv) > 4 else "kernel"
period = int(sys.argv[5]) if len(sys.argv) > 5 else 256

if kind == "observe":  # a process of its own: the server's library, and nothing else
    jack = ctypes.CDLL("libjack.so.0")
    jack.jack_client_open.restype = ctypes.c_void_p
    CALL, WORK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p), ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
    client = ctypes.c_void_p(jack.jack_client_open(b"observer", 1, None))
    if not client:
        sys.exit("the observer reaches no server")
    seen = CALL(lambda _: os.write(1, b"x") and 0)
    jack.jack_set_xrun_callback(client, seen, None)
    if jack.jack_activate(client):
        sys.exit("the observer cannot be activated")
    os.write(1, b"r")
    signal.pause()

if kind not in ("jackd", "pipewire"):
    sys.exit(__doc__)
if kind == "pipewire" and "QUIET_BUS" not in os.environ:
    os.environ["QUIET_BUS"] = "1"
    os.execvp("dbus-run-session", ["dbus-run-session", "--", sys.executable, *sys.argv])

dir = tempfile.mkdtemp(prefix="quiet-servers-")
env = dict(os.environ, JACK_DEFAULT_SERVER=f"quiet{os.getpid()}", XDG_RUNTIME_DIR=dir, XDG_CONFIG_HOME=f"{dir}/config",
           XDG_STATE_HOME=f"{dir}/state", PIPEWIRE_QUANTUM=f"{period}/48000", TERM="xterm")
started, counts, said = [], {"observer": 0, "server": 0}, []
mark = threading.Lock()


def start(*words, **more):
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL, **{"env": env, **more})
    started.append(child)
    return child


def client(*words, **more):
    return start(*(["pw-jack"] if kind == "pipewire" else []), *words, **more)


def until(what, so, seconds=30):
    end = time.monotonic() + seconds
    while True:
        got = so()
        if got:
            return got
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not within {seconds} s")
        time.sleep(0.1)


def follow_log(stream):
    for line in stream:
        said.append(line.rstrip())
        if "XRun" in line:
            counts["server"] += 1


def follow_observer(stream):
    while byte := stream.read(1):
        counts["observer"] += byte == b"x"
        ready.set() if byte == b"r" else None


def pw_top():
    """What pw-top shows now: of each node its ERR."""
    screen = subprocess.run(["tmux", "-L", env["JACK_DEFAULT_SERVER"], "capture-pane", "-p", "-J", "-t", "top"], env=env,
                            capture_output=True, text=True).stdout
    found = {}
    for line in screen.splitlines():
        words = line.split()
        # S ID QUANT RATE WAIT BUSY W/Q B/Q ERR ... NAME
        if len(words) >= 10 and words[0] in ("R", "I", "S", "C") and words[1].isdigit():
            found[words[-1]] = int(words[8])
    return found


def ask(path):
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(10)
            s.connect(path)
            s.sendall(b'{"do":"stats"}\n')
            return json.loads(s.makefile().readline())
    except (OSError, ValueError):
        return None


def reading():
    now = {"play": ask(control)["xruns"]}
    return now | ({"observer": counts["observer"], "jackd": counts["server"]} if kind == "jackd" else {})


def logged():
    """What PipeWire's log tells by now: cycles that began while our node was not ready, of which some are told as a sum; those of the others
    that found it ready by the time they were written down; and when the newest was, s."""
    held = named = act = 0
    at, noted = 0.0, True
    for line in open(f"{dir}/pipewire.log", errors="replace"):
        if found := re.search(r"(\d+) events suppressed", line):
            held += int(found[1])
        elif "(quiet-sink-" in line and "graph not finished" in line:
            named, at = named + 1, float(re.search(r"\[(\d+\.\d+)\]", line)[1])
            noted = False
        elif "(quietcores-" in line and "status:finished" in line and "state:" in line and named and not noted:
            noted, act = True, act + 1
        elif "(quietcores-" in line and "xrun state" in line and "suppressed)" in line:
            named, at = named + 1, 0.0
    return held + named, held, act, at


def settle(what):
    """The counts of now, and on PipeWire the server's, which it is made to tell."""
    now = quiet(what)
    if kind == "jackd":
        return now
    # For 2 s after an event that it names the server holds back the others.
    until("an end of the server's events", lambda: time.monotonic() > logged()[3] + 2.5, 60)
    now = quiet(what)
    before, held = logged()[:2]
    os.kill(played.pid, signal.SIGSTOP)
    time.sleep(3 * period / 48000)
    os.kill(played.pid, signal.SIGCONT)
    until("the server's log after a stop", lambda: logged()[0] > before, 10)
    time.sleep(0.5)
    # Until 1.0 the first event of the stop tells how many were held back before it, and holds back the others; from 1.2 on all are named.
    late["held"], late["act"] = logged()[1:3]
    return now | {"server": before + late["held"] - held}


late = {}


def quiet(what):
    """The counts, when none has moved for a second."""
    last, since, end = reading(), time.monotonic(), time.monotonic() + 60
    while time.monotonic() - since < 1.5:
        time.sleep(0.3)
        now = reading()
        if now != last:
            last, since = now, time.monotonic()
        if time.monotonic() > end:
            print(f"  {what}: the counts never stood still for a second")
            break
    return last


ready, control, code = threading.Event(), f"{dir}/play.sock", 2
try:
    if kind == "jackd":
        server = start("jackd", "-R", "-P", "70", "-d", "dummy", "-r", "48000", "-p", str(period), stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=follow_log, args=(server.stdout,), daemon=True).start()
        until("jackd", lambda: subprocess.run(["jack_lsp"], env=env, capture_output=True).returncode == 0)
    else:
        os.makedirs(f"{dir}/config/pipewire/pipewire.conf.d")
        with open(f"{dir}/config/pipewire/pipewire.conf.d/sink.conf", "w") as file:
            file.write("context.objects = [ { factory = adapter args = { factory.name = support.null-audio-sink node.name = quiet-sink "
                       "media.class = Audio/Sink audio.position = [ FL FR ] } } ]\n")
        log = open(f"{dir}/pipewire.log", "w")
        start("pipewire", stdout=log, stderr=log, env=dict(env, PIPEWIRE_DEBUG="4"))
        until("pipewire", lambda: os.path.exists(f"{dir}/pipewire-0"))
        start("wireplumber", stdout=log, stderr=log)
        until("the sink", lambda: "quiet-sink" in subprocess.run(["pw-link", "--input"], env=env, capture_output=True, text=True).stdout)
        subprocess.run(["tmux", "-L", env["JACK_DEFAULT_SERVER"], "new-session", "-d", "-s", "top", "-x", "200", "-y", "50", "pw-top"],
                       env=env, check=True)
    if kind == "jackd":
        observer = client(sys.executable, os.path.abspath(__file__), program, "observe", stdout=subprocess.PIPE)
        threading.Thread(target=follow_observer, args=(observer.stdout,), daemon=True).start()
        until("the observer", ready.is_set)
    played = client(program, "play", "--host", "jack", "--control", control, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until("play", lambda: ask(control) or played.poll() is not None)
    if played.poll() is not None:
        raise SystemExit(played.stderr.read())
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "")
    print(f"# servers.py {kind} {minutes:g} {stress} {period}; {platform.release()}, {os.cpu_count()} CPUs, {cpu}, load {os.getloadavg()[0]:.1f}")
    before, shown = settle("before"), pw_top() if kind == "pipewire" else {}
    subprocess.run([program, "stress", stress, "--for", f"{minutes * 60:.0f}s"], env=os.environ, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, check=False)
    kept = dict(late)
    after = settle("after")
    stats = ask(control)
    shown = {node: count - shown.get(node, 0) for node, count in pw_top().items()} if kind == "pipewire" else {}
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(control)
        s.sendall(b'{"do":"quit"}\n')
        s.makefile().readline()
    told = json.loads(played.communicate(timeout=60)[0])
    told = told["status"] | {"device": told["device"]}
    time.sleep(1)
    print(f"{stats['rate']} frames a second, period {stats['period']}, real time {stats['real_time']}, {stats['blocks']} blocks, {minutes:g} minutes of {stress}")
    for name in after:
        print(f"  {name:<9} {after[name] - before[name]:>7} under the stress ({before[name]} before)")
    print(f"  play in all {told['xruns']}" + (f", the observer {counts['observer']}" if kind == "jackd" else f"; {told.get('device', '')}"))
    if kind == "pipewire":
        held, act = late["held"] - kept["held"], late["act"] - kept["act"]
        named = after["server"] - before["server"] - held
        print(f"  of the server's, {held} are told as a sum; of the {named} others {act} were ready by the time they were written down")
    if shown:
        print("  pw-top's ERR meanwhile: " + ", ".join(f"{node} {count}" for node, count in shown.items()))
    told = [after[name] - before[name] for name in after]
    apart = max(told) - min(told)
    # Between our last look at the frame time and the server's word that we are ready lie some microseconds.
    may = -(-told[-1] * act // max(named, 1)) if kind == "pipewire" else 0
    print("equal" if apart == 0 else f"equal but for {apart} of {told[-1]}; {may} may have been ready in the moment" if apart <= may else "NOT EQUAL")
    code = 0 if apart <= may else 1
finally:
    subprocess.run(["tmux", "-L", env["JACK_DEFAULT_SERVER"], "kill-server"], env=env, capture_output=True) if kind == "pipewire" else None
    for child in reversed(started):
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
    if os.environ.get("QUIET_KEEP"):
        print(dir, *said[-20:], sep="\n")
    else:
        shutil.rmtree(dir, ignore_errors=True)
sys.exit(code)
