//! `tune --boot`: boot parameters, by reboots.

use super::{Args, tell};
use crate::{face, keep, progress::Progress};
use anyhow::{Context, bail};
use quiet_boot::LoaderKind;
use quiet_experiment::{BootAsk, BootsGone};
use quiet_types::{Nanos, tune::Tuned};
use std::{
    io::{IsTerminal, stdin},
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Boot parameters in place of run-time steps.
#[derive(clap::Args)]
pub(super) struct BootArgs {
    /// Judge boot parameters by reboots: names (isolcpus), words (preempt=full), kernel=RELEASE [default: isolcpus nohz_full rcu_nocbs
    /// threadirqs]
    #[arg(long, value_name = "WORD", num_args = 0.., conflicts_with_all = ["choose", "tried", "list", "keep_off", "output"])]
    boot: Option<Vec<String>>,
    /// How many boots, in pairs [default: as many as show something]
    #[arg(long, value_name = "N", requires = "boot")]
    boots: Option<u32>,
    /// Measurements a boot
    #[arg(long, value_name = "N", default_value_t = 10, requires = "boot")]
    blocks: u32,
    /// How long a boot comes to rest before it is measured
    #[arg(long, value_name = "LENGTH", default_value = "30s", requires = "boot")]
    settle: Nanos,
    /// Measure under the whole run-time shield
    #[arg(long, requires = "boot")]
    shield: bool,
    /// Which boot loader, where the files of several are found
    #[arg(long, value_name = "NAME", requires = "boot", value_parser = super::super::persist::loader_name)]
    loader: Option<LoaderKind>,
    /// The installed program that goes on after each reboot [default: this one]
    #[arg(long, value_name = "FILE", requires = "boot")]
    program: Option<PathBuf>,
    /// Do not ask, and reboot
    #[arg(long, short, requires = "boot")]
    yes: bool,
    /// Leave the reboots to the user
    #[arg(long, requires = "boot")]
    no_reboot: bool,
    /// Show what a tune of boot parameters would do; change nothing
    #[arg(long, short = 'n', requires = "boot")]
    dry_run: bool,
    /// How far the tune of boot parameters is
    #[arg(long, conflicts_with = "boot")]
    boot_status: bool,
    /// End the tune of boot parameters: judge what is there, put everything back
    #[arg(long, conflicts_with_all = ["boot", "boot_status"])]
    boot_end: bool,
    /// What the unit runs after each reboot
    #[arg(long, hide = true, conflicts_with_all = ["boot", "boot_status", "boot_end"])]
    boot_go_on: bool,
}

/// What was asked of boots; `None` where nothing was.
pub(super) fn asked(args: &Args) -> Option<anyhow::Result<ExitCode>> {
    let boots = &args.boots;
    match (&boots.boot, boots.boot_status, boots.boot_end, boots.boot_go_on) {
        (Some(words), ..) => Some(begin(args, words)),
        (_, true, ..) => Some(status(args)),
        (_, _, true, _) => Some(end(args)),
        (.., true) => Some(go_on(args)),
        _ => None,
    }
}

fn begin(args: &Args, words: &[String]) -> anyhow::Result<ExitCode> {
    let boots = &args.boots;
    let stop = face::interrupt()?;
    let store = keep::ready(args.store.as_deref(), "tunes")?;
    let program = match &boots.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("cannot find the program itself")?,
    };
    // The boots that come know no present directory.
    let whole = |path: &Path| std::path::absolute(path).context("the present directory is gone");
    let ask = BootAsk {
        tuning: args.tuning(),
        parameters: words.to_vec(),
        boots: boots.boots,
        blocks: boots.blocks,
        settle: boots.settle,
        shielded: boots.shield,
        loader: boots.loader,
        program: whole(&program)?,
        by_hand: boots.no_reboot,
        store: Some(whole(store.dir())?),
        page: args.html.as_deref().map(whole).transpose()?,
    };
    let tune = quiet_experiment::prepare_boots(&ask, &stop, &Progress::new())?;
    face::print(&quiet_report::boots_text(&tune, face::width()))?;
    if boots.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    if !boots.yes {
        if !stdin().is_terminal() {
            bail!("cannot ask: standard input is no terminal; add --yes to begin without asking");
        }
        let question = match boots.no_reboot {
            true => "Begin?",
            false => "Begin? This machine is rebooted now, and after each boot.",
        };
        face::say(&format!("{question} [y/N]"));
        let mut answer = String::new();
        stdin().read_line(&mut answer).context("cannot read the answer")?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            bail!("not begun; nothing is changed");
        }
    }
    quiet_experiment::begin_boots(tune, &args.state, &ask.program, &stop, &Progress::new())?;
    if boots.no_reboot {
        face::say(
            "Reboot now; each boot is measured by itself, and tells in its journal when the next reboot is due.",
        );
        return Ok(ExitCode::SUCCESS);
    }
    quiet_experiment::reboot(&args.state)?;
    Ok(ExitCode::SUCCESS)
}

fn status(args: &Args) -> anyhow::Result<ExitCode> {
    let Some(tune) = quiet_experiment::boots_status(&args.state)? else {
        match args.json {
            true => face::print_json(&())?,
            false => face::print("No tune of boot parameters is under way.\n")?,
        }
        return Ok(ExitCode::SUCCESS);
    };
    if args.json {
        face::print_json(&tune)?;
    } else {
        face::print(&quiet_report::boots_text(&tune, face::width()))?;
    }
    Ok(ExitCode::from(face::FINDINGS))
}

fn go_on(args: &Args) -> anyhow::Result<ExitCode> {
    let stop = face::interrupt()?;
    match quiet_experiment::boots_go_on(&args.state, &stop, &Progress::new())? {
        BootsGone::Reboot => {
            let tune = quiet_experiment::boots_status(&args.state)?;
            if tune.is_some_and(|tune| tune.by_hand) {
                face::say("The next boot is due: reboot.");
                return Ok(ExitCode::SUCCESS);
            }
            quiet_experiment::reboot(&args.state)?;
            Ok(ExitCode::SUCCESS)
        }
        BootsGone::Interrupted => Ok(ExitCode::SUCCESS),
        BootsGone::Over(tuned) => over(args, &tuned),
    }
}

fn end(args: &Args) -> anyhow::Result<ExitCode> {
    let tuned = quiet_experiment::end_boots(&args.state)?;
    over(args, &tuned)
}

/// Kept first, then the rest of what goes on after reboots is taken away.
fn over(args: &Args, tuned: &Tuned) -> anyhow::Result<ExitCode> {
    let tune = quiet_experiment::boots_status(&args.state)?;
    let (place, page) = tune.map(|tune| (tune.store, tune.page)).unwrap_or_default();
    let store = keep::ready(place.as_deref().map(Path::new), "tunes")?;
    let page = page.as_deref().map(|page| keep::Target::page(Path::new(page))).transpose()?;
    let save = |losses: &mut keep::Losses| match store.find(&tuned.head.id) {
        // Cut between keeping it and forgetting the boots.
        Ok(_) => None,
        Err(_) => losses.of("the tune", store.save_other("tunes", &tuned.head.id, tuned)),
    };
    let said = tell(args, tuned, save, (page, None));
    quiet_experiment::finish_boots(&args.state)?;
    said
}
