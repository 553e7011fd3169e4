//! How sound is on the link: rates, bits, channels.
//!
//! # Source
//! High Definition Audio Specification, revision 1.0a, 3.7.1 (stream format) and 7.3.4.7 (rates and sizes).

/// Rates that the link knows: bit in a converter's abilities, frames a second, bits 14 to 8 of the format's word.
const RATES: [(u8, u32, u16); 12] = [
    (0, 8_000, 0x0500),
    (1, 11_025, 0x4300),
    (2, 16_000, 0x0200),
    (3, 22_050, 0x4100),
    (4, 32_000, 0x0a00),
    (5, 44_100, 0x4000),
    (6, 48_000, 0x0000),
    (7, 88_200, 0x4800),
    (8, 96_000, 0x0800),
    (9, 176_400, 0x5800),
    (10, 192_000, 0x1800),
    (11, 384_000, 0x3800),
];

/// Bits a sample, best first: bit in a converter's abilities, bits, bits 6 to 4 of the format's word.
const DEPTHS: [(u8, u8, u16); 4] = [(20, 32, 4), (19, 24, 3), (18, 20, 2), (17, 16, 1)];

/// The format of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFormat {
    /// Frames a second.
    pub rate: u32,
    /// Bits of a sample that count: 16, 20, 24 or 32. In memory a sample of 16 bits takes 2 bytes, any other 4, its bits at the
    /// upper end.
    pub bits: u8,
    /// Channels, 1 to 16.
    pub channels: u8,
}

impl LinkFormat {
    /// The best format of a converter with these abilities (parameter 0Ah) at that rate; `None` where it has not that rate.
    pub fn best(abilities: u32, rate: u32, channels: u8) -> Option<LinkFormat> {
        let has = |bit: u8| abilities & (1 << bit) != 0;
        RATES.iter().find(|(bit, is, _)| *is == rate && has(*bit))?;
        let (_, bits, _) = DEPTHS.iter().find(|(bit, ..)| has(*bit))?;
        (1..=16).contains(&channels).then_some(LinkFormat { rate, bits: *bits, channels })
    }

    /// Rates of a converter with these abilities.
    pub fn rates(abilities: u32) -> Vec<u32> {
        let has = RATES.iter().filter(|(bit, ..)| abilities & (1 << bit) != 0);
        has.map(|(_, rate, _)| *rate).collect()
    }

    /// Bytes a sample takes in memory.
    pub fn sample_bytes(self) -> usize {
        if self.bits == 16 { 2 } else { 4 }
    }

    /// Bytes of a frame.
    pub fn frame_bytes(self) -> usize {
        self.sample_bytes() * usize::from(self.channels)
    }

    /// As registers and converters take it.
    pub fn word(self) -> u16 {
        let rate = RATES.iter().find(|(_, rate, _)| *rate == self.rate).map_or(0, |found| found.2);
        let depth =
            DEPTHS.iter().find(|(_, bits, _)| *bits == self.bits).map_or(1, |found| found.2);
        rate | depth << 4 | u16::from(self.channels.saturating_sub(1) & 0xf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_s_word_is_its_base_times_its_multiple_over_its_divisor() {
        for (_, rate, word) in RATES {
            let base = if word & 0x4000 == 0 { 48_000 } else { 44_100 };
            let (times, over) = (u32::from(word >> 11 & 7) + 1, u32::from(word >> 8 & 7) + 1);
            assert_eq!(base * times / over, rate);
        }
    }

    #[test]
    fn the_best_format_is_the_deepest_that_is_there() {
        // 16 and 24 bits; 44.1, 48 and 96 kHz.
        let abilities = 1 << 17 | 1 << 19 | 1 << 5 | 1 << 6 | 1 << 8;
        let format = LinkFormat::best(abilities, 48_000, 2).unwrap();
        assert_eq!((format.bits, format.word(), format.frame_bytes()), (24, 0x0031, 8));
        assert_eq!(LinkFormat::best(abilities, 44_100, 1).unwrap().word(), 0x4030);
        assert_eq!(LinkFormat::best(abilities, 192_000, 2), None);
        assert_eq!(LinkFormat::best(1 << 6, 48_000, 2), None);
        assert_eq!(LinkFormat::rates(abilities), [44_100, 48_000, 96_000]);
        assert_eq!(LinkFormat::best(1 << 17 | 1 << 6, 48_000, 2).unwrap().frame_bytes(), 4);
    }
}
