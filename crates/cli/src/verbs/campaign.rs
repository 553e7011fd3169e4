//! `campaign`: a declared matrix of runs, measured until all of it is there.

use super::walled::shut;
use crate::{face, keep, progress::Progress};
use anyhow::{Context, bail};
use quiet_experiment::{LARGEST_CAMPAIGN, Workplace, parse_campaign};
use quiet_linux::files;
use quiet_types::campaign::{Campaign, Shielding};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
};

/// Measure a declared matrix of probes, stresses and settings, until all of it is there
///
/// Every run is kept as soon as it is made; a run that is there is not made again. So the same command
/// goes on after Ctrl-C, a crash, a power cut, or a reboot into the other kernel.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores campaign kernels.toml             measure what is left on this boot
  quietcores campaign kernels.toml --status    what is done and left; measures nothing
  quietcores campaign kernels.toml --status --html kernels.html --markdown kernels.md

A campaign file (docs/campaign.md, examples/campaigns):
  [campaign]
  name = \"two kernels\"
  cpus = \"3\"                    # that are measured
  rounds = 6                    # runs of each cell, settings in turn
  for = \"10s\"
  [[probe]]
  kind = \"wakeup\"               # or \"gap\"
  interval = \"200us\"
  [[stress]]
  name = \"kernel\"
  run = [\"kernel\"]              # none where left out
  [[setting]]
  name = \"6.1\"
  kernel = \"6.1.*\"              # only while such a kernel runs
  [[setting]]
  name = \"6.12 RT\"
  kernel = \"6.12*-rt-*\"
  shield = true                 # or chain = \"living-room.toml\"

Exit status: 0 all of it is there, 1 something is left, waits or failed, 2 an error.")]
pub struct Args {
    /// Campaign file (TOML); - for standard input, where it names no chain file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Measure nothing: say what is done and what is left
    #[arg(long)]
    status: bool,
    /// Write a page of what is there
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the same as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Where the journal of a shield is kept
    #[arg(long, value_name = "DIR", default_value = quiet_shield::DEFAULT_STATE)]
    state: PathBuf,
    /// Keep runs here [default: $XDG_DATA_HOME/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (campaign, dir) = match args.file == Path::new("-") {
        true => (given()?, PathBuf::new()),
        false => quiet_experiment::read_campaign(&args.file)?,
    };
    let html = args.html.as_deref().map(keep::Target::page).transpose()?;
    let markdown = args.markdown.as_deref().map(keep::Target::page).transpose()?;
    let store = match args.status {
        true => keep::store(args.store.as_deref())?,
        false => keep::ready(args.store.as_deref(), "runs")?,
    };
    let place = Workplace { dir: &dir, store: &store, state: &args.state };
    let (it, runs) = match args.status {
        true => quiet_experiment::campaign_status(&campaign, place)?,
        false => {
            let stop = face::interrupt()?;
            quiet_experiment::campaign(&campaign, place, &stop, &Progress::new())?
        }
    };
    let mut losses = keep::Losses::default();
    if let Some(target) = &html {
        losses.of("the page", target.write(&quiet_report::campaign_page(&it, &runs)));
    }
    if let Some(target) = &markdown {
        let text = super::report::marked(&quiet_report::campaign_markdown(&it));
        losses.of("the Markdown", target.write(&text));
    }
    if args.json {
        face::print_json(&it)?;
    } else {
        face::print(&quiet_report::campaign_text(&it, face::width()))?;
    }
    let whole = it.left + it.waiting + it.failed == 0;
    Ok(losses.end(if whole { ExitCode::SUCCESS } else { ExitCode::from(face::FINDINGS) }))
}

/// The campaign on standard input. Whoever wrote it may have no right to this user's files: it is read behind walls, and names none.
fn given() -> anyhow::Result<Campaign> {
    let text = files::take_text(std::io::stdin(), LARGEST_CAMPAIGN)
        .context("cannot read the campaign on standard input")?;
    let read = thread::spawn(move || {
        shut(&[]);
        parse_campaign(&text, "standard input")
    });
    let Ok(read) = read.join() else { bail!("cannot read the campaign on standard input") };
    let campaign = read?;
    let named = campaign.settings.iter().find(|one| matches!(one.shield, Shielding::Chain(_)));
    if let Some(setting) = named {
        bail!(
            "the setting `{}` names a chain file, which a campaign on standard input cannot: write `shield = true`, or give the \
             campaign as a file",
            setting.name
        );
    }
    Ok(campaign)
}
