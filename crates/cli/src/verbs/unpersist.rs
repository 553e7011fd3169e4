//! `unpersist`

use super::persist::{Site, need_root};
use crate::face;
use quiet_boot::{Restoration, Undone};
use quiet_types::{printable, said::UNPERSISTED};
use std::{path::PathBuf, process::ExitCode};

/// Take back what `persist` wrote; the next boot is as before
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores unpersist                    after a persist, or after one that was cut short
  sudo quietcores unpersist && sudo reboot
A file that nobody else has changed since gets its old bytes back; of another, only what persist
put in is taken out. The shield of this boot stays: `quietcores revert` ends it.
Exit status: 0 all as before (or nothing to do), 1 others have changed some files since: they are
named, 2 something could not be taken back: it is named, and unpersist can be run again.")]
pub struct Args {
    /// Accepted for scripts: unpersist does not ask
    #[arg(long, short)]
    yes: bool,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Work on the tree of files in DIR in place of this machine; runs no program
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Directory of the record [default: /var/lib/quietcores, within --root]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let _ = args.yes;
    let site = Site::of(args.root.as_deref(), args.state.as_deref())?;
    need_root(&site, "")?;
    // Stopped half-way it would have to be run again.
    let _interrupt = face::interrupt()?;
    let Some(undone) = quiet_boot::undo(&site.place, &site.state, site.runner())? else {
        if args.json {
            face::print_json(&Undone {
                schema: UNPERSISTED.to_owned(),
                loader: None,
                leftover: false,
                items: Vec::new(),
            })?;
        } else {
            face::print(
                "Nothing is kept across reboots, and nothing is left of an earlier persist.\n",
            )?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    if args.json {
        face::print_json(&undone)?;
    } else {
        face::print(&text(&undone))?;
    }
    Ok(match (undone.is_complete(), undone.is_exact()) {
        (false, _) => ExitCode::from(2),
        (true, false) => ExitCode::from(face::FINDINGS),
        (true, true) => ExitCode::SUCCESS,
    })
}

fn text(undone: &Undone) -> String {
    let mut text = String::new();
    if undone.leftover {
        text += "The last persist or unpersist had been cut short.\n";
    }
    for item in &undone.items {
        let outcome = match &item.outcome {
            Restoration::Restored => "as it was".to_owned(),
            Restoration::Untouched => "had not been changed".into(),
            Restoration::Cleaned => "ours is out; what others have changed since stays".into(),
            Restoration::Left => "others have changed it since: left as it is".into(),
            Restoration::Gone => "is not there any more".into(),
            Restoration::Regenerated => "made anew by its own program".into(),
            Restoration::Refused { reason } => {
                format!("NOT TAKEN BACK: {}", printable(reason, 400))
            }
        };
        text += &format!("  {}: {outcome}\n", printable(&item.what, 300));
    }
    text += if undone.is_complete() {
        "The next boot is as before; the parameters of this boot stay until then: sudo reboot\n"
    } else {
        "The record is kept: clear the way and run `quietcores unpersist` again.\n"
    };
    text
}
