//! `export`: a run in the form of another tool.

use super::import::{ResultFormat, write_new};
use crate::{face, keep};
use anyhow::bail;
use quiet_foreign as foreign;
use quiet_store::Kept;
use quiet_types::said::{EXPORTED, Exported};
use std::{path::PathBuf, process::ExitCode};

/// Write a run in the form of another tool
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores export last --format cyclictest-histogram > hist.txt
  quietcores export last -o run.csv                       the form told by the file's name
  quietcores export run.json --format latmus -o plot.dat
  quietcores export last --format openmetrics

An imported run is written again as its tool wrote it. What a form has no words for is said.")]
pub struct Args {
    /// Id (or its unique beginning), path of a JSON file, or `last`: the newest run
    #[arg(value_name = "RUN")]
    name: String,
    /// The form [default: told by the name of the file, else the one it was imported from]
    #[arg(long, value_name = "FORMAT")]
    format: Option<ResultFormat>,
    /// Write it here, which must not exist [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep runs here [default: $XDG_DATA_HOME/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Say on standard output, as JSON, what was written and what the form has no words for
    #[arg(long, requires = "output")]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let run = match keep::store(args.store.as_deref())?.find_run(&args.name)? {
        Kept::Run(run) => run,
        Kept::Proof(proof) => bail!(
            "cannot export {}: it is a proof, of {} runs; export one of its runs by a file of its own",
            proof.id,
            proof.arms.len()
        ),
        other => {
            bail!("cannot export {}: it is {}, which has no other form", other.id(), other.what())
        }
    };
    let by_name = || {
        let name = args.output.as_ref()?.file_name()?.to_string_lossy().into_owned();
        foreign::Format::from_file_name(&name)
    };
    let by_origin = || foreign::Format::from_name(&run.origin.as_ref()?.format);
    let format = args.format.map(|format| format.0).or_else(by_name).or_else(by_origin);
    let Some(format) = format else {
        bail!(
            "cannot export {}: in which form? Name one with --format, as cyclictest-json or csv",
            run.id
        )
    };
    let written = foreign::write(&run, format)
        .map_err(|error| anyhow::anyhow!("cannot export {} as {format}: {error}", run.id))?;
    for lost in &written.lost {
        face::say(&format!("not in it: {lost}"));
    }
    match &args.output {
        None => face::print(&written.text)?,
        Some(path) => {
            let to = write_new(path, &written.text)?;
            if args.json {
                face::print_json(&Exported {
                    schema: EXPORTED.to_owned(),
                    id: run.id.clone(),
                    format: format.name().to_owned(),
                    path: to,
                    bytes: written.text.len(),
                    lost: written.lost,
                })?;
            } else {
                face::say(&format!("wrote {to}"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
