//! `doctor`: the mends of what `check` finds, one by one.

use super::{
    apply::{self, LONGEST_WAIT},
    plan::Wished,
    revert,
};
use crate::{face, progress::Progress, talk::Talk};
use anyhow::{Context, anyhow, bail};
use quiet_experiment::{machine, make_way, read_chain};
use quiet_linux::{Root, System, files::DEFAULT_STATE};
use quiet_plan::{check::audit, mend};
use quiet_report::doctor::{doctored_text, made_text, mend_text};
use quiet_service::acts::Acts;
use quiet_shield::WayBack;
use quiet_types::{
    Chain, CpuSet, Finding, Machine, Plan, Severity,
    doctor::{Doctored, Mend, MendAnswer, MendWay, Mended, SCHEMA},
    plan::{APPLIED_SCHEMA, Applied, ShieldStanding, Step, Taken},
};
use std::{
    io::{Stdin, stdin},
    path::PathBuf,
    process::ExitCode,
    sync::atomic::AtomicBool,
};

/// Mend what stands in the way of low latency, one finding after the other
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo quietcores doctor                  asks about each finding of `check`; what is agreed to is done at once
  sudo quietcores doctor living-room.toml for a chain: its CPUs, IRQs and programs
  sudo quietcores doctor --yes            takes the default of every question: yes to warnings and problems
  quietcores doctor --dry-run             what could be done, by which steps and commands
  sudo quietcores doctor --undo noise.ksm takes one mend back; the others stay

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
    /// Put back what mended FINDING, and leave the rest
    #[arg(long, value_name = "FINDING", conflicts_with_all = ["chain", "yes", "confirm", "dry_run", "root"])]
    undo: Option<String>,
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
    if let Some(id) = &args.undo {
        return undo(&args, id);
    }
    let root = match &args.root {
        Some(dir) => Root::at(dir),
        None => Root::system(),
    }
    .context("cannot look at the machine")?;
    if args.root.is_none() {
        make_way(&args.state, &Progress::new())?;
    }
    let machine = machine(&root)?;
    let there: CpuSet = machine.cpus.iter().map(|cpu| cpu.id).collect();
    let known = there.union(&machine.online);
    let chain = args.chain.as_ref().map(|path| read_chain(path, &known)).transpose()?;
    let found = audit(&machine, chain.as_ref()).findings;
    let (plan, mut findings) = plan(&args, &machine);
    let typed = typed(&args, plan.as_ref());
    let mends = mend::mends(&machine, plan.as_ref(), &found, &typed);
    let may = may(&args, &mends)?;
    let can = findings.is_empty();
    findings.extend(may.finding.clone());

    let stop = face::interrupt()?;
    let mut talk = Talk::new(stdin(), args.yes, &stop);
    let mut hands = Hands::new(&args, &machine, plan.as_ref(), chain.as_ref(), &stop, may.up);
    let mut mended: Vec<Option<Mended>> = mends.iter().map(|_| None).collect();
    for at in turns(&mends) {
        let one = &mends[at];
        let can = can && may.may(one);
        let done = answer(&args, &mut talk, one, can)
            .and_then(|answer| Ok((answer, hands.take(one, answer)?)));
        let (answer, still_there) = match done {
            Ok(done) => done,
            Err(error) => return Err(hands.put_back(error)),
        };
        mended[at] = Some(Mended { mend: one.clone(), answer, still_there });
    }
    let mut done = Doctored {
        schema: SCHEMA.into(),
        applied: hands.applied.take(),
        undone: Vec::new(),
        new: Vec::new(),
        mended: mended.into_iter().flatten().collect(),
        findings,
    };
    if let Some(applied) = &done.applied {
        let shielded = !applied.shield.cpus.is_empty();
        done.new = second_look(&chain, shielded, &mut done.mended)?;
    }
    show(&args, &done)
}

/// In which order they are asked about: the shield first, for nothing can be put below it later; who would move interrupts back before
/// interrupts; the rest as the audit has them.
fn turns(mends: &[Mend]) -> Vec<usize> {
    let mut turns: Vec<usize> = (0..mends.len()).collect();
    turns.sort_by_key(|at| {
        let mend = &mends[*at];
        (!is_shield(mend), mend.finding.id != "irq.balance")
    });
    turns
}

fn is_shield(mend: &Mend) -> bool {
    matches!(mend.way, MendWay::Steps { shield: true, .. })
}

