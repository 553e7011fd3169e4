//! Sound as a file of 16 bits, and a file as text for a page.

/// A WAV of one channel.
pub(super) fn wav(sound: &[f32], rate: u32) -> Vec<u8> {
    let data = u32::try_from(sound.len() * 2).unwrap_or(u32::MAX);
    let mut file = Vec::with_capacity(44 + sound.len() * 2);
    file.extend(b"RIFF");
    file.extend(data.saturating_add(36).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16_u32.to_le_bytes());
    file.extend([1, 0, 1, 0]);
    file.extend(rate.to_le_bytes());
    file.extend((rate * 2).to_le_bytes());
    file.extend([2, 0, 16, 0]);
    file.extend(b"data");
    file.extend(data.to_le_bytes());
    for sample in sound {
        file.extend(((sample.clamp(-1.0, 1.0) * 32_767.0).round() as i16).to_le_bytes());
    }
    file
}

/// RFC 4648, section 4.
pub(super) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let whole = three
            .iter()
            .enumerate()
            .fold(0_u32, |whole, (at, byte)| whole | u32::from(*byte) << (16 - 8 * at));
        for at in 0..4 {
            let letter = LETTERS[(whole >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn a_wav_says_its_length_and_holds_its_samples() {
        let file = wav(&[0.0, 1.0, -1.0, 7.0], 16_000);
        assert_eq!(file.len(), 44 + 8);
        assert_eq!(&file[4..8], &44_u32.to_le_bytes());
        assert_eq!(&file[40..44], &8_u32.to_le_bytes());
        assert_eq!(&file[44..], [0, 0, 0xff, 0x7f, 0x01, 0x80, 0xff, 0x7f]);
    }
}
