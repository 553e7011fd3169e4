//! Samples as sound cards keep them: interleaved bytes, little-endian.

/// A sample format, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
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

impl Format {
    /// Best first.
    pub const ALL: [Format; 5] =
        [Format::S32, Format::S24, Format::S24Packed, Format::F32, Format::S16];

    /// Bytes a sample.
    pub fn bytes(self) -> usize {
        match self {
            Format::S32 | Format::S24 | Format::F32 => 4,
            Format::S24Packed => 3,
            Format::S16 => 2,
        }
    }

    /// ALSA's name.
    pub fn name(self) -> &'static str {
        match self {
            Format::S32 => "S32_LE",
            Format::S24 => "S24_LE",
            Format::S24Packed => "S24_3LE",
            Format::F32 => "FLOAT_LE",
            Format::S16 => "S16_LE",
        }
    }

    #[inline(always)]
    fn decode(self, bytes: &[u8]) -> f32 {
        match (self, bytes) {
            (Format::S32, &[a, b, c, d]) => {
                i32::from_le_bytes([a, b, c, d]) as f32 / 2_147_483_648.0
            }
            // The upper byte may hold anything.
            (Format::S24, &[a, b, c, _]) | (Format::S24Packed, &[a, b, c]) => {
                i32::from_le_bytes([0, a, b, c]) as f32 / 2_147_483_648.0
            }
            (Format::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
            (Format::S16, &[a, b]) => f32::from(i16::from_le_bytes([a, b])) / 32_768.0,
            _ => 0.0,
        }
    }

    #[inline(always)]
    fn encode(self, sample: f32, to: &mut [u8]) {
        // Rounded to the nearest; what is beyond full scale is cut off there.
        let scaled = |full: f32| (sample * full).round_ties_even();
        match self {
            // `as` saturates: 2^31 becomes the largest number.
            Format::S32 => to.copy_from_slice(&(scaled(2_147_483_648.0) as i32).to_le_bytes()),
            Format::S24 => {
                let value = scaled(8_388_608.0).clamp(-8_388_608.0, 8_388_607.0) as i32;
                to.copy_from_slice(&value.to_le_bytes());
            }
            Format::S24Packed => {
                let value = scaled(8_388_608.0).clamp(-8_388_608.0, 8_388_607.0) as i32;
                to.copy_from_slice(&value.to_le_bytes()[..3]);
            }
            Format::F32 => to.copy_from_slice(&sample.to_le_bytes()),
            Format::S16 => to.copy_from_slice(&(scaled(32_768.0) as i16).to_le_bytes()),
        }
    }

    /// Takes interleaved `bytes` of `channels` channels apart: channel n goes to `to[n]` from frame
    /// `at`; where there are fewer than `to` asks for, they are used again from the first.
    pub fn take_apart(
        self,
        bytes: &[u8],
        channels: usize,
        to: &mut [f32],
        (inputs, length, at): (usize, usize, usize),
    ) {
        let size = self.bytes();
        let planes = to.chunks_exact_mut(length).take(inputs).enumerate();
        for (n, plane) in planes {
            let own = bytes.chunks_exact(size).skip(n % channels).step_by(channels);
            for (sample, bytes) in plane[at..].iter_mut().zip(own) {
                *sample = self.decode(bytes);
            }
        }
    }

    /// Puts planes together into interleaved `bytes`: card channel n gets plane n, and where there
    /// are fewer planes, they are used again from the first.
    pub fn put_together(
        self,
        bytes: &mut [u8],
        channels: usize,
        from: &[f32],
        (outputs, length, at): (usize, usize, usize),
    ) {
        let size = self.bytes();
        for n in 0..channels {
            let plane = &from[(n % outputs.max(1)) * length..][..length];
            let own = bytes.chunks_exact_mut(size).skip(n).step_by(channels);
            for (bytes, sample) in own.zip(&plane[at..]) {
                self.encode(*sample, bytes);
            }
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
        for format in Format::ALL {
            let step = match format {
                Format::S16 => 1.0 / 32_768.0,
                Format::F32 => 0.0,
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
                let wanted = if format == Format::F32 { wanted } else { wanted.clamp(-1.0, 1.0) };
                assert!(
                    (sample - wanted).abs() <= step * 1.01,
                    "{format:?} {n}: {sample} {wanted}"
                );
            }
        }
    }

    #[test]
    fn the_idle_byte_of_24_in_32_bits_is_ignored() {
        assert_eq!(Format::S24.decode(&[0, 0, 0x40, 0xff]), 0.5);
        assert_eq!(Format::S24.decode(&[0xff, 0xff, 0xff, 0x00]), -1.0 / 8_388_608.0);
    }
}