/// Puts back what mended one finding.
fn undo(args: &Args, id: &str) -> anyhow::Result<ExitCode> {
    if !face::is_root() {
        bail!("only root takes a mend back: sudo quietcores doctor --undo {id}");
    }
    let ways = quiet_shield::ways_back(&System, &args.state)?;
    let own = quiet_shield::current(&System, &args.state)?.map(|shield| shield.cpus);
    let own = own.unwrap_or_default();
    let of = |step: &Step| mend::mended_by(step, &own);
    let wanted = ways.iter().filter(|way| of(&way.taken).contains(&id));
    let steps: Vec<Step> = wanted.map(|way| way.back.clone()).collect();
    if steps.is_empty() {
        let mut known: Vec<&str> = ways.iter().flat_map(|way| of(&way.taken)).collect();
        known.sort_unstable();
        known.dedup();
        let id = quiet_types::printable(id, 60);
        match known.is_empty() {
            true => bail!(
                "no mend of `{id}` is up, nor another one that is taken back by itself; `quietcores revert` puts the machine back"
            ),
            false => bail!("no mend of `{id}` is up: there are those of {}", known.join(", ")),
        }
    }
    let undone = quiet_shield::add(&System, &args.state, &steps, None)?;
    let done = Doctored {
        schema: SCHEMA.into(),
        applied: None,
        undone,
        new: Vec::new(),
        mended: Vec::new(),
        findings: Vec::new(),
    };
    if args.json {
        face::print_json(&done)?;
    } else {
        face::print(&doctored_text(&done, face::page_width()))?;
    }
    let held = done.undone.iter().all(|taken| taken.outcome.holds());
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::from(face::FINDINGS) })
}

/// What takes the mends that were agreed to, each at once.
struct Hands<'a> {
    args: &'a Args,
    machine: &'a Machine,
    plan: Option<&'a Plan>,
    chain: Option<&'a Chain>,
    stop: &'a AtomicBool,
    /// Whether something was up before.
    was_up: bool,
    applied: Option<Applied>,
}

impl<'a> Hands<'a> {
    fn new(
        args: &'a Args,
        machine: &'a Machine,
        plan: Option<&'a Plan>,
        chain: Option<&'a Chain>,
        stop: &'a AtomicBool,
        was_up: bool,
    ) -> Hands<'a> {
        Hands { args, machine, plan, chain, stop, was_up, applied: None }
    }

    /// Takes a mend that was agreed to, and looks at once whether the finding is gone.
    fn take(&mut self, mend: &Mend, answer: MendAnswer) -> anyhow::Result<Option<bool>> {
        let chosen = (answer == MendAnswer::Taken)
            .then(|| mend::mending(self.machine, self.plan, &[&mend.way]))
            .flatten();
        let Some(chosen) = chosen else { return Ok(None) };
        let steps = if is_shield(mend) { self.begin(&chosen)? } else { self.add(&chosen)? };
        let still_there = looked(self.chain)?.iter().any(|finding| finding.id == mend.finding.id);
        let text = made_text(mend, &steps, still_there);
        match self.args.json {
            true => face::say(text.trim_end()),
            false => face::print(&text)?,
        }
        Ok(Some(still_there))
    }

    fn begin(&mut self, chosen: &Plan) -> anyhow::Result<Vec<Taken>> {
        let applied = apply::put_up(chosen, &self.args.state, self.args.confirm, self.stop)?;
        let steps = applied.steps.clone();
        self.applied = Some(applied);
        Ok(steps)
    }

    /// Settings are added to what is up; where nothing is, to a set of single settings that begins empty.
    fn add(&mut self, chosen: &Plan) -> anyhow::Result<Vec<Taken>> {
        if self.applied.is_none() && !self.was_up {
            self.begin(&Plan { steps: Vec::new(), ..chosen.clone() })?;
        }
        let program = std::env::current_exe().context("cannot find the program itself")?;
        let taken = quiet_shield::add(&System, &self.args.state, &chosen.steps, Some(&program))?;
        match &mut self.applied {
            Some(applied) => applied.steps.extend(taken.iter().cloned()),
            none => {
                let shield = quiet_shield::current(&System, &self.args.state)?;
                *none = Some(Applied {
                    schema: APPLIED_SCHEMA.into(),
                    shield: shield.unwrap_or_else(|| chosen.shield.clone()),
                    steps: taken.clone(),
                    residents: Vec::new(),
                    chain: Vec::new(),
                    findings: Vec::new(),
                });
            }
        }
        Ok(taken)
    }

    /// Before an error: what this conversation has done is put back.
    fn put_back(&mut self, error: anyhow::Error) -> anyhow::Error {
        let Some(applied) = self.applied.take() else {
            return error.context("nothing on this machine is changed");
        };
        let done = match self.was_up {
            false => revert::put_back(&self.args.state)
                .map(|done| done.is_none_or(|done| done.is_complete())),
            true => self.withdraw(&applied),
        };
        match done {
            Ok(true) => error.context("what was mended so far is put back: nothing on this machine is changed"),
            Ok(false) | Err(_) => error.context("not all that was mended so far is put back: see `quietcores status`, and run `quietcores revert`"),
        }
    }

    fn withdraw(&self, applied: &Applied) -> anyhow::Result<bool> {
        let ours =
            |way: &WayBack| applied.steps.iter().any(|taken| taken.step.action == way.taken.action);
        let ways = quiet_shield::ways_back(&System, &self.args.state)?;
        let steps: Vec<Step> = ways.into_iter().filter(ours).map(|way| way.back).collect();
        let taken = quiet_shield::add(&System, &self.args.state, &steps, None)?;
        Ok(taken.iter().all(|taken| taken.outcome.holds()))
    }
}

