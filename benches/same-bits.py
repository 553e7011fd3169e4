#!/usr/bin/env python3
"""same-bits.py OLD NEW: renders every amp of fixtures/amps and impulse responses of six lengths with two builds of quietcores, and compares
the samples that both wrote, bit by bit. For a change that is to leave the sound alone. Where bits differ, the largest difference is printed;
where lengths do, both. Exits with 1 where a sample differs."""
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
STAGES = """[[stage]]
kind = "biquad"
type = "peak"
frequency = 1000.0
gain = 6.0
q = 0.7
[[stage]]
kind = "delay"
time = 1.0
[[stage]]
kind = "gain"
gain = -9.0
"""


def wav(path, rate, samples):
    data = b"".join(struct.pack("<f", sample) for sample in samples)
    head = struct.pack("<IHHIIHH", 16, 3, 1, rate, rate * 4, 4, 32)
    path.write_bytes(b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + head + b"data" + struct.pack("<I", len(data)) + data)


def render(program, work, arguments):
    """The samples that it writes as bytes of 32 bits, or None where both inputs are refused."""
    for rate in (48000, 44100):
        out = work / "out.wav"
        out.unlink(missing_ok=True)
        command = [program, "render", str(work / f"{rate}.wav"), str(out), *arguments, "--force"]
        if subprocess.run(command, capture_output=True).returncode == 0:
            whole = out.read_bytes()
            return whole[whole.index(b"data") + 8:]
    return None


def largest(old, new):
    count = min(len(old), len(new)) // 4
    both = (struct.unpack(f"<{count}f", part[: count * 4]) for part in (old, new))
    return max(abs(a - b) for a, b in zip(*both))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    differ = refused = same = 0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        raw = (ROOT / "fixtures/amps/input_8192.f32").read_bytes()
        for rate in (48000, 44100):
            wav(work / f"{rate}.wav", rate, struct.unpack(f"<{len(raw) // 4}f", raw))
        lot = random.Random(5)
        cases = [(amp.name, ["--amp", str(amp)]) for end in ("nam", "json") for amp in sorted((ROOT / "fixtures/amps").glob(f"*.{end}"))]
        for taps in (1, 7, 64, 1000, 4096, 30000):
            response = [lot.gauss(0, 1) * math.exp(-4 * at / taps) / math.sqrt(taps) for at in range(taps)]
            wav(work / f"ir{taps}.wav", 48000, response)
            cases.append((f"ir of {taps}", ["--ir", str(work / f"ir{taps}.wav")]))
        (work / "stages.toml").write_text(STAGES)
        (work / "gate.toml").write_text('[[stage]]\nkind = "gate"\n')
        cases += [("peak, delay, gain", [str(work / "stages.toml")]), ("gate", [str(work / "gate.toml")])]
        for name, arguments in cases:
            old, new = (render(program, work, arguments) for program in sys.argv[1:])
            if old is None or new is None:
                refused += old is None and new is None
                differ += (old is None) != (new is None)
                print(f"{name}: refused by {'both' if old == new else 'OLD' if old is None else 'NEW'}")
                continue
            shared = min(len(old), len(new))
            said = "" if len(old) == len(new) else f" ({len(old) // 4} and {len(new) // 4} samples)"
            if old[:shared] == new[:shared]:
                same += 1
                if said:
                    print(f"{name}: the same{said}")
            else:
                differ += 1
                print(f"{name}: DIFFERS by {largest(old, new):.2g}{said}")
    print(f"{same} same, {differ} different, {refused} refused by both")
    sys.exit(differ > 0)


main()
