//! Sound files in: WAV and FLAC, a block at a time.

use crate::{Error, ErrorKind, Result};
use quiet_dsp::wav::WavData;
use std::{
    fs::File,
    io::{self, BufReader, Cursor, Read, Seek, SeekFrom},
    path::Path,
};

/// An open sound file.
pub(super) struct Reader {
    kind: Kind,
    name: String,
    pub(super) rate: u32,
    pub(super) channels: usize,
    /// As its header says; none where that does not.
    pub(super) frames: Option<u64>,
}

enum Kind {
    Wav(Box<WavFile>, Form),
    Flac(Box<claxon::FlacReader<BufReader<File>>>, Flac),
}

/// A file behind a header of ours, where its own does not tell the size.
struct Fed {
    header: Cursor<Vec<u8>>,
    file: BufReader<File>,
}

impl Read for Fed {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self.header.read(to)? {
            0 => self.file.read(to),
            count => Ok(count),
        }
    }
}

struct WavFile {
    /// None after an error alone.
    reader: Option<hound::WavReader<Fed>>,
    /// Where its own header does not tell the size, and the bytes that are still to come.
    odd: Option<(WavData, u64)>,
}

impl WavFile {
    fn open(mut file: BufReader<File>) -> hound::Result<WavFile> {
        let odd = WavData::odd(&mut file)?;
        let Some(odd) = odd else {
            file.rewind()?;
            let reader = hound::WavReader::new(Fed { header: Cursor::default(), file })?;
            return Ok(WavFile { reader: Some(reader), odd: None });
        };
        file.seek(SeekFrom::Start(odd.at))?;
        let here = odd.bytes.min(odd.part());
        let fed = Fed { header: Cursor::new(odd.header(here)), file };
        let left = odd.bytes - here;
        Ok(WavFile { reader: Some(hound::WavReader::new(fed)?), odd: Some((odd, left)) })
    }

    /// Goes on behind what one header can tell; says whether there is more.
    fn next(&mut self) -> hound::Result<bool> {
        let Some((odd, left)) = self.odd.as_mut().filter(|(_, left)| *left > 0) else {
            return Ok(false);
        };
        let Some(reader) = self.reader.take() else { return Ok(false) };
        let here = odd.part().min(*left);
        *left -= here;
        let header = Cursor::new(odd.header(here));
        self.reader = Some(hound::WavReader::new(Fed { header, ..reader.into_inner() })?);
        Ok(true)
    }
}

#[derive(Clone, Copy)]
enum Form {
    Float,
    /// Steps to full scale.
    Whole(f32),
}

struct Flac {
    steps: f32,
    block: Option<claxon::Block>,
    spare: Vec<i32>,
    at: u32,
}

impl Reader {
    pub(super) fn open(path: &Path) -> Result<Reader> {
        let name = quiet_types::printable(&path.display().to_string(), 300);
        let cannot = |e: io::Error| {
            Error::of(ErrorKind::File, format!("cannot read {name}: {e}")).because(e)
        };
        if !std::fs::metadata(path).map_err(cannot)?.is_file() {
            let sentence = format!("cannot read {name}: it is not a file");
            return Err(Error::of(ErrorKind::File, sentence));
        }
        let mut file = File::open(path).map_err(cannot)?;
        let mut magic = [0; 4];
        let _ = file.read(&mut magic).map_err(cannot)?;
        file.rewind().map_err(cannot)?;
        let file = BufReader::with_capacity(1 << 16, file);
        let reader = if &magic == b"fLaC" { flac(file, &name) } else { wav(file, &name) }?;
        if reader.channels == 0 || reader.channels > 64 || !(1_000..=768_000).contains(&reader.rate)
        {
            let sentence = format!(
                "cannot use {name}: {} channels at {} Hz; 1 to 64 at 1000 to 768000 Hz are \
                 possible",
                reader.channels, reader.rate
            );
            return Err(Error::of(ErrorKind::File, sentence));
        }
        Ok(reader)
    }

