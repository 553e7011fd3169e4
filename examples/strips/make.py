#!/usr/bin/env python3
"""examples/strips/make.py: computes amp.nam, cabinet.wav and correction.wav beside this script.

None of them is a capture of a device or a room: every number follows from the lines below. They are under the licences of the project (MIT or
Apache-2.0). It needs Python's standard library alone.
"""
import cmath
import json
import math
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
RATE = 48000


# The amp: a net of two layers with weights set by hand. Each of its four channels is a gain stage with a curve of its own: the first layer
# takes lows out before it clips (a tight low end), the second one smooths what the first has made. Offsets make the curves uneven,
# which gives even harmonics, as tubes do.
GAINS = [2.0, 7.0, 16.0, 30.0]
OFFSETS = [0.0, 0.22, -0.12, 0.05]
TIGHT = [0.0, 0.55, 0.8, 0.93]
SECOND = [0.6, 1.3, 1.7, 1.4]
MIX = [0.16, 0.22, 0.2, 0.1]
SMOOTH = [0.25, 0.5, 0.25]


def layer_one(channel):
    """Taps from the oldest to the newest sample."""
    gain = GAINS[channel]
    return [0.0, -gain * TIGHT[channel], gain]


def amp():
    channels, weights = len(GAINS), []
    weights += [1.0] * channels
    for layer in range(2):
        taps = [layer_one(c) if layer == 0 else [SECOND[c] * tap for tap in SMOOTH] for c in range(channels)]
        for out in range(channels):
            for into in range(channels):
                weights += taps[out] if out == into else [0.0, 0.0, 0.0]
        weights += OFFSETS if layer == 0 else [-offset for offset in OFFSETS]
        # The second stage hears the first one alone: the input is mixed in nowhere.
        weights += [0.0] * channels
        weights += [float(out == into) for out in range(channels) for into in range(channels)]
        weights += [0.0] * channels
    # At rest it gives nothing: what the offsets leave is taken off at the end.
    first = [math.tanh(offset) for offset in OFFSETS]
    second = [math.tanh(SECOND[c] * first[c] - OFFSETS[c]) for c in range(channels)]
    weights += MIX
    weights += [-sum(MIX[c] * (first[c] + second[c]) for c in range(channels))]
    weights += [0.8]
    layer = dict(input_size=1, condition_size=1, head_size=1, channels=channels, kernel_size=3, dilations=[1, 2],
                 activation="Tanh", gated=False, head_bias=True)
    return dict(version="0.5.4", architecture="WaveNet", sample_rate=RATE,
                metadata=dict(name="quietcores example", modeled_by="computed by examples/strips/make.py", gear_type="amp"),
                config=dict(layers=[layer], head=None, head_scale=0.8), weights=[float("%.7g" % w) for w in weights])


# The cabinet: a curve of a loudspeaker of 12 inches in a closed box, as an impulse response with as little delay as that curve allows.
def curve(hertz):
    """dB."""
    bump = lambda at, width, gain: gain * math.exp(-((math.log2(max(hertz, 1.0) / at) / width) ** 2))
    low = -10 * math.log10(1 + (85 / max(hertz, 1.0)) ** 4)
    high = -10 * math.log10(1 + (hertz / 4800) ** 8)
    return low + high + bump(115, 0.5, 4.0) + bump(420, 0.7, -3.5) + bump(2700, 0.6, 6.0) + bump(3900, 0.12, -5.0) + bump(1500, 0.25, -1.5)


def fft(values, sign):
    size = len(values)
    if size == 1:
        return values
    even, odd = fft(values[0::2], sign), fft(values[1::2], sign)
    turned = [cmath.exp(sign * 2j * math.pi * k / size) * odd[k] for k in range(size // 2)]
    return [even[k] + turned[k] for k in range(size // 2)] + [even[k] - turned[k] for k in range(size // 2)]


# A room: what two loudspeakers of a made-up living room would be corrected by, one impulse response for each.
def bell(at, width, gain, hertz):
    return gain * math.exp(-((math.log2(max(hertz, 1.0) / at) / width) ** 2))


def left(hertz):
    return bell(62, 0.25, -6.0, hertz) + bell(140, 0.3, 2.5, hertz) + bell(310, 0.4, -2.0, hertz) + bell(9000, 1.2, -1.5, hertz)


def right(hertz):
    return bell(62, 0.25, -4.0, hertz) + bell(125, 0.3, 3.0, hertz) + bell(280, 0.4, -2.5, hertz) + bell(9000, 1.2, -1.5, hertz)


def minimum_phase(curve, size=8192, kept=2048):
    """Minimum phase by the cepstrum: the causal half of the logarithm's transform, doubled."""
    logs = [max(curve(min(k, size - k) * RATE / size), -90.0) * math.log(10) / 20 for k in range(size)]
    cepstrum = [value.real / size for value in fft([complex(x) for x in logs], +1)]
    folded = [cepstrum[0]] + [2 * x for x in cepstrum[1 : size // 2]] + [cepstrum[size // 2]] + [0.0] * (size // 2 - 1)
    spectrum = [cmath.exp(value) for value in fft([complex(x) for x in folded], -1)]
    taps = [value.real / size for value in fft(spectrum, +1)][:kept]
    # It ends in silence: a quarter of a cosine over the last half.
    half = kept // 2
    taps = [tap * (1.0 if n < half else 0.5 + 0.5 * math.cos(math.pi * (n - half) / half)) for n, tap in enumerate(taps)]
    peak = max(abs(tap) for tap in taps)
    return taps, peak


def wav(*channels):
    """24 bits."""
    width = 3 * len(channels)
    data = b"".join(struct.pack("<i", round(tap * 8388607))[:3] for frame in zip(*channels) for tap in frame)
    head = b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, len(channels), RATE, RATE * width, width, 24) + b"data" + struct.pack("<I", len(data))
    return b"RIFF" + struct.pack("<I", len(head) + len(data)) + head + data


(HERE / "amp.nam").write_text(json.dumps(amp()) + "\n")
taps, peak = minimum_phase(curve)
(HERE / "cabinet.wav").write_bytes(wav([tap / peak * 0.9 for tap in taps]))
pair = [minimum_phase(side, 32768, 8192) for side in (left, right)]
# Both by the same factor: one loudspeaker is not to become louder than the other.
peak = max(pair[0][1], pair[1][1])
(HERE / "correction.wav").write_bytes(wav(*([tap / peak * 0.9 for tap in taps] for taps, _ in pair)))
