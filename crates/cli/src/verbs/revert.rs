//! `revert`

use crate::{asked, face};
use anyhow::anyhow;
use quiet_report::plan::reverted_text;
use quiet_service::{
    acts::{Acts, Whose},
    client::Refusal,
};
use quiet_shield::DEFAULT_STATE;
use quiet_types::plan::{REVERTED_SCHEMA, Reverted};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

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
    // A card that cannot be given back is no reason to leave the shield up.
    let card = if face::is_root() { quiet_hda::put_back(&args.state) } else { Ok(None) };
    if let Ok(Some(card)) = &card {
        face::say(&format!("the sound card {card} is the kernel driver's again"));
    }
    let shield = put_shield_back(&args);
    card?;
    shield
}

fn put_shield_back(args: &Args) -> anyhow::Result<ExitCode> {
    let done = put_back(&args.state)?;
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
        face::print(&face::fitted(&reverted_text(&done)))?;
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

/// Puts the machine back; `None` where nothing was to be done.
pub fn put_back(state: &Path) -> anyhow::Result<Option<Reverted>> {
    let own = || {
        let own = Acts::at(state).revert(Whose::Anybodys);
        own.map_err(|error| {
            face::only_root(anyhow!(error.sentence()), "put the machine back", "revert")
        })
    };
    if !asked::is_for_service(state) {
        return own();
    }
    match asked::service().and_then(|service| service.revert()) {
        Ok(done) => Ok(done),
        Err(Refusal::NoService(_)) => own(),
        Err(refusal) => Err(asked::refused(refusal, "put the machine back", "revert")),
    }
}
