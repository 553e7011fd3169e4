//! `import`: recipes of other tools as a chain file, results of other tools as a run.

use super::walled::{folder, shut_all};
use crate::{face, keep};
use anyhow::{Context, bail};
use clap::{ValueEnum, builder::PossibleValue};
use quiet_engine::render::camilla;
use quiet_foreign as foreign;
use quiet_linux::files::{self, Replace};
use quiet_plan::recipe;
use quiet_store::Store;
use quiet_types::{
    Run,
    said::{IMPORTED, Imported},
};
use std::{
    fs::File,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Nobody writes a recipe that is larger.
const LARGEST_RECIPE: u64 = 1 << 20;
/// A histogram of every nanosecond of a second, on many CPUs, is some tens of MiB.
const LARGEST_RESULT: u64 = 64 << 20;

/// Read a recipe of another tool as a chain file, or its results as a run
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cset set -l > old.txt; cset proc -l -s player >> old.txt
  quietcores import old.txt -o living-room.toml      listings of cset
  quietcores import /proc/cmdline                    isolcpus=, nohz_full=, irqaffinity=
  quietcores import /etc/rtirq.conf                  priorities of rtirq
  quietcores import realtime-variables.conf          isolated_cores= of tuned

  cyclictest -q -h 400 -p 90 -D 10 > today.txt
  quietcores import today.txt                        kept beside the own runs, for compare and report
  quietcores import plot.dat --format latmus -o run.json

  quietcores import camilladsp.yml -o room.toml      filters, mixers and pipeline, as a strip

What cannot be carried over from a recipe stands in the chain file as comments. See it, then:
  quietcores plan living-room.toml")]
pub struct Args {
    /// The recipe or result; - for standard input
    file: PathBuf,
    /// What it is; told by its content when left out
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Write the chain file or run here, which must not exist [default: a chain to standard output,
    /// a run into the store]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Free words, kept with the run
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Keep runs here [default: $XDG_DATA_HOME/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Print the run, or what became of a recipe, as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Everything that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A recipe.
    Recipe(recipe::RecipeFormat),
    /// A result.
    Result(foreign::Format),
    /// A description of sound.
    Camilla,
}

const RECIPES: [(recipe::RecipeFormat, &str, &str); 4] = [
    (recipe::RecipeFormat::Cset, "cset", "Listings of `cset set -l` and `cset proc -l`"),
    (recipe::RecipeFormat::Isolcpus, "isolcpus", "A kernel command line"),
    (recipe::RecipeFormat::Rtirq, "rtirq", "rtirq.conf"),
    (
        recipe::RecipeFormat::Tuned,
        "tuned",
        "realtime-variables.conf or cpu-partitioning-variables.conf of tuned",
    ),
];

/// A result's format, for `--format` of export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultFormat(pub foreign::Format);

fn about(format: foreign::Format) -> &'static str {
    use foreign::Format;
    match format {
        Format::Cyclictest => "Summary lines of cyclictest, T: 0 ...",
        Format::CyclictestHistogram => "cyclictest -h or -H",
        Format::CyclictestJson => "cyclictest --json; of other rt-tests their extremes",
        Format::Latmus => "latmus -g",
        Format::Oslat => "The report of oslat",
        Format::OslatJson => "oslat --json",
        Format::Rtla => "rtla timerlat hist, rtla osnoise hist",
        Format::RtlaAnalysis => "The automatic analysis of rtla",
        Format::Jitterdebugger => "JSON of jitterdebugger",
        Format::Hdr => "An HdrHistogram log, V2, in nanoseconds",
        Format::Csv => "Buckets as comma-separated values",
        Format::Gnuplot => "Columns for gnuplot",
        Format::OpenMetrics => "OpenMetrics (Prometheus) text",
    }
}

impl ValueEnum for ResultFormat {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [ResultFormat; 13] = {
            let mut all = [ResultFormat(foreign::Format::Csv); 13];
            let mut at = 0;
            while at < all.len() {
                all[at] = ResultFormat(foreign::FORMATS[at].0);
                at += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).help(about(self.0)))
    }
}

impl ValueEnum for Format {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Format; 18] = {
            let mut all = [Format::Camilla; 18];
            let mut at = 0;
            while at < 4 {
                all[at] = Format::Recipe(RECIPES[at].0);
                at += 1;
            }
            while at < all.len() - 1 {
                all[at] = Format::Result(foreign::FORMATS[at - 4].0);
                at += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Format::Recipe(format) => {
                let (_, name, about) = RECIPES.iter().find(|(known, ..)| known == format)?;
                Some(PossibleValue::new(*name).help(*about))
            }
            Format::Result(format) => ResultFormat(*format).to_possible_value(),
            Format::Camilla => Some(
                PossibleValue::new("camilladsp")
                    .help("A configuration of CamillaDSP: becomes a strip"),
            ),
        }
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let shown = quiet_types::printable(&args.file.display().to_string(), 300);
    let text = read(&args.file, &shown)?;
    let store = keep::store(args.store.as_deref())?;
    // From here on what a stranger wrote is read.
    match &args.output {
        Some(path) => shut_all(&[&folder(path)]),
        None => {
            // Its folder is there before the walls are. Where it cannot be made, keeping the run says why.
            let _ = store.ready("runs");
            shut_all(&[store.dir()]);
        }
    }
    // A result may quote a kernel command line, never the other way round.
    let told = args.format.or_else(|| foreign::detect(&text).map(Format::Result));
    let told = told.or_else(|| recipe::detect(&text).map(Format::Recipe));
    let told = told.or_else(|| camilla::is_camilla(&text).then_some(Format::Camilla));
    match told {
        Some(Format::Recipe(format)) => chain(&args, &text, &shown, format)?,
        Some(Format::Result(format)) => result(&args, &store, (&text, &shown), format)?,
        Some(Format::Camilla) => strip(&args, &text, &shown)?,
        None => bail!(
            "cannot import {shown}: it looks like none of cset, isolcpus, rtirq, tuned, camilladsp, and like \
             no result of cyclictest, latmus, oslat, rtla or jitterdebugger; name what it is with --format"
        ),
    }
    Ok(ExitCode::SUCCESS)
}

fn chain(args: &Args, text: &str, shown: &str, format: recipe::RecipeFormat) -> anyhow::Result<()> {
    if text.len() as u64 > LARGEST_RECIPE {
        bail!("cannot import {shown}: it is larger than 1 MiB");
    }
    let name = args.file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = name.filter(|_| args.file.as_os_str() != "-").unwrap_or_else(|| "imported".into());
    let chain = recipe::import(text, format, &name)
        .map_err(|error| anyhow::anyhow!("cannot import {shown}: {error}"))?;
    match &args.output {
        _ if args.json => imported("chain", args, chain, Vec::new()),
        None => face::print(&chain),
        Some(path) => {
            let to = write_new(path, &chain)?;
            face::say(&format!("wrote {to}; see what it does with: quietcores plan {to}"));
            Ok(())
        }
    }
}

fn strip(args: &Args, text: &str, shown: &str) -> anyhow::Result<()> {
    let imported =
        camilla::import(text).map_err(|error| anyhow::anyhow!("cannot import {shown}: {error}"))?;
    for lost in &imported.lost {
        face::say(&format!("not carried over: {lost}"));
    }
    match &args.output {
        _ if args.json => self::imported("strip", args, imported.strip, imported.lost),
        None => face::print(&imported.strip),
        Some(path) => {
            let to = write_new(path, &imported.strip)?;
            face::say(&format!("wrote {to}; hear it with: quietcores render IN.wav OUT.wav {to}"));
            Ok(())
        }
    }
}

/// A recipe's file, written where one is named, as JSON.
fn imported(what: &str, args: &Args, text: String, lost: Vec<String>) -> anyhow::Result<()> {
    let path = args.output.as_ref().map(|path| write_new(path, &text)).transpose()?;
    let (schema, what) = (IMPORTED.to_owned(), what.to_owned());
    face::print_json(&Imported { schema, what, path, text, lost })
}

fn result(
    args: &Args,
    store: &Store,
    (text, shown): (&str, &str),
    format: foreign::Format,
) -> anyhow::Result<()> {
    let mut run = foreign::read(text, format)
        .map_err(|error| anyhow::anyhow!("cannot import {shown} as {format}: {error}"))?;
    if let Some(label) = &args.label {
        run.label.clone_from(label);
    } else if run.label.is_empty() && args.file.as_os_str() != "-" {
        let stem = args.file.file_stem().unwrap_or_default().to_string_lossy();
        run.label = quiet_types::printable(&stem, 60);
    }
    if args.json {
        face::print_json(&run)?;
    } else if args.output.is_some() {
        face::say(&format!("{shown} is {format}: {}", counted(&run)));
    } else {
        face::print(&quiet_report::run_text(&run, face::width()))?;
    }
    match &args.output {
        Some(path) => {
            let json =
                serde_json::to_string_pretty(&run).context("cannot write the run as JSON")?;
            let to = write_new(path, &format!("{json}\n"))?;
            face::say(&format!("wrote {to}"));
        }
        None => {
            let path = store.save_run(&run).map_err(|error| {
                if error.is_taken() {
                    anyhow::anyhow!("{shown} is kept already, as {}", run.id)
                } else {
                    error.into()
                }
            })?;
            face::say(&format!("kept as {}", path.display()));
        }
    }
    Ok(())
}

fn counted(run: &Run) -> String {
    let all = run.readings();
    let threads = match run.threads.len() {
        1 => "1 CPU".to_owned(),
        n => format!("{n} CPUs"),
    };
    format!("{} readings on {threads}, max {}", all.count, all.max.unwrap_or_default())
}

fn read(path: &Path, shown: &str) -> anyhow::Result<String> {
    if path.as_os_str() == "-" {
        files::take_text(std::io::stdin(), LARGEST_RESULT)
    } else {
        File::open(path).and_then(|file| files::take_text(file, LARGEST_RESULT))
    }
    .map_err(|error| {
        let read = matches!(error.kind(), ErrorKind::FileTooLarge | ErrorKind::InvalidData);
        let doing = if read { "import" } else { "read" };
        anyhow::Error::new(error).context(format!("cannot {doing} {shown}"))
    })
}

/// Writes a file that does not exist yet, whole or not at all, and gives its name as it may be shown.
pub fn write_new(path: &Path, text: &str) -> anyhow::Result<String> {
    let write = || files::write_whole(path, text.as_bytes(), Replace::Never);
    keep::as_owner(crate::user::owner(path), write)?.map_err(|error| {
        let taken = error.kind() == ErrorKind::AlreadyExists;
        let error = quiet_linux::Error::io("write", path.display().to_string(), error);
        let remedy = if taken { ": name a file that does not exist yet" } else { "" };
        anyhow::anyhow!("{error}{remedy}")
    })?;
    Ok(quiet_types::printable(&path.display().to_string(), 300))
}

/// Writes the file of a chain, whole or not at all, and gives its name as it may be shown. One that is there is replaced only where that
/// is asked for, or where it says the same.
pub fn write_chain(path: &Path, text: &str, force: bool) -> anyhow::Result<String> {
    let shown = quiet_types::printable(&path.display().to_string(), 300);
    let same = || files::read(path, LARGEST_RECIPE).is_ok_and(|there| there == text.as_bytes());
    if !force {
        if same() {
            return Ok(shown);
        }
        if path.symlink_metadata().is_ok() {
            anyhow::bail!(
                "cannot write the chain to {shown}: a file is there; name another with --out, or replace it with --force"
            );
        }
        return write_new(path, text);
    }
    let write = || files::write_whole(path, text.as_bytes(), Replace::Always);
    keep::as_owner(crate::user::owner(path), write)?
        .map_err(|error| quiet_linux::Error::io("write", path.display().to_string(), error))?;
    Ok(shown)
}