/// What an audit of this machine finds now.
fn looked(chain: Option<&Chain>) -> anyhow::Result<Vec<Finding>> {
    Ok(audit(&machine(&Root::system()?)?, chain).findings)
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

/// Which mends may be taken here.
struct May {
    /// Something is up: settings are added to it.
    up: bool,
    settings: bool,
    shields: bool,
    /// Why not all of them.
    finding: Option<Finding>,
}

impl May {
    fn may(&self, mend: &Mend) -> bool {
        if is_shield(mend) { self.shields } else { self.settings }
    }
}

fn may(args: &Args, mends: &[Mend]) -> anyhow::Result<May> {
    let all = May { up: false, settings: true, shields: true, finding: None };
    let none = May { settings: false, shields: false, ..all };
    if args.dry_run || args.root.is_some() {
        return Ok(none);
    }
    let warning = |id: &str, title: &str, remedy: &str| {
        Some(Finding::new(Severity::Warning, id, title).remedy(remedy))
    };
    if !face::is_root() {
        let title = "Nothing is mended without root: kernel settings are changed.";
        let remedy = "run `sudo quietcores doctor`; where root has approved a chain, `quietcores apply NAME` puts it up";
        return Ok(May { finding: warning("doctor.not_root", title, remedy), ..none });
    }
    let status = Acts::at(&args.state).status().map_err(|error| anyhow!(error.sentence()))?;
    Ok(match status.state {
        ShieldStanding::None | ShieldStanding::Rebooted => {
            May { up: false, settings: true, shields: true, finding: None }
        }
        ShieldStanding::Up if args.confirm.is_some() => bail!(
            "a shield, or an earlier mend, is up: what is added to it is confirmed already; leave out --confirm"
        ),
        // What is up ends with the program that it belongs to.
        ShieldStanding::Up if status.by.as_ref().is_some_and(|by| by.process.is_some()) => {
            let title = "A shield is up that ends with the program which put it up.";
            let remedy = "run doctor again when that program has ended";
            May { finding: warning("doctor.shield_up", title, remedy), ..none }
        }
        ShieldStanding::Up => {
            let title = "A shield, or an earlier mend, is up: no other shield is put below it.";
            let remedy = "run `quietcores revert`, and doctor again; single settings are added to what is up";
            let finding = warning("doctor.shield_up", title, remedy);
            let finding = finding.filter(|_| mends.iter().any(is_shield));
            May { up: true, settings: true, shields: false, finding }
        }
        ShieldStanding::Leftover => {
            let title = "An earlier apply or revert did not come to its end.";
            let remedy = "run `quietcores revert`, and doctor again";
            May { finding: warning("doctor.shield_up", title, remedy), ..none }
        }
    })
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
    shielded: bool,
    mended: &mut [Mended],
) -> anyhow::Result<Vec<Finding>> {
    let after = looked(chain.as_ref())?;
    for one in mended.iter_mut() {
        one.still_there = Some(after.iter().any(|finding| finding.id == one.mend.finding.id));
    }
    let known = |finding: &Finding| mended.iter().any(|one| one.mend.finding.id == finding.id);
    // That a shield is there at all brings checks of it, which is no news.
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
