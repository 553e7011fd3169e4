//! `revert`

use crate::face;
use quiet_linux::System;
use quiet_report::plan::reverted_text;
use quiet_shield::DEFAULT_STATE;
use quiet_types::plan::{PutBack, REVERTED_SCHEMA, Return, Reverted};
use std::{path::PathBuf, process::ExitCode};

/// Put the machine back
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores revert                       after an apply, or after one that was killed
Exit status: 0 as it was before (or nothing to do), 1 somebody else has changed some values since:
they are named and left, 2 the kernel refused some: they are named, and revert can be run again.")]
pub struct Args {
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Directory of the journal
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    state: PathBuf,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    // Stopped half-way it would have to be run again: it takes milliseconds, and ends first.
    let _interrupt = face::interrupt()?;
    let traces = swept();
    let done = quiet_shield::revert(&System, &args.state)
        .map_err(|error| face::only_root(error, "put the machine back", "revert"))?;
    let done = match (done, traces.is_empty()) {
        (None, false) => Some(Reverted {
            schema: REVERTED_SCHEMA.into(),
            rebooted: false,
            items: traces,
            history: None,
        }),
        (Some(mut done), false) => {
            done.items.extend(traces);
            Some(done)
        }
        (done, true) => done,
    };
    let Some(done) = done else {
        if args.json {
            face::print_json(&serde_json::json!({
                "schema": REVERTED_SCHEMA,
                "rebooted": false, "items": [], "history": null
            }))?;
        } else {
            face::print("No shield is up, and nothing is left of an earlier one.\n")?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    if args.json {
        face::print_json(&done)?;
    } else {
        face::print(&reverted_text(&done))?;
    }
    let kept = quiet_boot::record(&args.state).ok().flatten();
    if kept.is_some_and(|record| record.apply.is_some()) {
        face::say(
            "It comes up again at the next boot, because it was persisted: `quietcores unpersist` \
             ends that.",
        );
    }
    Ok(match (done.is_complete(), done.is_exact()) {
        (false, _) => ExitCode::from(2),
        (true, false) => ExitCode::from(face::FINDINGS),
        (true, true) => ExitCode::SUCCESS,
    })
}

/// Removes trace instances that killed programs have left on.
fn swept() -> Vec<PutBack> {
    // Without root, or without tracefs, there is nothing that could be removed.
    let found = quiet_linux::trace::sweep().unwrap_or_default();
    let gone = found.into_iter().map(|(name, gone)| PutBack {
        what: format!("trace instance {name}"),
        outcome: match gone {
            true => Return::Restored,
            false => Return::Refused { reason: "somebody reads it; end that program".into() },
        },
    });
    gone.collect()
}
