//! Samples as sound cards keep them: interleaved bytes, little-endian.

/// A sample format, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleFormat {
    /// 32 bits.
    S32,
    /// 24 bits in the low end of 32.
    S24,
    /// 24 bits in 3 bytes.
    S24Packed,
    /// 32-bit float.
    F32,
    /// 16 bits.
    S16,
}

impl SampleFormat {
    /// Best first.
    pub const ALL: [SampleFormat; 5] = [
        SampleFormat::S32,
        SampleFormat::S24,
        SampleFormat::S24Packed,
        SampleFormat::F32,
        SampleFormat::S16,
    ];

    /// Bytes a sample.
    pub fn bytes(self) -> usize {
        match self {
            SampleFormat::S32 | SampleFormat::S24 | SampleFormat::F32 => 4,
            SampleFormat::S24Packed => 3,
            SampleFormat::S16 => 2,
        }
    }

    /// ALSA's name.
    pub fn name(self) -> &'static str {
        match self {
            SampleFormat::S32 => "S32_LE",
            SampleFormat::S24 => "S24_LE",
            SampleFormat::S24Packed => "S24_3LE",
            SampleFormat::F32 => "FLOAT_LE",
            SampleFormat::S16 => "S16_LE",
        }
    }

    /// Takes interleaved `bytes` of `channels` channels apart: channel n goes to `to[n]` from frame
    /// `at`; where there are fewer than `to` asks for, they are used again from the first.
    ///
    /// # Real time
    /// Yes.
    pub fn take_apart(
        self,
        bytes: &[u8],
        channels: usize,
        to: &mut [f32],
        place: (usize, usize, usize),
    ) {
        match self {
            SampleFormat::S32 => apart(bytes, channels, to, place, s32),
            SampleFormat::S24 => apart(bytes, channels, to, place, s24),
            SampleFormat::S24Packed => apart(bytes, channels, to, place, s24_packed),
            SampleFormat::F32 => apart(bytes, channels, to, place, f32::from_le_bytes),
            SampleFormat::S16 => apart(bytes, channels, to, place, s16),
        }
    }

    /// Puts planes together into interleaved `bytes`: card channel n gets plane n, and where there
    /// are fewer planes, they are used again from the first. Samples are rounded to the nearest
    /// step, to the even one of two; what is beyond full scale is cut off there.
    ///
    /// # Real time
    /// Yes.
    pub fn put_together(
        self,
        bytes: &mut [u8],
        channels: usize,
        from: &[f32],
        place: (usize, usize, usize),
    ) {
        match self {
            SampleFormat::S32 => together(bytes, channels, from, place, to_s32),
            SampleFormat::S24 => together(bytes, channels, from, place, to_s24),
            SampleFormat::S24Packed => together(bytes, channels, from, place, to_s24_packed),
            SampleFormat::F32 => together(bytes, channels, from, place, f32::to_le_bytes),
            SampleFormat::S16 => together(bytes, channels, from, place, to_s16),
        }
    }
}

fn s32(bytes: [u8; 4]) -> f32 {
    i32::from_le_bytes(bytes) as f32 / 2_147_483_648.0
}

fn s24(bytes: [u8; 4]) -> f32 {
    // The upper byte may hold anything.
    (i32::from_le_bytes(bytes) << 8) as f32 / 2_147_483_648.0
}

fn s24_packed([a, b, c]: [u8; 3]) -> f32 {
    i32::from_le_bytes([0, a, b, c]) as f32 / 2_147_483_648.0
}

fn s16(bytes: [u8; 2]) -> f32 {
    f32::from(i16::from_le_bytes(bytes)) / 32_768.0
}

fn to_s32(sample: f32) -> [u8; 4] {
    whole(sample, 2_147_483_648.0).to_le_bytes()
}

fn to_s24(sample: f32) -> [u8; 4] {
    whole(sample, 8_388_608.0).to_le_bytes()
}

fn to_s24_packed(sample: f32) -> [u8; 3] {
    let [a, b, c, _] = to_s24(sample);
    [a, b, c]
}

fn to_s16(sample: f32) -> [u8; 2] {
    (whole(sample, 32_768.0) as i16).to_le_bytes()
}

/// In steps of one of `full`, the nearest of them, the even one of two; no number is silence.
///
/// Written in operations that every processor has for vectors: beyond 2^52 a double has no
/// fraction, so an addition that ends there rounds, and its low bits are the whole number.
#[inline(always)]
fn whole(sample: f32, full: f32) -> i32 {
    const BEYOND: f64 = 6_755_399_441_055_744.0;
    let scaled = sample * full;
    let scaled = f64::from(if scaled.is_nan() { 0.0 } else { scaled });
    let (low, high) = (-f64::from(full), f64::from(full) - 1.0);
    let scaled = if scaled > low { scaled } else { low };
    let scaled = if scaled < high { scaled } else { high };
    (scaled + BEYOND).to_bits() as i32
}

/// One loop a format and shape, so that each becomes a loop over vectors.
#[inline(always)]
fn apart<const N: usize>(
    bytes: &[u8],
    channels: usize,
    to: &mut [f32],
    (inputs, length, at): (usize, usize, usize),
    decode: impl Fn([u8; N]) -> f32,
) {
    let (cells, _) = bytes.as_chunks::<N>();
    if let (1, 1) = (channels, inputs) {
        for (sample, cell) in to[at..length].iter_mut().zip(cells) {
            *sample = decode(*cell);
        }
        return;
    }
    if let (2, 2) = (channels, inputs) {
        let (left, right) = to.split_at_mut(length);
        let both = left[at..].iter_mut().zip(&mut right[at..length]);
        for ((left, right), [a, b]) in both.zip(cells.as_chunks().0) {
            (*left, *right) = (decode(*a), decode(*b));
        }
        return;
    }
    for (n, plane) in to.chunks_exact_mut(length).take(inputs).enumerate() {
        let own = n % channels;
        for (sample, frame) in plane[at..].iter_mut().zip(cells.chunks_exact(channels)) {
            *sample = decode(frame[own]);
        }
    }
}

