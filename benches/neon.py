#!/usr/bin/env python3
"""neon.py [[ir:]NAME=PROGRAM...]: instructions that a sample costs on aarch64, of ours and of other engines. They are counted, not timed: by QEMU's
user emulation with a plugin (benches/peers/instructions.rs), in blocks of 64, on one channel, as the difference between one pass and two.
PROGRAM is built for aarch64 and is called as crates/dsp/benches/peers says: FILE BLOCK INPUT PASSES [OUTPUT]; SLIM=0.0 asks for an amp's
least size. ir:NAME=PROGRAM plays impulse responses in place of amps. What each makes is compared with ours first. Ours is built for any
aarch64, as it is shipped. It needs rustup's library of the target, gcc-aarch64-linux-gnu, and Debian 12's qemu-user (QEMU=PROGRAM takes
another qemu-aarch64 that loads plugins)."""
import datetime
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = "aarch64-unknown-linux-gnu"
BLOCK = 64
# Name, file, and what SLIM says.
AMPS = [
    ("WaveNet standard", "BossWN-standard.nam", None), ("WaveNet lite", "syn_wavenet_lite.nam", None), ("WaveNet feather", "BossWN-feather.nam", None),
    ("WaveNet nano", "BossWN-nano.nam", None), ("A2 full", "BossWN-a2.nam", None), ("A2 lite", "BossWN-a2.nam", "0.0"),
    ("LSTM 1x16", "BossLSTM-1x16.nam", None), ("LSTM 2x8", "BossLSTM-2x8.nam", None), ("Proteus LSTM 40", "syn_proteus_lstm40.json", None),
]
IRS = [1024, 8192, 65536]
# Of a pass; a long IR has parts that come round only every so often.
SAMPLES = {"amp": 2048, "ir": 65536}


def emulator():
    """A qemu-aarch64 that loads plugins, and what it says that it is."""
    program = os.environ.get("QEMU", "qemu-aarch64")
    if not shutil.which(program):
        sys.exit(f"neon.py: there is no {program}: apt-get install qemu-user")
    if "-plugin" not in subprocess.run([program, "-h"], capture_output=True, text=True).stdout:
        sys.exit(f"neon.py: {program} loads no plugins; Debian 12's qemu-user does (QEMU=PROGRAM takes another one)")
    return program, subprocess.run([program, "--version"], capture_output=True, text=True).stdout.splitlines()[0]


def built(work):
    """Ours for aarch64, and the plugin."""
    environment = os.environ | {
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER": "aarch64-linux-gnu-gcc",
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS": "-C target-feature=+crt-static",
    }
    cargo = ["cargo", "build", "--release", "--locked", "-p", "quiet-dsp", "--example", "driver", "--target", TARGET, "--target-dir", "target/static"]
    subprocess.run(cargo, cwd=ROOT, env=environment, check=True)
    plugin = work / "instructions.so"
    rustc = ["rustc", "-O", "--edition", "2024", "--crate-type", "cdylib", "-o", plugin, "benches/peers/instructions.rs"]
    subprocess.run(rustc, cwd=ROOT, check=True)
    return str(ROOT / f"target/static/{TARGET}/release/examples/driver"), plugin


def counted(qemu, program, file, signal, passes, slim, output):
    """Instructions of a run, which writes what it makes to `output`."""
    environment = {name: value for name, value in os.environ.items() if name != "SLIM"}
    if slim is not None:
        environment["SLIM"] = slim
    words = [*qemu, program, str(file), str(BLOCK), str(signal), str(passes), str(output)]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, errors="replace")
    lines = [line for line in ran.stderr.splitlines() if line.strip()]
    if ran.returncode != 0:
        raise RuntimeError(([line for line in lines if not line.startswith("instructions:")] or ["no word"])[-1].replace(str(file), file.name))
    return int(lines[-1].removeprefix("instructions: "))


def numbers(path):
    raw = path.read_bytes()
    return struct.unpack(f"<{len(raw) // 4}f", raw)


def off(ours, theirs):
    """Energy of the difference over that of ours."""
    return sum((a - b) ** 2 for a, b in zip(ours, theirs, strict=True)) / (sum(x * x for x in ours) or 1.0)


def rows(qemu, engines, file, signal, slim, work):
    """For each engine instructions a sample and how far off it is, or why not."""
    reference, samples = None, signal.stat().st_size // 4
    for name, program in engines:
        output = work / "made.f32"
        output.unlink(missing_ok=True)
        try:
            once = counted(qemu, program, file, signal, 1, slim, output)
            made = numbers(output)
            reference = reference or made
            apart = off(reference, made)
            if not apart < 0.05:
                raise RuntimeError(f"plays something else: its difference to ours has {apart:.2f} of the energy")
            twice = counted(qemu, program, file, signal, 2, slim, output)
            yield name, (twice - once) / samples, apart
        except (RuntimeError, ValueError, OSError) as error:
            yield name, None, str(error)


def main():
    if any(word in ("-h", "--help") or "=" not in word for word in sys.argv[1:]):
        sys.exit(__doc__)
    program, version = emulator()
    out = pathlib.Path(os.environ.get("QUIET_OUT") or ROOT / f"benches/runs/{datetime.date.today()}-neon.txt")
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        ours, plugin = built(work)
        qemu = [program, "-plugin", str(plugin)]
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        peers = [tuple(word.split("=", 1)) for word in sys.argv[1:]]
        engines = {
            "amp": [("quietcores", ours)] + [peer for peer in peers if not peer[0].startswith("ir:")],
            "ir": [("quietcores", ours)] + [(name.removeprefix("ir:"), program) for name, program in peers if name.startswith("ir:")],
        }
        drawn = random.Random(2)

        def noise(count, loud):
            return b"".join(struct.pack("<f", drawn.uniform(-loud, loud)) for _ in range(count))

        signals = {kind: work / f"{kind}.f32" for kind in SAMPLES}
        signals["amp"].write_bytes((ROOT / "fixtures/amps/input_8192.f32").read_bytes()[: SAMPLES["amp"] * 4])
        signals["ir"].write_bytes(noise(SAMPLES["ir"], 1))
        what = [("amp", name, ROOT / "fixtures/amps" / file, slim) for name, file, slim in AMPS]
        for taps in IRS:
            file = work / f"ir{taps}.f32"
            file.write_bytes(noise(taps, 1 / taps))
            what.append(("ir", f"IR of {taps} taps", file, None))
        text = [f"# benches/neon.py: instructions a sample on aarch64, blocks of {BLOCK}; {version}; commit {commit}",
                f"{'amp or IR':18} {'engine':>18} {'a sample':>9} {'of ours':>8} {'off by':>8}"]
        print(*text, sep="\n", flush=True)
        for kind, name, file, slim in what:
            first = None
            for engine, count, apart in rows(qemu, engines[kind], file, signals[kind], slim, work):
                if count is None:
                    line = f"{name:18} {engine:>18} refused: {apart}"
                else:
                    first = first or count
                    line = f"{name:18} {engine:>18} {count:9.0f} {count / first:8.2f} {apart:8.1e}"
                text.append(line)
                print(line, flush=True)
        out.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
