//! WAV files whose header does not tell the size of their data.
//!
//! Streams write all ones, or nothing, where the size belongs; RF64 and BW64 (EBU Tech 3306, ITU-R BS.2088) keep
//! it in a chunk `ds64` of 64 bits. What follows the header is the same. A chunk of an odd length is followed by a byte
//! that does not count; the library that reads ordinary files passes over none.

use std::io::{self, Read, Seek, SeekFrom};

/// No `fmt ` chunk that is read is longer, bytes.
const LONGEST_FORMAT: u32 = 1024;
/// Chunks that may stand before the data.
const MOST_CHUNKS: usize = 4096;

/// Where the samples of such a file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WavData {
    format: Vec<u8>,
    /// The first byte of the samples.
    pub at: u64,
    /// Bytes of samples that are there, whole frames.
    pub bytes: u64,
    /// Frames that the header promises and that are not there.
    pub missing: u64,
}

impl WavData {
    /// Looks through a file from its beginning; none where it is an ordinary WAV file, or none at all. The place in
    /// the file is another afterwards.
    ///
    /// # Errors
    /// If the bytes cannot be had.
    pub fn odd(from: &mut (impl Read + Seek)) -> io::Result<Option<WavData>> {
        let end = from.seek(SeekFrom::End(0))?;
        from.rewind()?;
        let Some([a, b, c, d, size @ .., w, x, y, z]) = next::<12>(from)? else { return Ok(None) };
        if [w, x, y, z] != *b"WAVE" {
            return Ok(None);
        }
        let wide = [*b"RF64", *b"BW64"].contains(&[a, b, c, d]);
        if !wide && [a, b, c, d] != *b"RIFF" {
            return Ok(None);
        }
        let riff = u32::from_le_bytes(size);
        let (mut format, mut at, mut long, mut filled) = (Vec::new(), 12u64, None, false);
        for _ in 0..MOST_CHUNKS {
            from.seek(SeekFrom::Start(at))?;
            let Some([a, b, c, d, size @ ..]) = next::<8>(from)? else { return Ok(None) };
            at += 8;
            let size = u32::from_le_bytes(size);
            match &[a, b, c, d] {
                b"ds64" => {
                    let Some([_, _, _, _, _, _, _, _, data @ ..]) = next::<16>(from)? else {
                        return Ok(None);
                    };
                    long = Some(u64::from_le_bytes(data));
                }
                b"fmt " if size <= LONGEST_FORMAT => {
                    format.clear();
                    from.by_ref().take(u64::from(size)).read_to_end(&mut format)?;
                }
                b"data" => {
                    let promised = match (size, long.filter(|_| wide)) {
                        (u32::MAX, Some(long)) => Some(long),
                        (u32::MAX, None) => None,
                        (0, None) if riff == 0 => None,
                        (size, _) if wide || filled => Some(u64::from(size)),
                        _ => return Ok(None),
                    };
                    return Ok(WavData::of(format, at, promised, end));
                }
                _ => {}
            }
            at += u64::from(size) + u64::from(size % 2);
            filled |= size % 2 == 1;
        }
        Ok(None)
    }

    fn of(format: Vec<u8>, at: u64, promised: Option<u64>, end: u64) -> Option<WavData> {
        let frame = u64::from(u16::from_le_bytes([*format.get(12)?, *format.get(13)?]));
        if frame == 0 {
            return None;
        }
        let there = end.saturating_sub(at);
        let bytes = promised.unwrap_or(there).min(there) / frame * frame;
        let missing = promised.map_or(0, |promised| promised / frame - bytes / frame);
        Some(WavData { format, at, bytes, missing })
    }

    /// Bytes of a frame.
    pub fn frame(&self) -> u64 {
        u64::from(u16::from_le_bytes([self.format[12], self.format[13]]))
    }

    /// The most bytes of samples that one ordinary header can tell: whole frames.
    pub fn part(&self) -> u64 {
        let frame = self.frame();
        (u64::from(u32::MAX) - 2 * u64::from(LONGEST_FORMAT)) / frame * frame
    }