    /// Appends at most `frames` frames to each of `to`'s channels; 0 at the end.
    pub(super) fn read(&mut self, to: &mut [Vec<f32>], frames: usize) -> Result<usize> {
        let (name, channels) = (&self.name, self.channels);
        let broken = |what: &dyn std::fmt::Display| {
            Error::of(ErrorKind::File, format!("{name} ends early or is damaged: {what}"))
        };
        match &mut self.kind {
            Kind::Wav(wav, form) => {
                let mut count = 0;
                while count < frames * channels {
                    let before = count;
                    let mut take = |sample: hound::Result<f32>| {
                        to[count % channels].push(sample.map_err(|e| broken(&e))?);
                        count += 1;
                        Ok::<_, Error>(())
                    };
                    let most = frames * channels - before;
                    let Some(reader) = &mut wav.reader else { break };
                    match *form {
                        Form::Float => reader.samples::<f32>().take(most).try_for_each(take)?,
                        Form::Whole(steps) => reader
                            .samples::<i32>()
                            .take(most)
                            .try_for_each(|sample| take(sample.map(|x| x as f32 / steps)))?,
                    }
                    if count == before && !wav.next().map_err(|e| broken(&e))? {
                        break;
                    }
                }
                if count % channels != 0 {
                    return Err(broken(&"its last frame is not whole"));
                }
                Ok(count / channels)
            }
            Kind::Flac(reader, flac) => {
                if flac.block.as_ref().is_none_or(|block| flac.at == block.duration()) {
                    if let Some(block) = flac.block.take() {
                        flac.spare = block.into_buffer();
                    }
                    let spare = std::mem::take(&mut flac.spare);
                    flac.block = reader.blocks().read_next_or_eof(spare).map_err(|e| broken(&e))?;
                    flac.at = 0;
                }
                let Some(block) = &flac.block else { return Ok(0) };
                if block.channels() as usize != channels {
                    return Err(broken(&"the number of channels changes"));
                }
                let count = (block.duration() - flac.at).min(frames as u32);
                for (channel, to) in to.iter_mut().enumerate() {
                    let samples = &block.channel(channel as u32)[flac.at as usize..];
                    to.extend(samples[..count as usize].iter().map(|x| *x as f32 / flac.steps));
                }
                flac.at += count;
                Ok(count as usize)
            }
        }
    }
}

fn wav(file: BufReader<File>, name: &str) -> Result<Reader> {
    let file = WavFile::open(file).map_err(|e| {
        let sentence = format!("cannot read {name}: {e}; give a WAV file (PCM or float) or FLAC");
        Error::of(ErrorKind::File, sentence).because(e)
    })?;
    if let Some((odd, _)) = file.odd.as_ref().filter(|(odd, _)| odd.missing > 0) {
        let missing = odd.missing;
        let sentence =
            format!("{name} is damaged: it ends {missing} frames before its header says");
        return Err(Error::of(ErrorKind::File, sentence));
    }
    let Some(reader) = &file.reader else {
        return Err(Error::of(ErrorKind::Fault, format!("{name} is not open")));
    };
    let spec = reader.spec();
    let form = match spec.sample_format {
        hound::SampleFormat::Float => Form::Float,
        hound::SampleFormat::Int => {
            Form::Whole((1u64 << (spec.bits_per_sample.clamp(1, 32) - 1)) as f32)
        }
    };
    Ok(Reader {
        name: name.to_owned(),
        rate: spec.sample_rate,
        channels: usize::from(spec.channels),
        frames: Some(match &file.odd {
            Some((odd, _)) => odd.bytes / odd.frame(),
            None => u64::from(reader.duration()),
        }),
        kind: Kind::Wav(Box::new(file), form),
    })
}

fn flac(file: BufReader<File>, name: &str) -> Result<Reader> {
    let reader = claxon::FlacReader::new(file)
        .map_err(|e| Error::of(ErrorKind::File, format!("cannot read {name}: {e}")).because(e))?;
    let info = reader.streaminfo();
    let steps = (1u64 << (info.bits_per_sample.clamp(1, 32) - 1)) as f32;
    Ok(Reader {
        name: name.to_owned(),
        rate: info.sample_rate,
        channels: info.channels as usize,
        frames: info.samples,
        kind: Kind::Flac(Box::new(reader), Flac { steps, block: None, spare: Vec::new(), at: 0 }),
    })
}

/// A sound file of these bytes, read to its end, for the fuzz targets.
#[cfg(fuzzing)]
pub fn fuzzed(bytes: &[u8]) {
    let path = std::env::temp_dir().join(format!("quietcores-fuzz-sound-{}", std::process::id()));
    std::fs::write(&path, bytes).expect("a file");
    let Ok(mut reader) = Reader::open(&path) else { return };
    let mut to = vec![Vec::new(); reader.channels];
    // A few bytes may stand for long silence.
    for _ in 0..256 {
        to.iter_mut().for_each(Vec::clear);
        match reader.read(&mut to, 1000) {
            Ok(0) | Err(_) => break,
            Ok(count) => assert!(count <= 1000 && to.iter().all(|channel| channel.len() == count)),
        }
    }
}
