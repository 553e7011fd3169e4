//! `import`: recipes of other tools, as a chain file.

use crate::face;
use anyhow::{Context, bail};
use quiet_plan::recipe::{self, Format};
use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Nobody writes a recipe that is larger.
const LARGEST: u64 = 1 << 20;

/// Read a recipe of another tool as a chain file
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cset set -l > old.txt; cset proc -l -s player >> old.txt
  quietcores import old.txt -o living-room.toml      listings of cset
  quietcores import /proc/cmdline                    isolcpus=, nohz_full=, irqaffinity=
  quietcores import /etc/rtirq.conf                  priorities of rtirq
  quietcores import realtime-variables.conf          isolated_cores= of tuned

What cannot be carried over stands in the chain file as comments. See it, then:
  quietcores plan living-room.toml")]
pub struct Args {
    /// The recipe; - for standard input
    file: PathBuf,
    /// What it is; told by its content when left out
    #[arg(long, value_name = "FORMAT")]
    format: Option<Kind>,
    /// Write the chain file here, which must not exist; else it goes to standard output
    #[arg(short, long, value_name = "CHAIN.toml")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    /// Listings of `cset set -l` and `cset proc -l`
    Cset,
    /// A kernel command line
    Isolcpus,
    /// rtirq.conf
    Rtirq,
    /// realtime-variables.conf or cpu-partitioning-variables.conf of tuned
    Tuned,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let shown = quiet_types::printable(&args.file.display().to_string(), 300);
    let text = read(&args.file, &shown)?;
    let format = match args.format {
        Some(Kind::Cset) => Format::Cset,
        Some(Kind::Isolcpus) => Format::Isolcpus,
        Some(Kind::Rtirq) => Format::Rtirq,
        Some(Kind::Tuned) => Format::Tuned,
        None => match recipe::detect(&text) {
            Some(format) => format,
            None => bail!(
                "cannot import {shown}: it looks like none of cset, isolcpus, rtirq, tuned; name \
                 what it is with --format"
            ),
        },
    };
    let name = args.file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = name.filter(|_| args.file.as_os_str() != "-").unwrap_or_else(|| "imported".into());
    let chain = recipe::import(&text, format, &name)
        .map_err(|error| anyhow::anyhow!("cannot import {shown}: {error}"))?;
    match &args.output {
        None => face::print(&chain)?,
        Some(path) => write(path, &chain)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path, shown: &str) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().take(LARGEST + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes))
    }
    .with_context(|| format!("cannot read {shown}"))?;
    if bytes.len() as u64 > LARGEST {
        bail!("cannot import {shown}: it is larger than 1 MiB");
    }
    String::from_utf8(bytes)
        .map_err(|_| anyhow::anyhow!("cannot import {shown}: it is not UTF-8 text"))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    let shown = quiet_types::printable(&path.display().to_string(), 300);
    let mut file = File::create_new(path)
        .with_context(|| format!("cannot write {shown}: name a file that does not exist yet"))?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {shown}"))?;
    face::say(&format!("wrote {shown}; see what it does with: quietcores plan {shown}"));
    Ok(())
}