/// The way back.
#[inline(always)]
fn together<const N: usize>(
    bytes: &mut [u8],
    channels: usize,
    from: &[f32],
    (outputs, length, at): (usize, usize, usize),
    encode: impl Fn(f32) -> [u8; N],
) {
    let (cells, _) = bytes.as_chunks_mut::<N>();
    if let (1, 1) = (channels, outputs) {
        for (cell, sample) in cells.iter_mut().zip(&from[at..length]) {
            *cell = encode(*sample);
        }
        return;
    }
    if let (2, 2) = (channels, outputs) {
        let (left, right) = from.split_at(length);
        let both = left[at..].iter().zip(&right[at..length]);
        for ([a, b], (left, right)) in cells.as_chunks_mut().0.iter_mut().zip(both) {
            (*a, *b) = (encode(*left), encode(*right));
        }
        return;
    }
    for own in 0..channels {
        let plane = &from[(own % outputs.max(1)) * length..][..length];
        for (frame, sample) in cells.chunks_exact_mut(channels).zip(&plane[at..]) {
            frame[own] = encode(*sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_goes_there_and_back_to_its_own_step() {
        // Planar, two channels of five frames; written in two pieces, as a ring wraps.
        let planes = [0.0, 0.5, -0.5, 0.123_456_7, -1.0, 1.0, 2.0, -2.0, 1e-9, 0.75f32];
        for format in SampleFormat::ALL {
            let step = match format {
                SampleFormat::S16 => 1.0 / 32_768.0,
                SampleFormat::F32 => 0.0,
                _ => 1.0 / 8_388_608.0,
            };
            let frame = 3 * format.bytes();
            let mut bytes = vec![0u8; 5 * frame];
            let (first, second) = bytes.split_at_mut(2 * frame);
            format.put_together(first, 3, &planes, (2, 5, 0));
            format.put_together(second, 3, &planes, (2, 5, 2));
            let mut back = [9.0f32; 20];
            format.take_apart(&bytes, 3, &mut back, (4, 5, 0));
            for (n, sample) in back.iter().enumerate() {
                // Card channel 2 repeats plane 0; strip channel 3 repeats card channel 0.
                let plane = [0, 1, 0, 0][n / 5];
                let wanted = planes[plane * 5 + n % 5];
                let wanted =
                    if format == SampleFormat::F32 { wanted } else { wanted.clamp(-1.0, 1.0) };
                assert!(
                    (sample - wanted).abs() <= step * 1.01,
                    "{format:?} {n}: {sample} {wanted}"
                );
            }
        }
    }

    #[test]
    fn rounding_is_to_the_nearest_and_the_even_and_stops_at_full_scale() {
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0, -1.0, 1e-40, -0.0, 3e38];
        let halves = (-9..9).map(|n| (n as f32 + 0.5) / 8_388_608.0);
        // Any bits at all, and the samples that are met.
        let any = (0..200_000u32).map(|n| n.wrapping_mul(0x9e37_79b9));
        let met = any.clone().map(|bits| (bits as i32) as f32 / 1.9e9);
        for sample in odd.into_iter().chain(halves).chain(any.map(f32::from_bits)).chain(met) {
            for full in [2_147_483_648.0, 8_388_608.0, 32_768.0f32] {
                let exact = (f64::from(sample) * f64::from(full)).round_ties_even();
                // `as` saturates, and makes nothing of what is no number.
                let wanted = exact.clamp(-f64::from(full), f64::from(full) - 1.0) as i32;
                assert_eq!(whole(sample, full), wanted, "{sample:e} {full}");
            }
        }
    }

    #[test]
    fn every_shape_is_the_general_one() {
        let planes: Vec<f32> = (0..44).map(|n| (n as f32 / 21.0 - 1.0) * 0.9).collect();
        for format in SampleFormat::ALL {
            let size = format.bytes();
            for (channels, used) in [(1, 1), (2, 2), (1, 2), (2, 1), (4, 4), (3, 2)] {
                let mut bytes = vec![0u8; 11 * channels * size];
                format.put_together(&mut bytes, channels, &planes, (used, 11, 0));
                for (n, cell) in bytes.chunks_exact(size).enumerate() {
                    let from = planes[(n % channels % used) * 11 + n / channels];
                    let mut alone = vec![0u8; size];
                    format.put_together(&mut alone, 1, &[from], (1, 1, 0));
                    assert_eq!(cell, alone, "{format:?} {channels} {used} {n}");
                }
                let mut back = vec![9.0; 11 * used];
                format.take_apart(&bytes, channels, &mut back, (used, 11, 0));
                for (n, sample) in back.iter().enumerate() {
                    let at = (n % 11 * channels + n / 11 % channels) * size;
                    let mut alone = [9.0];
                    format.take_apart(&bytes[at..at + size], 1, &mut alone, (1, 1, 0));
                    assert_eq!(*sample, alone[0], "{format:?} {channels} {used} {n}");
                }
            }
        }
    }

    #[test]
    fn the_idle_byte_of_24_in_32_bits_is_ignored() {
        assert_eq!(s24([0, 0, 0x40, 0xff]), 0.5);
        assert_eq!(s24([0xff, 0xff, 0xff, 0x00]), -1.0 / 8_388_608.0);
    }
}
