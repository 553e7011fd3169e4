//! `compare`: two sets of runs.

use crate::{face, keep};
use anyhow::bail;
use clap::ValueEnum;
use quiet_types::proof::Verdict;
use std::{collections::HashSet, path::PathBuf, process::ExitCode};

/// Compare two runs, or two sets of them, with a verdict for each figure
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores compare kernel=6.12* kernel=6.18*           two kernels, by the history
  quietcores compare label=before label=after,since=2026-11-01
  quietcores compare a.json,b.json,c.json,d.json '20261122T*'
  quietcores compare label=main label=change --junit verdict.xml

B is compared with A: better, worse, or not shown. One run a side shows nothing; 4 a side can. Runs that
were made in turn are compared in pairs. Ends with 1 when B is worse.")]
pub struct Args {
    /// What the other is compared with: conditions as for `runs`, or ids, beginnings with *, and files, joined by commas
    a: String,
    /// What is compared
    b: String,
    /// Write the verdicts as JUnit XML too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// What to print
    #[arg(long, value_enum, default_value_t = Form::Text)]
    format: Form,
    /// Keep runs here [default: $XDG_DATA_HOME/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Print the result as JSON on standard output
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Text,
    Json,
    /// Test Anything Protocol
    Tap,
    /// JUnit XML
    Junit,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let store = keep::store(args.store.as_deref())?;
    let (a, b) = (keep::runs(&store, &args.a)?, keep::runs(&store, &args.b)?);
    for (name, runs) in [(&args.a, &a), (&args.b, &b)] {
        if runs.is_empty() {
            bail!(
                "cannot compare: no run is meant by `{name}`; see them with: quietcores runs --all"
            );
        }
    }
    let others: HashSet<&str> = b.iter().map(|run| run.id.as_str()).collect();
    if let Some(both) = a.iter().find(|run| others.contains(run.id.as_str())) {
        bail!("cannot compare: {} stands on both sides", both.id);
    }
    let compared = quiet_judge::compare_runs((&args.a, &a), (&args.b, &b));
    if let Some(path) = &args.junit {
        keep::Target::data(path)?.write(&quiet_report::compared_junit(&compared))?;
    }
    match if args.json { Form::Json } else { args.format } {
        Form::Text => face::print(&quiet_report::compared_text(&compared, face::width()))?,
        Form::Json => face::print_json(&compared)?,
        Form::Tap => face::print(&quiet_report::compared_tap(&compared))?,
        Form::Junit => face::print(&quiet_report::compared_junit(&compared))?,
    }
    let worse = compared.verdict == Verdict::Worse;
    Ok(if worse { ExitCode::from(face::FINDINGS) } else { ExitCode::SUCCESS })
}
