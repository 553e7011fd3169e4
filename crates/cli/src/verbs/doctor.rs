//! `doctor`: the mends of what `check` finds, one by one.

use super::{
    apply::{self, LONGEST_WAIT},
    plan::Wished,
};
use crate::{face, talk::Talk};
use anyhow::{Context, anyhow};
use quiet_experiment::{machine, read_chain};
use quiet_linux::{Root, files::DEFAULT_STATE};
use quiet_plan::{check::audit, mend};
use quiet_report::{
    doctor::{doctored_text, mend_text},
    plan::applied_text,
};
use quiet_service::acts::Acts;
use quiet_types::{
    Chain, CpuSet, Finding, Machine, Plan, Severity,
    doctor::{Doctored, Mend, MendAnswer, MendWay, Mended, SCHEMA},
    plan::ShieldStanding,
};
use std::{
    io::{Stdin, stdin},
    path::PathBuf,
    process::ExitCode,
};

/// Mend what stands in the way of low latency, one finding after the other
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo quietcores doctor                  asks about each finding of `check`; what is agreed to is done at the end
  sudo quietcores doctor living-room.toml for a chain: its CPUs, IRQs and programs
  sudo quietcores doctor --yes            takes the default of every question: yes to warnings and problems
  quietcores doctor --dry-run             what could be done, by which steps and commands

What the program can do at run time goes through the journal: `quietcores revert` puts it back.
What needs a login, a reboot or a package is shown as a command (docs/doctor.md).
Exit status: 0 nothing is left of the level of a warning or above, 1 something is, 2 an error: the machine is as it was.")]
pub struct Args {
    /// Chain file (TOML): the audio path, link by link
    chain: Option<PathBuf>,
    /// Take the default of every question, and read no answer
    #[arg(long, short)]
    yes: bool,
    /// Put the machine back by itself after so many seconds, unless `quietcores confirm` is run
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=LONGEST_WAIT))]
    confirm: Option<u64>,
    /// Show what could be done; ask nothing, change nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Read the machine captured in DIR in place of this one; changes nothing
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Print what came of it as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Directory of the journal
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    state: PathBuf,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let root = match &args.root {
        Some(dir) => Root::at(dir),
        None => Root::system(),
    }
    .context("cannot look at the machine")?;
    let machine = machine(&root)?;
    let there: CpuSet = machine.cpus.iter().map(|cpu| cpu.id).collect();
    let known = there.union(&machine.online);
    let chain = args.chain.as_ref().map(|path| read_chain(path, &known)).transpose()?;
    let found = audit(&machine, chain.as_ref()).findings;
    let (plan, mut findings) = plan(&args, &machine);
    let typed = typed(&args, plan.as_ref());
    let mends = mend::mends(&machine, plan.as_ref(), &found, &typed);
    findings.extend(hindrance(&args)?);
    let can = !args.dry_run && args.root.is_none() && findings.is_empty();

    let stop = face::interrupt()?;
    let mut talk = Talk::new(stdin(), args.yes, &stop);
    let mut mended = Vec::new();
    for one in mends {
        let answer =
            answer(&args, &mut talk, &one, can).context("nothing on this machine is changed")?;
        mended.push(Mended { mend: one, answer, still_there: None });
    }
    let taken = mended.iter().filter(|one| one.answer == MendAnswer::Taken);
    let ways: Vec<&MendWay> = taken.map(|one| &one.mend.way).collect();
    let mut done = Doctored {
        schema: SCHEMA.into(),
        applied: None,
        new: Vec::new(),
        mended: Vec::new(),
        findings,
    };
    if let Some(chosen) = mend::mending(&machine, plan.as_ref(), &ways) {
        let applied = apply::put_up(&chosen, &args.state, args.confirm, &stop)?;
        if !args.json {
            face::print(&applied_text(&applied))?;
        }
        done.applied = Some(applied);
        done.new = second_look(&chain, &chosen, &mut mended)?;
    }
    done.mended = mended;
    show(&args, &done)
}

