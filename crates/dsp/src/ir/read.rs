//! IRs out of bytes.

use super::{Error, Ir, MAX_CHANNELS, MAX_SAMPLES};
use crate::wav::WavData;
use quiet_types::SampleRate;
use std::io::{self, Cursor, Read};

/// What was found in a WAV file.
#[derive(Clone, Debug, PartialEq)]
pub struct Wav {
    /// As far as the file goes.
    pub ir: Ir,
    /// Frames that its header promises and that are not there.
    pub missing: u64,
}

/// No WAV file of [`MAX_SAMPLES`] samples is longer: eight bytes each, and what stands around them.
const MAX_BYTES: u64 = 8 * MAX_SAMPLES as u64 + (1 << 20);

impl Ir {
    /// Reads a WAV file: 8 to 32 bits, or floating point of 32 or 64. One that ends before its time is read
    /// as far as it goes.
    ///
    /// # Errors
    /// If the bytes cannot be had, are not WAV, or make no [`Ir`].
    pub fn from_wav(bytes: impl Read) -> Result<Wav, Error> {
        let mut all = Vec::new();
        bytes.take(MAX_BYTES + 1).read_to_end(&mut all).map_err(Error::Read)?;
        if all.len() as u64 > MAX_BYTES {
            return Err(Error::TooLarge);
        }
        let mut lost = 0;
        if let Some(odd) = WavData::odd(&mut Cursor::new(&all)).map_err(Error::Read)? {
            let samples = all.get(odd.at as usize..).unwrap_or_default();
            let samples = &samples[..samples.len().min(odd.bytes as usize)];
            lost = odd.missing;
            all = [&odd.header(odd.bytes)[..], samples].concat();
        }
        let mut found = usual(&all)?;
        found.missing += lost;
        Ok(found)
    }

