//! The files that a strip names, read from beside it.

use crate::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// No amp and no impulse response is larger, MiB.
const LARGEST: u64 = 256;

/// Brings the files that a strip names.
#[derive(Clone, Debug)]
pub struct Files {
    base: PathBuf,
}

impl Files {
    /// Names are taken from the folder of the strip file at `strip`.
    pub fn beside(strip: &Path) -> Files {
        Files { base: strip.parent().map(Path::to_owned).unwrap_or_default() }
    }

    /// Names are taken from the working directory.
    pub fn here() -> Files {
        Files { base: PathBuf::new() }
    }
}

impl quiet_dsp::strip::FileSource for Files {
    fn load(&mut self, name: &str) -> Result<Vec<u8>, quiet_dsp::strip::NotHad> {
        Ok(read(&self.base.join(name), LARGEST)?)
    }
}

/// The bytes of a file that is no larger than `largest`, so many MiB.
pub(crate) fn read(path: &Path, largest: u64) -> crate::Result<Vec<u8>> {
    let shown = quiet_types::printable(&path.display().to_string(), 300);
    quiet_linux::files::read(path, largest << 20)
        .map_err(|e| Error::of(ErrorKind::File, format!("cannot read {shown}: {e}")).because(e))
}
