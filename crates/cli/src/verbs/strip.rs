//! How a strip is named on the command line: a file, or `--amp` and `--ir`.

use anyhow::Context;
use quiet_engine::render::{Description, Files};
use quiet_linux::files;
use std::path::{Path, PathBuf};

/// No strip file is larger.
const LARGEST: u64 = 1 << 20;

/// What a strip is made of, without a file that says so.
#[derive(clap::Args)]
pub struct Parts {
    /// A neural amp (.nam, Proteus, AIDA-X), in place of a strip file
    #[arg(long, value_name = "FILE")]
    pub amp: Option<PathBuf>,
    /// An impulse response, in place of a strip file or after --amp
    #[arg(long, value_name = "FILE")]
    pub ir: Option<PathBuf>,
}

impl Parts {
    /// Whether they name a strip.
    pub fn given(&self) -> bool {
        self.amp.is_some() || self.ir.is_some()
    }

    /// The strip that they name.
    pub fn strip(&self) -> anyhow::Result<(Description, Files)> {
        let mut stages = Vec::new();
        for (kind, path) in [("amp", &self.amp), ("ir", &self.ir)] {
            if let Some(path) = path {
                let name = path.to_str().with_context(|| {
                    format!("the name {} is not UTF-8: rename the file", path.display())
                })?;
                stages.push((kind, name));
            }
        }
        let strip = Description::of_files(&stages).map_err(|error| anyhow::anyhow!("{error}"))?;
        Ok((strip, Files::here()))
    }
}

/// The strip in a file.
pub fn read(path: &Path) -> anyhow::Result<(Description, Files)> {
    let shown = quiet_types::printable(&path.display().to_string(), 300);
    let text = files::read_text(path, LARGEST)
        .with_context(|| format!("cannot read the strip {shown}"))?;
    let strip = Description::parse(&text, &shown).map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok((strip, Files::beside(path)))
}