    /// Reads raw little-endian samples of 32-bit floating point, frame after frame.
    ///
    /// # Errors
    /// If they make no whole frames, or no [`Ir`].
    pub fn from_f32(bytes: &[u8], channels: usize, rate: SampleRate) -> Result<Ir, Error> {
        let (samples, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() || channels == 0 || !samples.len().is_multiple_of(channels) {
            return Err(Error::Uneven { bytes: bytes.len(), frame: 4 * channels });
        }
        if samples.len() > MAX_SAMPLES {
            return Err(Error::TooLarge);
        }
        let samples: Vec<f32> = samples.iter().map(|&x| f32::from_le_bytes(x)).collect();
        deal(rate, channels, &samples)
    }

    /// Reads raw little-endian samples of 64-bit floating point, frame after frame.
    ///
    /// # Errors
    /// If they make no whole frames, or no [`Ir`].
    pub fn from_f64(bytes: &[u8], channels: usize, rate: SampleRate) -> Result<Ir, Error> {
        let (samples, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() || channels == 0 || !samples.len().is_multiple_of(channels) {
            return Err(Error::Uneven { bytes: bytes.len(), frame: 8 * channels });
        }
        if samples.len() > MAX_SAMPLES {
            return Err(Error::TooLarge);
        }
        let samples: Vec<f32> = samples.iter().map(|&x| f64::from_le_bytes(x) as f32).collect();
        deal(rate, channels, &samples)
    }

    /// Reads text: a line a frame, a column a channel, with blanks, commas or semicolons between them. Empty
    /// lines, and those that begin with `#`, `*`, `;`, `"` or `//`, are skipped.
    ///
    /// # Errors
    /// If a line is not understood, with its number; if they make no [`Ir`].
    pub fn from_text(text: &str, rate: SampleRate) -> Result<Ir, Error> {
        let (mut columns, mut samples) = (0, Vec::new());
        for (i, line) in text.lines().enumerate() {
            let (line, text) = (i + 1, line.trim().trim_start_matches('\u{feff}'));
            let skipped = text.starts_with(['#', '*', ';', '"']) || text.starts_with("//");
            if text.is_empty() || skipped {
                continue;
            }
            let before = samples.len();
            let between = |c: char| c.is_whitespace() || c == ',' || c == ';';
            for word in text.split(between).filter(|word| !word.is_empty()) {
                let sample: f32 = word.parse().map_err(|_| {
                    let word: String = word.chars().take(40).flat_map(char::escape_debug).collect();
                    Error::Text { line, why: format!("`{word}` is not a number") }
                })?;
                samples.push(sample);
                if samples.len() > MAX_SAMPLES || samples.len() - before > MAX_CHANNELS {
                    return Err(Error::TooLarge);
                }
            }
            let here = samples.len() - before;
            if columns == 0 {
                columns = here;
            }
            if here != columns {
                let why = format!("it has {here} numbers, the first one has {columns}");
                return Err(Error::Text { line, why });
            }
        }
        deal(rate, columns, &samples)
    }
}

/// A WAV file whose header tells the size of its data.
fn usual(all: &[u8]) -> Result<Wav, Error> {
    if let Some(found) = doubles(all)? {
        return Ok(found);
    }
    let reader = hound::WavReader::new(all).map_err(|error| wrong(&error))?;
    let spec = reader.spec();
    let channels = usize::from(spec.channels);
    let promised = u64::from(reader.len());
    if channels > MAX_CHANNELS {
        return Err(Error::TooLarge);
    }
    // No sample is shorter than a byte: what the header says is not believed.
    let likely = (promised as usize).min(all.len());
    let samples = match spec.sample_format {
        hound::SampleFormat::Float => gather(reader.into_samples::<f32>(), likely, |x| x)?,
        hound::SampleFormat::Int => {
            let full = (1u64 << (spec.bits_per_sample - 1)) as f32;
            gather(reader.into_samples::<i32>(), likely, |x| x as f32 / full)?
        }
    };
    let missing = promised.saturating_sub(samples.len() as u64).div_ceil(channels as u64);
    let ir = deal(SampleRate(spec.sample_rate), channels, &samples)?;
    Ok(Wav { ir, missing })
}

/// Frames to channels; an unfinished frame at the end is left out.
fn deal(rate: SampleRate, channels: usize, samples: &[f32]) -> Result<Ir, Error> {
    if channels == 0 {
        return Err(Error::Empty);
    }
    if channels > MAX_CHANNELS {
        return Err(Error::TooLarge);
    }
    let frames = samples.chunks_exact(channels);
    let channel = |c: usize| frames.clone().map(|frame| frame[c]).collect();
    Ir::new(rate, (0..channels).map(channel).collect())
}

/// All samples up to where the file ends.
fn gather<S>(
    samples: impl Iterator<Item = hound::Result<S>>,
    likely: usize,
    scale: impl Fn(S) -> f32,
) -> Result<Vec<f32>, Error> {
    let mut found = Vec::with_capacity(likely.min(MAX_SAMPLES));
    for sample in samples {
        match sample {
            Ok(sample) => found.push(scale(sample)),
            // The library says it in either of these ways.
            Err(hound::Error::IoError(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                break;
            }
            Err(hound::Error::FormatError(_) | hound::Error::IoError(_)) => break,
            Err(error) => return Err(wrong(&error)),
        }
        if found.len() > MAX_SAMPLES {
            return Err(Error::TooLarge);
        }
    }
    Ok(found)
}

fn wrong(error: &hound::Error) -> Error {
    Error::Wav(match error {
        hound::Error::Unsupported => {
            "its samples are neither whole numbers of 8 to 32 bits nor floating point; convert it"
                .into()
        }
        hound::Error::IoError(_) => "it ends within its header".into(),
        other => other.to_string(),
    })
}

/// 64-bit floating point, which the library does not read. None if it is something else.
fn doubles(bytes: &[u8]) -> Result<Option<Wav>, Error> {
    let Some(mut rest) =
        bytes.strip_prefix(b"RIFF").and_then(|b| b.get(4..)?.strip_prefix(b"WAVE"))
    else {
        return Ok(None);
    };
    let mut format = None;
    while let Some((head, body)) = rest.split_first_chunk::<8>() {
        let [a, b, c, d, len @ ..] = *head;
        let len = u32::from_le_bytes(len) as usize;
        let here = &body[..len.min(body.len())];
        match &[a, b, c, d] {
            b"fmt " => match Format::read(here) {
                Some(found) if found.bits == 64 && found.float => format = Some(found),
                _ => return Ok(None),
            },
            b"data" => {
                let Some(Format { channels, rate, .. }) = format else { return Ok(None) };
                let frame = 8 * usize::from(channels);
                if frame == 0 {
                    return Err(Error::Empty);
                }
                let whole = here.len() / frame * frame;
                let ir = Ir::from_f64(&here[..whole], channels.into(), SampleRate(rate))?;
                let missing = (len / frame) as u64 - ir.frames() as u64;
                return Ok(Some(Wav { ir, missing }));
            }
            _ => {}
        }
        rest = body.get(len + len % 2..).unwrap_or(&[]);
    }
    Ok(None)
}

struct Format {
    float: bool,
    channels: u16,
    rate: u32,
    bits: u16,
}

impl Format {
    fn read(bytes: &[u8]) -> Option<Format> {
        let word = |at: usize| Some(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let rate = u32::from(word(4)?) | u32::from(word(6)?) << 16;
        // 3 is floating point; 0xfffe has its real tag further on.
        let tag = if word(0)? == 0xfffe { word(24)? } else { word(0)? };
        Some(Format { float: tag == 3, channels: word(2)?, rate, bits: word(14)? })
    }
}
