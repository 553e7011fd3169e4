//! `runs`: the history.

use crate::{face, keep};
use quiet_store::{Filter, Kept, KeptFile, KeptKind, Store};
use quiet_types::history::{BySound, History, Proven, SCHEMA, StepLine};
use std::{path::PathBuf, process::ExitCode};

/// List what is kept (runs, proofs, what was measured by sound), and name what changed between kernels or settings
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores runs                              the newest 20
  quietcores runs kernel='6.17*' stress=kernel --all
  quietcores runs --trend                      \"p99.9 x1.8 since kernel 6.17\"; ends with 1 if something got worse
  quietcores runs --rebuild                    the index anew, from the runs' own files

Conditions: id, host, kernel, processor, probe, policy, cpus, stress, label, tool, settings, interval,
since, until. Words may hold * and ?; all conditions hold.
Where an id is asked for, one of this list will do, or the beginning of one.")]
pub struct Args {
    /// Which runs: NAME=VALUE, several joined by commas or as further words
    #[arg(value_name = "CONDITION")]
    filters: Vec<String>,
    /// How many of the newest to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    last: usize,
    /// Show all of them
    #[arg(long, conflicts_with = "last")]
    all: bool,
    /// Look for changes within series of runs that asked the same
    #[arg(long)]
    trend: bool,
    /// Make the index anew from the runs' own files
    #[arg(long)]
    rebuild: bool,
    /// Keep runs here [default: $XDG_DATA_HOME/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let filter = Filter::parse(&args.filters.join(","))?;
    let store = keep::store(args.store.as_deref())?;
    let index = if args.rebuild { store.rebuild_index()? } else { store.index()? };
    let most = if args.all { usize::MAX } else { args.last };
    let changes = if args.trend {
        quiet_judge::changes_over_time(&index.lines(&filter, usize::MAX)?)
    } else {
        Vec::new()
    };
    let entries = store.list()?;
    let all = args.filters.is_empty();
    let history = History {
        schema: SCHEMA.to_owned(),
        total: index.count(&filter)?,
        runs: index.lines(&filter, most)?,
        proofs: if all { proofs(&store, &entries, most)? } else { Vec::new() },
        by_sound: if all { by_sound(&store, &entries, most)? } else { Vec::new() },
        steps: if all { steps(&store, &entries, most)? } else { Vec::new() },
        changes,
        aside: index.aside().to_vec(),
    };
    if args.json {
        face::print_json(&history)?;
    } else {
        let short = quiet_store::short_ids(&entries);
        face::print(&quiet_report::history_text(&history, &short, face::width()))?;
        if args.trend && history.changes.is_empty() {
            face::say("no change of a series is shown");
        }
    }
    let worse = history.changes.iter().any(|c| c.verdict == quiet_types::proof::Verdict::Worse);
    Ok(if worse { ExitCode::from(face::FINDINGS) } else { ExitCode::SUCCESS })
}

/// The newest `most` of what was measured by sound; what cannot be read is said and left out.
fn by_sound(store: &Store, entries: &[KeptFile], most: usize) -> anyhow::Result<Vec<BySound>> {
    let lines =
        newest(entries, most, |kind| matches!(kind, KeptKind::Buffers | KeptKind::RoundTrip));
    let line = |kept| match kept {
        Ok(Kept::Buffers(it)) => Some(quiet_report::buffers_line(&it)),
        Ok(Kept::RoundTrip(it)) => Some(quiet_report::trip_line(&it)),
        Ok(_) => None,
        Err(error) => {
            face::say(&format!("quietcores: {error}"));
            None
        }
    };
    let read = || lines.iter().filter_map(|entry| line(quiet_store::load(&entry.path))).collect();
    keep::as_owner(store.owner(), read)
}

/// What the newest `most` tunes said of steps.
fn steps(store: &Store, entries: &[KeptFile], most: usize) -> anyhow::Result<Vec<StepLine>> {
    let lines = newest(entries, most, |kind| kind == KeptKind::Tune);
    let of = |entry: &&KeptFile| match quiet_store::load(&entry.path) {
        Ok(Kept::Tune(tuned)) => StepLine::of(&tuned),
        Ok(_) => Vec::new(),
        Err(error) => {
            face::say(&format!("quietcores: {error}"));
            Vec::new()
        }
    };
    keep::as_owner(store.owner(), || lines.iter().flat_map(of).collect())
}

/// The newest `most` proofs.
fn proofs(store: &Store, entries: &[KeptFile], most: usize) -> anyhow::Result<Vec<Proven>> {
    let lines = newest(entries, most, |kind| kind == KeptKind::Proof);
    let one = |entry: &&KeptFile| {
        let proven = quiet_store::proven(&entry.path);
        proven.map_err(|error| face::say(&format!("quietcores: {error}"))).ok()
    };
    keep::as_owner(store.owner(), || lines.iter().filter_map(one).collect())
}

fn newest(entries: &[KeptFile], most: usize, of: impl Fn(KeptKind) -> bool) -> Vec<&KeptFile> {
    let of: Vec<&KeptFile> = entries.iter().filter(|entry| of(entry.kind)).collect();
    of[of.len().saturating_sub(most)..].to_vec()
}