    /// An ordinary header for `bytes` of the samples, at most [`WavData::part`].
    pub fn header(&self, bytes: u64) -> Vec<u8> {
        let bytes = bytes.min(self.part()) as u32;
        let format = self.format.len() as u32;
        let odd = format % 2;
        let mut header = b"RIFF".to_vec();
        header.extend((20 + format + odd).wrapping_add(bytes).to_le_bytes());
        header.extend(b"WAVEfmt ");
        header.extend(format.to_le_bytes());
        header.extend(&self.format);
        header.extend(&[0u8][..odd as usize]);
        header.extend(b"data");
        header.extend(bytes.to_le_bytes());
        header
    }
}

/// The next bytes; none at the end.
fn next<const N: usize>(from: &mut impl Read) -> io::Result<Option<[u8; N]>> {
    let mut bytes = [0; N];
    match from.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Ir;
    use std::io::Cursor;

    const SAMPLES: [f32; 3] = [0.5, -0.25, 1.0];

    fn file(name: &[u8; 4], riff: u32, ds64: Option<u64>, data: u32) -> Vec<u8> {
        let mut file = name.to_vec();
        file.extend(riff.to_le_bytes());
        file.extend(b"WAVE");
        if let Some(data) = ds64 {
            file.extend(b"ds64\x1c\0\0\0");
            file.extend([99, data, 3].map(u64::to_le_bytes).concat());
            file.extend([0; 4]);
        }
        file.extend(b"LIST\x04\0\0\0abc\0fmt \x10\0\0\0\x03\0\x01\0");
        file.extend([48_000u32, 192_000].map(u32::to_le_bytes).concat());
        file.extend(b"\x04\0\x20\0data");
        file.extend(data.to_le_bytes());
        file.extend(SAMPLES.map(f32::to_le_bytes).concat());
        file
    }

    /// The same with a chunk of an odd length.
    fn filled(mut file: Vec<u8>) -> Vec<u8> {
        let at = file.windows(4).position(|four| four == b"LIST").expect("a list");
        file[at + 4] = 3;
        file
    }

    #[test]
    fn a_size_that_is_not_told_is_that_of_the_file() {
        for (file, missing) in [
            (file(b"RIFF", u32::MAX, None, u32::MAX), 0),
            (file(b"RIFF", 0, None, 0), 0),
            (file(b"RF64", u32::MAX, Some(12), u32::MAX), 0),
            (file(b"BW64", u32::MAX, Some(12), u32::MAX), 0),
            (file(b"BW64", u32::MAX, Some(1 << 40), u32::MAX), (1 << 38) - 3),
            (file(b"RF64", u32::MAX, None, 12), 0),
            (file(b"RIFF", 0, None, 16), 1),
            (filled(file(b"RIFF", 60, None, 12)), 0),
            (filled(file(b"RIFF", 60, None, 16)), 1),
            ([&file(b"RIFF", u32::MAX, None, u32::MAX)[..], &[1, 2]].concat(), 0),
        ] {
            let read = Ir::from_wav(&file[..]).expect("a WAV file");
            assert_eq!((&read.ir.channels[0][..], read.missing), (&SAMPLES[..], missing));
        }
        // An ordinary one is left alone; so is what is none.
        for other in [file(b"RIFF", 60, None, 12), b"RF64".to_vec(), Vec::new()] {
            assert_eq!(WavData::odd(&mut Cursor::new(other)).expect("bytes"), None);
        }
        // RF64 tells less than there is: what is behind it is no sound.
        let read = Ir::from_wav(&file(b"RF64", u32::MAX, Some(8), u32::MAX)[..]).expect("a file");
        assert_eq!(read.ir.channels[0], SAMPLES[..2]);
    }

    #[test]
    fn a_header_for_a_part_is_an_ordinary_one() {
        let bytes = file(b"RF64", u32::MAX, Some(12), u32::MAX);
        let odd = WavData::odd(&mut Cursor::new(&bytes)).expect("bytes").expect("an odd one");
        assert_eq!((odd.at, odd.bytes), (bytes.len() as u64 - 12, 12));
        let header = odd.header(8);
        let part = [&header[..], &bytes[odd.at as usize..][..8]].concat();
        assert_eq!(Ir::from_wav(&part[..]).expect("a file").ir.channels[0], SAMPLES[..2]);
    }
}
