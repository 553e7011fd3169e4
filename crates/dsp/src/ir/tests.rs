use super::*;
use std::{f64::consts::TAU, io::Cursor};

const RATE: SampleRate = SampleRate(48_000);

fn wav(
    spec: hound::WavSpec,
    write: impl Fn(&mut hound::WavWriter<&mut Cursor<Vec<u8>>>),
) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let mut writer = hound::WavWriter::new(&mut bytes, spec).unwrap();
    write(&mut writer);
    writer.finalize().unwrap();
    bytes.into_inner()
}

fn spec(channels: u16, bits: u16, sample_format: hound::SampleFormat) -> hound::WavSpec {
    hound::WavSpec { channels, sample_rate: RATE.0, bits_per_sample: bits, sample_format }
}

/// What 64-bit WAV looks like, by hand.
fn wav_f64(channels: u16, samples: &[f64], extensible: bool) -> Vec<u8> {
    let mut format = Vec::new();
    for word in [if extensible { 0xfffe } else { 3 }, channels] {
        format.extend(u16::to_le_bytes(word));
    }
    format.extend(RATE.0.to_le_bytes());
    format.extend((RATE.0 * 8 * u32::from(channels)).to_le_bytes());
    format.extend((8 * channels).to_le_bytes());
    format.extend(64u16.to_le_bytes());
    if extensible {
        format.extend([22, 0, 64, 0, 0, 0, 0, 0, 3, 0]);
        format.extend([0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71]);
    }
    let data: Vec<u8> = samples.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut bytes = b"RIFF____WAVE".to_vec();
    for (name, body) in [(b"fmt ", &format), (b"LIST", &vec![1, 2, 3]), (b"data", &data)] {
        bytes.extend(name);
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        bytes.extend(vec![0; body.len() % 2]);
    }
    bytes
}

#[test]
fn every_common_wav_is_read() {
    for bits in [8u16, 16, 24, 32] {
        let half = 1i32 << (bits - 2);
        let bytes = wav(spec(2, bits, hound::SampleFormat::Int), |w| {
            [half, -half, 0, -2 * half].iter().for_each(|&x| w.write_sample(x).unwrap());
        });
        let found = Ir::from_wav(&bytes[..]).unwrap();
        assert_eq!(found.ir.channels, [[0.5, 0.0], [-0.5, -1.0]], "{bits} bits");
        assert_eq!((found.ir.rate, found.missing), (RATE, 0));
    }
    let bytes = wav(spec(1, 32, hound::SampleFormat::Float), |w| {
        [1.5f32, -0.25].iter().for_each(|&x| w.write_sample(x).unwrap());
    });
    assert_eq!(Ir::from_wav(&bytes[..]).unwrap().ir.channels, [[1.5, -0.25]]);
    for extensible in [false, true] {
        let bytes = wav_f64(2, &[1.0, 2.0, 3.0, 4.0], extensible);
        let found = Ir::from_wav(&bytes[..]).unwrap();
        assert_eq!(found.ir.channels, [[1.0, 3.0], [2.0, 4.0]]);
    }
}

#[test]
fn a_wav_that_lies_about_its_length_is_read_as_far_as_it_goes() {
    let bytes = wav(spec(2, 16, hound::SampleFormat::Int), |w| {
        (0..200).for_each(|x| w.write_sample(x).unwrap());
    });
    // Cut within a frame.
    let found = Ir::from_wav(&bytes[..bytes.len() - 10]).unwrap();
    assert_eq!((found.ir.frames(), found.missing), (97, 3));
    // The largest length that there is.
    let mut endless = bytes.clone();
    let at = endless.windows(4).position(|w| w == b"data").unwrap() + 4;
    endless[at..at + 4].copy_from_slice(&0xffff_fffcu32.to_le_bytes());
    let found = Ir::from_wav(&endless[..]).unwrap();
    assert_eq!((found.ir.frames(), found.missing), (100, u64::from(0xffff_fffcu32 / 4) - 100));
    let mut doubles = wav_f64(1, &[1.0, 2.0], false);
    doubles.truncate(doubles.len() - 3);
    let found = Ir::from_wav(&doubles[..]).unwrap();
    assert_eq!((found.ir.frames(), found.missing), (1, 1));
    assert!(matches!(Ir::from_wav(&bytes[..30]), Err(Error::Wav(_))));
    assert!(matches!(Ir::from_wav(&b"no wav"[..]), Err(Error::Wav(_))));
    assert!(matches!(Ir::from_wav(std::io::repeat(0)), Err(Error::TooLarge)));
}

