//! Sound files out: WAV, written aside and renamed when whole.

use crate::{Error, ErrorKind, Result};
use std::{
    fs::{self, File, TryLockError},
    io::{self, BufWriter},
    path::{Path, PathBuf},
};

/// The samples of a WAV file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WavFormat {
    /// Whole numbers of so many bits: 16, 24 or 32.
    Whole(u16),
    /// 32-bit floats.
    Float,
}

impl WavFormat {
    fn bits(self) -> u16 {
        match self {
            WavFormat::Whole(bits) => bits,
            WavFormat::Float => 32,
        }
    }
}

/// A file on its way: under another name until [`Writer::finish`].
pub(super) struct Writer {
    wav: Option<hound::WavWriter<BufWriter<File>>>,
    /// The locked file while it has the other name.
    claimed: Option<File>,
    format: WavFormat,
    to: PathBuf,
    aside: PathBuf,
    force: bool,
    left: u64,
    pub(super) peak: f32,
    pub(super) clipped: u64,
}

fn shown(path: &Path) -> String {
    quiet_types::printable(&path.display().to_string(), 300)
}

impl Writer {
    pub(super) fn create(
        to: &Path,
        force: bool,
        format: WavFormat,
        channels: usize,
        rate: u32,
    ) -> Result<Writer> {
        let mut name = to.file_name().unwrap_or_default().to_owned();
        name.push(".part");
        let aside = to.with_file_name(name);
        let name = shown(&aside);
        let file = claim(&aside)?;
        let claimed = file.try_clone().map_err(|e| cannot(&name, e))?;
        let spec = hound::WavSpec {
            channels: channels as u16,
            sample_rate: rate,
            bits_per_sample: format.bits(),
            sample_format: match format {
                WavFormat::Float => hound::SampleFormat::Float,
                WavFormat::Whole(_) => hound::SampleFormat::Int,
            },
        };
        let wav = hound::WavWriter::new(BufWriter::with_capacity(1 << 16, file), spec)
            .map_err(|e| cannot(&name, e))?;
        Ok(Writer {
            wav: Some(wav),
            claimed: Some(claimed),
            format,
            to: to.to_owned(),
            aside,
            force,
            // A WAV file counts its bytes in 32 bits.
            left: (u64::from(u32::MAX) - 4096) / (u64::from(format.bits() / 8) * channels as u64),
            peak: 0.0,
            clipped: 0,
        })
    }

    /// One frame after the other, of planar `channels` from frame `from`.
    pub(super) fn write(&mut self, channels: &[&[f32]]) -> Result<()> {
        let frames = channels.first().map_or(0, |channel| channel.len());
        let (to, aside) = (shown(&self.to), shown(&self.aside));
        self.left = self.left.checked_sub(frames as u64).ok_or_else(|| {
            Error::of(
                ErrorKind::File,
                format!(
                    "cannot write {to}: WAV files end at 4 GiB; cut the input, or choose fewer bits"
                ),
            )
        })?;
        let cannot = |e: hound::Error| cannot(&aside, e);
        let Some(wav) = &mut self.wav else { return Ok(()) };
        for frame in 0..frames {
            for channel in channels {
                let x = channel[frame];
                self.peak = self.peak.max(x.abs());
                self.clipped += u64::from(x.abs() > 1.0);
                match self.format {
                    WavFormat::Float => wav.write_sample(x),
                    WavFormat::Whole(bits) => {
                        let steps = (1u64 << (bits - 1)) as f64;
                        let whole = (f64::from(x) * steps).round().clamp(-steps, steps - 1.0);
                        wav.write_sample(whole as i32)
                    }
                }
                .map_err(cannot)?;
            }
        }
        Ok(())
    }

    /// Makes it whole, puts it on the disk, and gives it its name.
    pub(super) fn finish(mut self) -> Result<()> {
        let aside = shown(&self.aside);
        if let Some(wav) = self.wav.take() {
            wav.finalize().map_err(|e| cannot(&aside, e))?;
        }
        if let Some(file) = &self.claimed {
            file.sync_all().map_err(|e| cannot(&aside, e))?;
        }
        let to = shown(&self.to);
        let mut rename = || {
            fs::rename(&self.aside, &self.to)?;
            self.claimed = None;
            Ok(())
        };
        let named = if self.force {
            rename()
        } else {
            // A link fails where the name is taken; a rename would overwrite.
            fs::hard_link(&self.aside, &self.to).or_else(|e| match e.kind() {
                io::ErrorKind::AlreadyExists => Err(e),
                // File systems without links.
                _ if self.to.exists() => Err(io::ErrorKind::AlreadyExists.into()),
                _ => rename(),
            })
        };
        named.map_err(|e| cannot(&to, e))
    }
}

fn cannot(name: &str, e: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::of(ErrorKind::File, format!("cannot write {name}: {e}")).because(e)
}

/// The file aside, new and locked for as long as it is open: whoever wants the same one meanwhile is
/// told so, and what an ended call left is replaced.
fn claim(aside: &Path) -> Result<File> {
    let name = shown(aside);
    let cannot = |e: io::Error| cannot(&name, e);
    let taken = || {
        Error::of(
            ErrorKind::File,
            format!(
                "cannot write {name}: another call is at it; wait for it, or give another name"
            ),
        )
    };
    // Never written through: it might be a link. A link is not opened either.
    let left = fs::symlink_metadata(aside).is_ok_and(|about| about.is_file());
    if let Some(old) = left.then(|| File::open(aside).ok()).flatten()
        && matches!(old.try_lock(), Err(TryLockError::WouldBlock))
    {
        return Err(taken());
    }
    match fs::remove_file(aside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(cannot(e)),
        _ => {}
    }
    let file = File::create_new(aside).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => taken(),
        _ => cannot(e),
    })?;
    // Where a file system knows no locks, nobody is kept out.
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(taken()),
        _ => Ok(file),
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.wav.take());
        if self.claimed.is_some() {
            let _ = fs::remove_file(&self.aside);
        }
    }
}