/// The plan that steps are taken from; where there is none, why.
fn plan(args: &Args, machine: &Machine) -> (Option<Plan>, Vec<Finding>) {
    let wish = Wished { chain: args.chain.clone(), cpus: None, never_sleep: false, smt_off: false };
    match quiet_experiment::plan(&wish.wish(), machine) {
        Ok(plan) => (Some(plan), Vec::new()),
        Err(error) => {
            face::say(&format!("No CPU can be set apart: {error}"));
            (None, Vec::new())
        }
    }
}

/// What a person types where a verb wants the chain.
fn typed(args: &Args, plan: Option<&Plan>) -> String {
    match (&args.chain, plan) {
        (Some(path), _) => quiet_types::printable(&path.display().to_string(), 300),
        (None, Some(plan)) => format!("--cpus {}", plan.shield.cpus),
        (None, None) => "CHAIN".to_owned(),
    }
}

/// Why no step can be taken here, where that is so.
fn hindrance(args: &Args) -> anyhow::Result<Option<Finding>> {
    if args.dry_run || args.root.is_some() {
        return Ok(None);
    }
    if !face::is_root() {
        let title = "Nothing is mended without root: kernel settings are changed.";
        let remedy = "run `sudo quietcores doctor`; where root has approved a chain, `quietcores apply NAME` puts it up";
        let finding = Finding::new(Severity::Warning, "doctor.not_root", title);
        return Ok(Some(finding.remedy(remedy)));
    }
    let status = Acts::at(&args.state).status().map_err(|error| anyhow!(error.sentence()))?;
    let (title, remedy) = match status.state {
        ShieldStanding::None | ShieldStanding::Rebooted => return Ok(None),
        ShieldStanding::Up => (
            "A shield, or an earlier mend, is up: its journal is not added to.",
            "`quietcores watch` puts right what drifted of it; or run `quietcores revert`, and doctor again",
        ),
        ShieldStanding::Leftover => (
            "An earlier apply or revert did not come to its end.",
            "run `quietcores revert`, and doctor again",
        ),
    };
    Ok(Some(Finding::new(Severity::Warning, "doctor.shield_up", title).remedy(remedy)))
}

fn answer(
    args: &Args,
    talk: &mut Talk<'_, Stdin>,
    mend: &Mend,
    can: bool,
) -> anyhow::Result<MendAnswer> {
    if !args.json {
        face::print(&mend_text(mend, face::page_width()))?;
    } else if !args.yes && can {
        face::say(mend_text(mend, face::page_width()).trim_end());
    }
    if !can || !matches!(mend.way, MendWay::Steps { .. }) {
        return Ok(MendAnswer::NotAsked);
    }
    let agreed = talk.agrees("Mend it?", mend.usual)?;
    Ok(if agreed { MendAnswer::Taken } else { MendAnswer::Left })
}

/// Looks again: which findings are gone, and which are new.
fn second_look(
    chain: &Option<Chain>,
    chosen: &Plan,
    mended: &mut [Mended],
) -> anyhow::Result<Vec<Finding>> {
    let after = audit(&machine(&Root::system()?)?, chain.as_ref()).findings;
    for one in mended.iter_mut() {
        one.still_there = Some(after.iter().any(|finding| finding.id == one.mend.finding.id));
    }
    let known = |finding: &Finding| mended.iter().any(|one| one.mend.finding.id == finding.id);
    // That a shield is there at all brings checks of it, which is no news.
    let shielded = !chosen.shield.cpus.is_empty();
    let news = after.into_iter().filter(|finding| !known(finding));
    Ok(news.filter(|finding| !(shielded && finding.id == "shield.not_persistent")).collect())
}

fn show(args: &Args, done: &Doctored) -> anyhow::Result<ExitCode> {
    if args.json {
        face::print_json(done)?;
    } else {
        face::print(&doctored_text(done, face::page_width()))?;
    }
    if let (Some(seconds), Some(_)) = (args.confirm, &done.applied) {
        face::say(&format!(
            "In {seconds} s the machine is put back by itself, unless you run: quietcores confirm"
        ));
    }
    let grave = |finding: &Finding| finding.severity >= Severity::Warning;
    let left =
        done.mended.iter().any(|one| grave(&one.mend.finding) && one.still_there.unwrap_or(true));
    let held = done.applied.as_ref().is_none_or(apply::is_whole);
    let fine = !left && held && !done.new.iter().chain(&done.findings).any(grave);
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::from(face::FINDINGS) })
}