#[test]
fn raw_and_text_are_read() {
    let f32s: Vec<u8> = [1f32, 2.0, 3.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(Ir::from_f32(&f32s, 2, RATE).unwrap().channels, [[1.0, 3.0], [2.0, 4.0]]);
    assert!(matches!(Ir::from_f32(&f32s[1..], 2, RATE), Err(Error::Uneven { frame: 8, .. })));
    assert!(matches!(Ir::from_f32(&f32s, 0, RATE), Err(Error::Uneven { .. })));
    let f64s: Vec<u8> = [1f64, f64::MAX].iter().flat_map(|x| x.to_le_bytes()).collect();
    let found = Ir::from_f64(&f64s, 1, RATE);
    assert!(matches!(found, Err(Error::NotFinite { channel: 0, frame: 1, .. })), "beyond f32");
    let text = "# made by hand\n1, -2\r\n\n* more\n.5\t4e-1\n";
    assert_eq!(Ir::from_text(text, RATE).unwrap().channels, [[1.0, 0.5], [-2.0, 0.4]]);
    let sentence = |text| Ir::from_text(text, RATE).unwrap_err().to_string();
    assert_eq!(sentence("1 2\n3"), "line 2 of the IR: it has 1 numbers, the first one has 2");
    assert_eq!(sentence("1\n\nx"), "line 3 of the IR: `x` is not a number");
    assert_eq!(sentence("# only words"), "the IR has no samples");
    assert_eq!(sentence("inf"), "frame 0 of channel 0 of the IR is not a finite number");
}

fn mono(samples: &[f32]) -> Ir {
    Ir::new(RATE, vec![samples.to_vec()]).unwrap()
}

#[test]
fn trimmed_chosen_and_brought_to_a_level() {
    let ir = Ir::new(RATE, vec![vec![0.0, 1e-4, 3.0, 1e-3], vec![0.0, 0.0, -4.0, 0.0]]).unwrap();
    assert_eq!(ir.choose(&[1, 0]).unwrap().channels[0], [0.0, 0.0, -4.0, 0.0]);
    assert!(matches!(ir.choose(&[2]), Err(Error::Channel { asked: 2, channels: 2 })));
    assert_eq!(ir.trim(1, 2).unwrap().channels[0], [1e-4, 3.0]);
    assert!(matches!(ir.trim(4, 2), Err(Error::Empty)));
    assert_eq!(ir.trim_end(60.0).unwrap().frames(), 3);
    assert_eq!(ir.trim_end(80.0).unwrap().frames(), 4);
    assert_eq!(ir.trim_start(60.0).unwrap().channels[1], [-4.0, 0.0]);
    assert_eq!(ir.normalise(Normalise::Peak).unwrap().channels[0][2], 0.75);
    assert_eq!(mono(&[3.0, -4.0]).normalise(Normalise::Energy).unwrap().channels, [[0.6, -0.8]]);
    assert_eq!(mono(&[3.0, -1.0]).normalise(Normalise::Sum).unwrap().channels, [[0.75, -0.25]]);
    let gain = mono(&[1.0, -1.0]).normalise(Normalise::Gain).unwrap();
    assert!((gain.channels[0][0] - 0.5).abs() < 1e-6, "2 at half the rate");
    assert!((mono(&[1.0]).gain(20.0).channels[0][0] - 10.0).abs() < 1e-6);
    assert!(matches!(mono(&[0.0]).normalise(Normalise::Peak), Err(Error::Silent)));
}

#[test]
fn routes_fit_the_stream() {
    let ir = |n: usize| Ir::new(RATE, (0..n).map(|c| vec![c as f32]).collect()).unwrap();
    let pairs = |ir: Ir, channels| -> Vec<(usize, usize, f32)> {
        let routes = ir.routes(channels).unwrap();
        routes.iter().map(|r| (r.input, r.output, r.taps[0])).collect()
    };
    assert_eq!(pairs(ir(1), 2), [(0, 0, 0.0), (1, 1, 0.0)]);
    assert_eq!(pairs(ir(2), 2), [(0, 0, 0.0), (1, 1, 1.0)]);
    assert_eq!(pairs(ir(4), 2), [(0, 0, 0.0), (0, 1, 1.0), (1, 0, 2.0), (1, 1, 3.0)]);
    assert!(matches!(ir(3).routes(2), Err(Error::Fit { channels: 3, stream: 2 })));
}

/// Minimum phase: all zeros within the circle.
fn early() -> Vec<f32> {
    let mut taps = vec![1.0];
    for zero in [0.9f32, -0.5, 0.7] {
        taps.push(0.0);
        for k in (1..taps.len()).rev() {
            taps[k] -= zero * taps[k - 1];
        }
    }
    taps
}

#[test]
fn minimum_phase_is_what_it_was_and_undoes_a_reversal() {
    let mut taps = early();
    taps.resize(64, 0.0);
    for turned in [false, true] {
        let mut ir = taps.clone();
        if turned {
            ir.reverse();
        }
        let found = mono(&ir).minimum_phase().unwrap();
        for (x, wanted) in found.channels[0].iter().zip(&taps) {
            assert!((x - wanted).abs() < 1e-5, "{x} for {wanted}");
        }
    }
}

/// A pulse of limited bandwidth (Hann squared spectrum), centred at `centre` seconds.
fn pulse(rate: f64, frames: usize, centre: f64) -> Vec<f32> {
    let value = |n: usize| {
        let t = (n as f64 / rate - centre) * 1000.0;
        (-0.5 * t * t).exp() * (TAU * 3000.0 * (n as f64 / rate - centre)).cos() / rate
    };
    (0..frames).map(|n| value(n) as f32).collect()
}

#[test]
fn resampling_keeps_the_response() {
    for (from, to) in [(44_100, 48_000), (48_000, 44_100), (96_000, 48_000), (48_000, 192_000)] {
        let ir =
            Ir::new(SampleRate(from), vec![pulse(from.into(), from as usize / 25, 0.02)]).unwrap();
        let found = ir.resample(SampleRate(to)).unwrap();
        let wanted = pulse(to.into(), to as usize / 25, 0.02);
        assert_eq!(found.rate.0, to);
        assert!(found.frames().abs_diff(wanted.len()) <= 1);
        let peak = wanted.iter().fold(0f32, |m, x| m.max(x.abs()));
        let pairs = found.channels[0].iter().zip(&wanted);
        let error = pairs.map(|(x, w)| (x - w).abs()).fold(0f32, f32::max) / peak;
        assert!(error < 1e-6, "{from} to {to}: {error:e} of the peak");
    }
    let refused = mono(&[1.0]).resample(SampleRate(1)).unwrap_err().to_string();
    assert_eq!(
        refused,
        "the IR cannot be resampled from 48000 to 1 Hz: 1 Hz is not between 4000 and 1536000"
    );
}
