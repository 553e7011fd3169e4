//! `lend`

use crate::progress::Progress;
use crate::{asked, face};
use anyhow::{Context, bail};
use quiet_experiment::put_back_overdue;
use quiet_linux::System;
use quiet_report::loan::{lent_text, reclaimed_text};
use quiet_service::client::ServiceClient;
use quiet_shield::{DEFAULT_STATE, LONGEST_LOAN, LoanOptions};
use quiet_types::{
    Nanos,
    loan::{Lent, LoanEnd, LoanTerms, Reclaimed},
};
use std::{
    ffi::OsString,
    path::PathBuf,
    process::{Command, ExitCode},
};

/// Give the shield's CPUs back to everybody for a while
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores lend --for 10min                       everybody may run there for ten minutes
  quietcores lend --until-sound                     until somebody opens a sound device, an hour at most
  quietcores lend --while-unit apt-daily.service    while that unit of systemd runs
  quietcores lend -- make -j8                       while this command runs
  quietcores lend --return                          back now
The shield stays up, and what plays stays on it. A thread that is let into the shield ends the loan.
Exit status: 0 lent or taken back (or nothing was lent), 1 some of it was refused, 2 an error; with a command, that of the command.")]
pub struct Args {
    /// How long at most: 1s to 24h [default: 1h, 24h with a command]
    #[arg(long = "for", value_name = "LENGTH")]
    length: Option<Nanos>,
    /// Take them back at the first sound
    #[arg(long)]
    until_sound: bool,
    /// Take them back when this unit of systemd has ended
    #[arg(long, value_name = "UNIT")]
    while_unit: Option<String>,
    /// Take lent CPUs back now
    #[arg(long = "return", conflicts_with_all = ["length", "until_sound", "while_unit", "command"])]
    back: bool,
    /// Print the result as JSON on standard output
    #[arg(long, conflicts_with = "command")]
    json: bool,
    /// Directory of the journal
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    state: PathBuf,
    /// Lend while this command runs
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.back {
        return show_back(&args, take_back(&args)?);
    }
    let usual = if args.command.is_empty() { 3600 } else { LONGEST_LOAN };
    let seconds = args.length.map_or(usual, |length| length.0.div_ceil(1_000_000_000));
    if !(1..=LONGEST_LOAN).contains(&seconds) {
        bail!("CPUs are lent for 1 s to 24 h: --for 10min");
    }
    let lent = lend(&args, seconds)?;
    let Some((program, words)) = args.command.split_first() else {
        match args.json {
            true => face::print_json(&lent)?,
            false => face::print(&lent_text(&lent))?,
        }
        return Ok(status(lent.changes.iter().all(|change| change.refused.is_none())));
    };
    // It is for the command to end; this only waits for it.
    let _interrupt = face::interrupt()?;
    let ended = Command::new(program).args(words).status();
    let back = take_back(&args);
    let ended = ended.with_context(|| format!("cannot run {}", program.to_string_lossy()))?;
    if let Some(back) = back?.filter(|back| !back.is_complete()) {
        face::say(&reclaimed_text(&back));
    }
    // As a shell has it.
    let code = ended.code().or_else(|| {
        std::os::unix::process::ExitStatusExt::signal(&ended).map(|signal| 128 + signal)
    });
    Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(2)))
}

fn status(is_whole: bool) -> ExitCode {
    if is_whole { ExitCode::SUCCESS } else { ExitCode::from(face::FINDINGS) }
}

fn lend(args: &Args, seconds: u64) -> anyhow::Result<Lent> {
    let with_command = !args.command.is_empty();
    if asked::is_for_service(&args.state) {
        let lent = |service: ServiceClient| {
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            service.lend(seconds, args.until_sound, args.while_unit.as_deref(), with_command)
        };
        let refused = |why| asked::refused(why, "lend CPUs", "lend");
        return asked::service().and_then(lent).map_err(refused);
    }
    only_root("lend CPUs")?;
    put_back_overdue(&args.state, &Progress::new())?;
    let own = std::process::id();
    let terms = LoanTerms {
        seconds,
        until_sound: args.until_sound,
        unit: args.while_unit.clone(),
        process: with_command.then(|| quiet_shield::thread(&System, own, own)).flatten(),
    };
    let program = std::env::current_exe().context("cannot find the program itself")?;
    let options = LoanOptions { guard: Some(&program), uid: None };
    Ok(quiet_shield::lend(&System, &args.state, &terms, options)?)
}

fn take_back(args: &Args) -> anyhow::Result<Option<Reclaimed>> {
    if asked::is_for_service(&args.state) {
        let refused = |why| asked::refused(why, "take CPUs back", "lend --return");
        return asked::service().and_then(|service| service.take_back()).map_err(refused);
    }
    only_root("take CPUs back")?;
    Ok(quiet_shield::take_back(&System, &args.state, LoanEnd::Hand, None)?)
}

fn only_root(what: &str) -> anyhow::Result<()> {
    if !face::is_root() {
        bail!("cannot {what} without root: sudo quietcores lend");
    }
    Ok(())
}

fn show_back(args: &Args, back: Option<Reclaimed>) -> anyhow::Result<ExitCode> {
    match &back {
        _ if args.json => face::print_json(&back)?,
        Some(back) => face::print(&reclaimed_text(back))?,
        None => {
            face::print("No CPU is lent: the shield, where one is up, is the chain's alone.\n")?
        }
    }
    Ok(status(back.is_none_or(|back| back.is_complete())))
}
