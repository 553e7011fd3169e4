//! `report`

use crate::{face, keep};
use anyhow::bail;
use quiet_store::{Kept, Replace};
use quiet_types::{Proof, Run};
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

const EXAMPLES: &str = "\
Examples:
  quietcores report last                     the newest run or proof, as ID.html
  quietcores report 20261121T2130 -o a.html  by the beginning of its id
  quietcores report before.json after.json   two runs from files, one page";

/// One self-contained HTML page of a proof, or of runs
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Ids (or unique beginnings), paths of JSON files, or `last`; one proof, or any number of runs
    #[arg(required = true, value_name = "RUN|PROOF")]
    names: Vec<String>,
    /// Write the page here [default: ID.html in the current directory]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace a file that is no page of quietcores
    #[arg(long)]
    force: bool,
    /// Keep runs here [default: $XDG_DATA_HOME/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Written<'a> {
    schema: &'static str,
    path: &'a Path,
    ids: Vec<&'a str>,
    bytes: usize,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let store = keep::store(args.store.as_deref())?;
    let kept = args.names.iter().map(|name| store.find(name)).collect::<Result<Vec<Kept>, _>>()?;
    let ids: Vec<&str> = kept.iter().map(Kept::id).collect();
    let path = match args.output {
        Some(path) => path,
        None => file_name(ids.first().copied().unwrap_or_default())?,
    };
    let page = page(&kept)?;
    if !args.force {
        keep::may_replace(&path)?;
    }
    quiet_store::write_whole(&path, page.as_bytes(), Replace::Always)?;
    if args.json {
        let schema = "quietcores.report/1";
        face::print_json(&Written { schema, path: &path, ids, bytes: page.len() })?;
    } else {
        face::print(&format!("{}\n", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn page(kept: &[Kept]) -> anyhow::Result<String> {
    let (mut runs, mut proofs) = (Vec::<Run>::new(), Vec::<&Proof>::new());
    for one in kept {
        match one {
            Kept::Run(run) => runs.push(run.as_ref().clone()),
            Kept::Proof(proof) => proofs.push(proof),
        }
    }
    match (proofs.as_slice(), runs.is_empty()) {
        ([proof], true) => Ok(quiet_report::proof_page(proof)),
        ([], false) => Ok(quiet_report::runs_page(&runs)),
        _ => bail!("cannot put this on one page: a page holds one proof, or runs and no proof"),
    }
}

/// `ID.html`; an id from a file may be anything, so only a plain name is taken as one.
fn file_name(id: &str) -> anyhow::Result<PathBuf> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if id.is_empty() || id.len() > 100 || id.starts_with('.') || !id.chars().all(plain) {
        let shown = quiet_types::printable(id, 60);
        bail!("cannot name the page after the id `{shown}`: name it yourself: -o FILE");
    }
    Ok(PathBuf::from(format!("{id}.html")))
}
