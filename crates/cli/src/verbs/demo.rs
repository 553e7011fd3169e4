//! `demo`

use crate::{face, keep, progress::Progress};
use anyhow::bail;
use quiet_experiment::{DEFAULT_STATE, Demo};
use quiet_report::{demo_page, demo_text, demo_wav};
use quiet_types::{CpuId, Nanos};
use std::{path::PathBuf, process::ExitCode};

/// Hear and see what a late thread does to sound, and what a quiet core does about it; no card needed
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores demo                         about a minute; writes quietcores-demo.wav and .html
  sudo quietcores demo                    with a real shield; the machine is put back
  quietcores demo --for 5s --out /tmp/d   a short one; /tmp/d.wav and /tmp/d.html
It plays the same music twice with the deadlines of a sound card that does not exist: beside threads that take
its CPU, then where they may not run. Where a deadline is missed the WAV has silence, as a card would play it.
Exit status: 0 the quiet part lost fewer periods, 1 it did not, 2 an error.")]
pub struct Args {
    /// Length of each of the two parts, 1s to 5min
    #[arg(long = "for", value_name = "LENGTH", default_value = "30s")]
    length: Nanos,
    /// CPU that plays [default: the last one]
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,
    /// Where the sound and the page go: FILE.wav and FILE.html
    #[arg(long, value_name = "FILE", default_value = "quietcores-demo")]
    out: PathBuf,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Directory of the journal
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    state: PathBuf,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    const LIMITS: [Nanos; 2] = [Nanos(1_000_000_000), Nanos(300_000_000_000)];
    if !(LIMITS[0]..=LIMITS[1]).contains(&args.length) {
        bail!("--for {} is too short or too long: 1s to 5min", args.length);
    }
    let stop = face::interrupt()?;
    // What may fail for outside reasons fails before anything is played.
    let beside = |ending: &str| args.out.with_added_extension(ending);
    let sound = keep::Target::data(&beside("wav"))?;
    let page = keep::Target::page(&beside("html"))?;
    let ask = Demo { length: args.length, cpu: args.cpu.map(CpuId), state: args.state };
    let demo = quiet_experiment::demo(&ask, &stop, &Progress::new())?;
    let mut losses = keep::Losses::default();
    let heard = losses.of("the sound", sound.write(&demo_wav(&demo)));
    let seen = losses.of("the page", page.write(&demo_page(&demo)));
    if args.json {
        face::print_json(&demo)?;
    } else {
        face::print(&demo_text(&demo, face::width()))?;
    }
    if heard.is_some() {
        face::say(&format!("hear it: {}", beside("wav").display()));
    }
    if seen.is_some() {
        face::say(&format!("see it: {}", page.path().display()));
    }
    if demo.restored == Some(false) {
        bail!("the machine is not as it was before; `quietcores status` names what is left");
    }
    let helped = matches!(demo.parts.as_slice(), [shared, quiet] if quiet.lost < shared.lost);
    let status = if helped { ExitCode::SUCCESS } else { ExitCode::from(face::FINDINGS) };
    Ok(losses.end(status))
}
