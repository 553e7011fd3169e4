//! `report`

use crate::{face, keep};
use anyhow::bail;
use quiet_store::{Filter, Kept, Store};
use quiet_types::{
    Nanos, Proof, Run,
    campaign::{CellStanding, CellState},
    history::History,
    said::{REPORTED, Reported},
};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

const EXAMPLES: &str = "\
Examples:
  quietcores report last                     the newest of what is kept, as ID.html
  quietcores report 20261121T2130 -o a.html  by the beginning of its id
  quietcores report before.json after.json   two runs from files, one page; also imported ones
  quietcores report campaign='two kernels'   a campaign; also any other condition, as for `runs`
  quietcores report --trend host=studio      the history of runs over time, with what changed it
  quietcores report last --markdown          the same as ID.md";

/// One self-contained HTML page (or Markdown) of a proof, of runs, of a campaign, of the history, or of sound
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Ids (or unique beginnings), paths of JSON files, `last`, or conditions as for `runs`; one proof,
    /// round trip or table of buffers, or any number of runs
    #[arg(required_unless_present = "trend", value_name = "RUN|PROOF|CONDITION")]
    names: Vec<String>,
    /// The history over time, of the runs that the conditions mean
    #[arg(long)]
    trend: bool,
    /// Write Markdown in place of a page
    #[arg(long, conflicts_with = "trend")]
    markdown: bool,
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

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let store = keep::store(args.store.as_deref())?;
    let (ids, text) =
        if args.trend { history(&store, &args.names)? } else { pages(&store, &args)? };
    let path = match args.output {
        Some(path) => path,
        None => file_name(ids.first().map_or("", String::as_str), args.markdown)?,
    };
    let target = if args.force { keep::Target::data(&path)? } else { keep::Target::page(&path)? };
    let text = if args.markdown { marked(&text) } else { text };
    target.write(&text)?;
    if args.json {
        face::print_json(&Reported {
            schema: REPORTED.to_owned(),
            path: path.display().to_string(),
            ids,
            bytes: text.len(),
        })?;
    } else {
        face::print(&format!("{}\n", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// With the mark by which an earlier file of ours is known, where no viewer shows it.
pub fn marked(markdown: &str) -> String {
    format!("<!-- {} -->\n\n{markdown}", quiet_report::PAGE_MARK)
}

/// The ids of what is shown, and the text.
type Shown = (Vec<String>, String);

fn pages(store: &Store, args: &Args) -> anyhow::Result<Shown> {
    let is_condition = |name: &String| name.contains('=') && !Path::new(name).exists();
    if args.names.iter().all(is_condition) {
        let conditions = args.names.join(",");
        let runs = keep::runs(store, &conditions)?;
        if runs.is_empty() {
            bail!(
                "cannot report: no run is meant by `{conditions}`; see them with: quietcores runs --all"
            );
        }
        return of_runs(&runs, args.markdown);
    }
    if let [name] = args.names.as_slice() {
        let kept = store.find(name)?;
        let fenced = |text: String| format!("```\n{text}```\n");
        let text = match &kept {
            Kept::Buffers(it) if args.markdown => fenced(quiet_report::buffers_text(it, 110)),
            Kept::Buffers(it) => quiet_report::buffers_page(it),
            Kept::RoundTrip(it) if args.markdown => fenced(quiet_report::trip_text(it, 110)),
            Kept::RoundTrip(it) => quiet_report::trip_page(it),
            Kept::Tune(it) if args.markdown => fenced(quiet_report::tune_text(it, 110)),
            Kept::Tune(it) => quiet_report::tune_page(it),
            _ => return of_kept(vec![kept], args.markdown),
        };
        return Ok((vec![kept.id().to_owned()], text));
    }
    let kept: Vec<Kept> =
        args.names.iter().map(|name| store.find(name)).collect::<Result<_, _>>()?;
    of_kept(kept, args.markdown)
}

fn of_kept(kept: Vec<Kept>, markdown: bool) -> anyhow::Result<Shown> {
    let (mut runs, mut proofs) = (Vec::<Run>::new(), Vec::<Box<Proof>>::new());
    for one in kept {
        match one {
            Kept::Run(run) => runs.push(*run),
            Kept::Proof(proof) => proofs.push(proof),
            other => bail!(
                "cannot put this on one page: {} is {}, which has a page of its own",
                other.id(),
                other.what()
            ),
        }
    }
    match (proofs.as_slice(), runs.is_empty()) {
        ([proof], true) if markdown => {
            Ok((vec![proof.id.clone()], quiet_report::proof_markdown(proof)))
        }
        ([proof], true) => Ok((vec![proof.id.clone()], quiet_report::proof_page(proof))),
        ([], false) => of_runs(&runs, markdown),
        _ => bail!("cannot put this on one page: a page holds one proof, or runs and no proof"),
    }
}

fn of_runs(runs: &[Run], markdown: bool) -> anyhow::Result<Shown> {
    let ids = runs.iter().map(|run| run.id.clone()).collect();
    let campaign = |run: &Run| run.cell.as_ref().map(|cell| cell.campaign.clone());
    let first = runs.first().and_then(campaign);
    let text = match first.filter(|_| runs.iter().all(|run| campaign(run) == campaign(&runs[0]))) {
        Some(name) if runs.len() > 1 => {
            let mut cells: Vec<CellState> = runs.iter().filter_map(done).collect();
            cells.sort_by_key(|state| state.cell.round);
            let it = quiet_judge::campaigned(&name, cells, runs, Nanos::ZERO);
            if markdown {
                quiet_report::campaign_markdown(&it)
            } else {
                quiet_report::campaign_page(&it, runs)
            }
        }
        _ if markdown => quiet_report::runs_markdown(runs),
        _ => quiet_report::runs_page(runs),
    };
    Ok((ids, text))
}

fn done(run: &Run) -> Option<CellState> {
    let (cell, line) = (run.cell.clone()?, quiet_store::line(run));
    Some(CellState { cell, state: CellStanding::Done, why: String::new(), run: Some(line) })
}

fn history(store: &Store, conditions: &[String]) -> anyhow::Result<Shown> {
    let filter = Filter::parse(&conditions.join(","))?;
    let index = store.index()?;
    let runs = index.lines(&filter, usize::MAX)?;
    let history = History {
        schema: quiet_types::history::SCHEMA.to_owned(),
        total: runs.len() as u64,
        changes: quiet_judge::changes_over_time(&runs),
        runs,
        proofs: Vec::new(),
        by_sound: Vec::new(),
        steps: Vec::new(),
        aside: index.aside().to_vec(),
    };
    Ok((vec!["history".to_owned()], quiet_report::history_page(&history)))
}

/// `ID.html` or `ID.md`; an id from a file may be anything, so only a plain name is taken as one.
fn file_name(id: &str, markdown: bool) -> anyhow::Result<PathBuf> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if id.is_empty() || id.len() > 100 || id.starts_with('.') || !id.chars().all(plain) {
        let shown = quiet_types::printable(id, 60);
        bail!("cannot name the page after the id `{shown}`: name it yourself: -o FILE");
    }
    let end = if markdown { "md" } else { "html" };
    Ok(PathBuf::from(format!("{id}.{end}")))
}
