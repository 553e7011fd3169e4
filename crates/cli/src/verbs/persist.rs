//! `persist`

use super::plan::Wished;
use crate::face;
use anyhow::{Context, bail};
use quiet_boot::{
    CHAIN, Loader, LoaderKind, NoRunner, PersistRequest, Phase, Proposal, Record, Runner, Service,
    SystemRunner, Term,
};
use quiet_experiment::machine;
use quiet_linux::files::Tree;
use quiet_linux::{Root, System};
use quiet_plan::boot::{self, Extra};
use quiet_shield::DEFAULT_STATE;
use quiet_types::{
    Finding, Machine, Severity,
    boot::BootParameters,
    said::{PERSISTED, Persisted},
};
use std::{
    fmt::Write as _,
    io::{BufRead, IsTerminal, stdin},
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Keep it across reboots: boot parameters, and a systemd unit that applies the chain
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores persist --cpus 2-3 --dry-run     shows the parameters and every change of a file
  quietcores persist living-room.toml         for a chain: shows, asks, writes; then reboot
  quietcores persist --cpus 3 --never-sleep   for a loop that never sleeps: no tick either
  quietcores persist living-room.toml --trial for the next boot only, kept once all is good
  quietcores persist --bless                  keep the trial that is running
Exit status: 0 done, 1 done with something left out (named), or a trial that is not good, 2 nothing is changed.")]
pub struct Args {
    #[command(flatten)]
    wish: Wished,
    /// Parameters beside those of the mode
    #[arg(long = "with", value_name = "NAME,...", value_enum, value_delimiter = ',')]
    extras: Vec<Named>,
    /// For one boot only: the old entry stays the default until the trial is blessed
    #[arg(long, conflicts_with = "bless")]
    trial: bool,
    /// Keep the trial that is running, if all it asked for is in force
    #[arg(long, conflicts_with_all = ["chain", "cpus", "never_sleep", "smt_off", "extras", "loader"])]
    bless: bool,
    /// Which boot loader, where the files of several are found
    #[arg(long, value_name = "NAME", value_parser = loader_name)]
    loader: Option<LoaderKind>,
    /// Boot parameters only, no systemd unit
    #[arg(long)]
    no_unit: bool,
    /// The installed program that the unit runs [default: this one]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Show what would be written, and write nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Do not ask
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

/// A boot parameter by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Named {
    /// Interrupt handlers in threads, so that they can have priorities (not needed on PREEMPT_RT)
    Threadirqs,
    /// The CPUs' ticks do not fall together
    SkewTick,
    /// No alarm about a thread that never sleeps
    Nosoftlockup,
    /// Threads that invoke RCU callbacks poll
    RcuNocbPoll,
}

/// A boot loader by its name.
pub fn loader_name(name: &str) -> Result<LoaderKind, String> {
    let known = || LoaderKind::ALL.map(|(_, name)| name).join(", ");
    LoaderKind::ALL
        .iter()
        .find(|(_, known)| *known == name)
        .map(|(kind, _)| *kind)
        .ok_or_else(|| format!("known are {}", known()))
}

/// Where `persist` and `unpersist` work.
pub struct Site {
    /// Its files.
    pub place: Tree,
    /// Where the machine is read.
    pub root: Root,
    /// The state directory.
    pub state: PathBuf,
}

impl Site {
    /// This machine, or a tree of files.
    pub fn of(root: Option<&Path>, state: Option<&Path>) -> anyhow::Result<Site> {
        let default = Path::new(DEFAULT_STATE);
        Ok(match root {
            None => Site {
                place: Tree::system()?,
                root: Root::system()?,
                state: state.unwrap_or(default).to_owned(),
            },
            Some(dir) => {
                let below = dir.join(default.strip_prefix("/").unwrap_or(default));
                Site {
                    place: Tree::at(dir)?,
                    root: Root::at(dir)?,
                    state: state.map_or(below, Path::to_owned),
                }
            }
        })
    }

    /// What runs the loader's programs here.
    pub fn runner(&self) -> &'static dyn Runner {
        if self.place.is_system() { &SystemRunner } else { &NoRunner }
    }

    fn make_state_parent(&self) -> anyhow::Result<()> {
        let parent = self.state.parent().unwrap_or(&self.state);
        std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let site = Site::of(args.root.as_deref(), args.state.as_deref())?;
    if !args.dry_run {
        need_root(&site, ", or add --dry-run to only look")?;
    }
    if args.bless {
        return bless(&args, &site);
    }
    let (proposal, findings) = proposed(&args, &site)?;
    finish(&args, &site, &proposal, &findings)
}

/// What would be written, and what to know of it.
fn proposed(args: &Args, site: &Site) -> anyhow::Result<(Proposal, Vec<Finding>)> {
    if !args.dry_run || rustix::process::geteuid().is_root() {
        quiet_boot::vacant(&site.state)?;
        if site.place.is_system() && quiet_experiment::boots_status(&site.state)?.is_some() {
            bail!(
                "a tune of boot parameters is under way, and each of its boots has to be as it was asked for: `quietcores tune \
                 --boot-status` tells how far it is, `--boot-end` ends it"
            );
        }
    }
    let machine = machine(&site.root)?;
    let (asked, mut findings) = asked(args, &machine)?;
    let loader = quiet_boot::the_loader(&site.place, args.loader, &asked.words())?;
    let (asked, more) = reconciled(&site.place, &loader, &asked, &machine)?;
    findings.extend(more);
    if findings.iter().any(|finding| finding.severity == Severity::Problem) {
        bail!("nothing is changed:\n{}", findings_text(&findings).trim_end());
    }
    let service = if args.no_unit { None } else { service(args, site, &asked, &mut findings)? };
    let term = if args.trial { Term::OneBoot } else { Term::Lasting };
    let request = PersistRequest {
        asked: &asked,
        loader: &loader,
        service: service.as_ref(),
        term,
        kernel: None,
    };
    let proposal = quiet_boot::propose(&site.place, &request)?;
    findings.extend(proposal.findings.iter().cloned());
    Ok((proposal, findings))
}

/// Writes what the next boots are asked for, once `agree` has read it and agrees; `None` where it does not.
pub fn persisted(
    args: &Args,
    agree: impl FnOnce(&str) -> anyhow::Result<bool>,
) -> anyhow::Result<Option<Persisted>> {
    let site = Site::of(args.root.as_deref(), args.state.as_deref())?;
    need_root(&site, "")?;
    let (proposal, findings) = proposed(args, &site)?;
    if !agree(&proposal_text(&proposal, &findings))? {
        return Ok(None);
    }
    site.make_state_parent()?;
    let written = quiet_boot::write(&site.place, &site.state, &proposal, site.runner())?;
    Ok(Some(as_json(&proposal, &findings, Some(&written.to_run))))
}

fn finish(
    args: &Args,
    site: &Site,
    proposal: &Proposal,
    findings: &[Finding],
) -> anyhow::Result<ExitCode> {
    if args.dry_run || !args.yes {
        let text = proposal_text(proposal, findings);
        if !args.json {
            face::print(&text)?;
        }
        if args.dry_run {
            if args.json {
                face::print_json(&as_json(proposal, findings, None))?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        if args.json && stdin().is_terminal() {
            face::say(&text);
        }
        ask()?;
    }
    site.make_state_parent()?;
    let written = quiet_boot::write(&site.place, &site.state, proposal, site.runner())?;
    if args.json {
        face::print_json(&as_json(proposal, findings, Some(&written.to_run)))?;
    } else {
        if args.yes {
            face::print(&proposal_text(proposal, findings))?;
        }
        face::print(&done_text(proposal, &site.state, &written.to_run))?;
    }
    let warned = findings.iter().any(|finding| finding.severity >= Severity::Warning);
    Ok(if warned { ExitCode::from(face::FINDINGS) } else { ExitCode::SUCCESS })
}

/// Changes of boot files are root's, and dry runs everybody's; `or` says what else there is to do.
pub fn need_root(site: &Site, or: &str) -> anyhow::Result<()> {
    if site.place.is_system() && !rustix::process::geteuid().is_root() {
        bail!("boot files are root's: run this with sudo{or}");
    }
    Ok(())
}

fn ask() -> anyhow::Result<()> {
    if !stdin().is_terminal() {
        bail!("cannot ask: standard input is no terminal; add --yes to write without asking");
    }
    face::say("Write this? [y/N]");
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        bail!("not written; nothing is changed");
    }
    Ok(())
}

fn asked(args: &Args, machine: &Machine) -> anyhow::Result<(BootParameters, Vec<Finding>)> {
    let plan = quiet_experiment::plan(&args.wish.wish(), machine)?;
    let mode = plan.mode;
    let extras = args.extras.iter().map(|named| match named {
        Named::Threadirqs => Extra::ThreadedIrqs,
        Named::SkewTick => Extra::SkewedTick,
        Named::Nosoftlockup => Extra::NoSoftLockup,
        Named::RcuNocbPoll => Extra::PollRcu,
    });
    let wish = boot::BootWish { cpus: plan.shield.cpus, mode, extras: extras.collect() };
    boot::parameters(machine, &wish)
        .map_err(|finding| anyhow::anyhow!("{}; {}", finding.title, finding.remedy))
}

fn reconciled(
    place: &Tree,
    loader: &Loader,
    asked: &BootParameters,
    machine: &Machine,
) -> anyhow::Result<(BootParameters, Vec<Finding>)> {
    let (entries, longest) = quiet_boot::entries_of(place, loader).map_err(anyhow::Error::msg)?;
    Ok(boot::reconcile(asked, &entries, &machine.kernel.boot_parameters, longest))
}

fn service(
    args: &Args,
    site: &Site,
    asked: &BootParameters,
    findings: &mut Vec<Finding>,
) -> anyhow::Result<Option<Service>> {
    let systemd = ["/usr/lib/systemd/systemd", "/lib/systemd/systemd"];
    if !systemd.iter().any(|path| site.place.exists(path)) {
        findings.push(
            Finding::new(
                Severity::Warning,
                "persist.no_systemd",
                "no unit is written: this machine has no systemd",
            )
            .remedy("let your init system run `quietcores apply ... --yes` at boot"),
        );
        return Ok(None);
    }
    let program = match &args.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("cannot find the program itself")?,
    };
    if site.place.is_system() {
        quiet_boot::only_roots(&program)?;
    }
    let mut apply = Vec::new();
    let mut chain = None;
    if let Some(path) = &args.wish.chain {
        chain = Some(quiet_experiment::chain_text(path)?.into_bytes());
        apply.push(CHAIN.to_owned());
    }
    // The CPUs of the boot parameters, whatever a later plan would choose.
    apply.extend(["--cpus".to_owned(), asked.cpus.to_string()]);
    if args.wish.never_sleep {
        apply.push("--never-sleep".into());
    }
    if args.wish.smt_off {
        apply.push("--smt-off".into());
    }
    let program = program.to_str().context("the program's path is not UTF-8")?.to_owned();
    Ok(Some(Service { program, apply, chain }))
}

/// Keeps the trial: takes its entry back, and writes the same for good.
fn bless(args: &Args, site: &Site) -> anyhow::Result<ExitCode> {
    let record = match quiet_boot::record(&site.state)? {
        Some(record) if record.trial && record.stage == Phase::Done => record,
        Some(record) if record.stage == Phase::Done && args.json => {
            face::print_json(&as_before(&record, None))?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(record) if record.stage == Phase::Done => {
            face::print("It is kept already: nothing is on trial.\n")?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(_) => bail!("an earlier persist did not come to its end; run `quietcores unpersist`"),
        None => bail!("nothing is on trial; `quietcores persist --trial` begins one"),
    };
    let findings = standing(site, &record)?;
    if args.json && (!findings.is_empty() || args.dry_run) {
        let status = if findings.is_empty() { 0 } else { face::FINDINGS };
        face::print_json(&Persisted { findings, ..as_before(&record, Some(false)) })?;
        return Ok(ExitCode::from(status));
    }
    if !findings.is_empty() {
        face::print(&format!(
            "Not blessed, and nothing is changed: the next boot is as before the trial.\n{}",
            findings_text(&findings)
        ))?;
        return Ok(ExitCode::from(face::FINDINGS));
    }
    if args.dry_run {
        face::print("The trial is good; without --dry-run it would be kept.\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let chain = site.place.read(CHAIN)?.map(|found| found.bytes);
    let service = match &record.apply {
        None => None,
        Some(apply) => {
            let program = match &args.program {
                Some(program) => program.clone(),
                None => std::env::current_exe().context("cannot find the program itself")?,
            };
            let program = program.to_str().context("the program's path is not UTF-8")?.to_owned();
            let chain = chain.filter(|_| apply.first().is_some_and(|first| first == CHAIN));
            Some(Service { program, apply: apply.clone(), chain })
        }
    };
    let kind = loader_name(&record.loader).ok();
    let undone = quiet_boot::undo(&site.place, &site.state, site.runner())?;
    if undone.is_some_and(|undone| !undone.is_complete()) {
        bail!("the trial's entry could not be taken back; run `quietcores unpersist`");
    }
    let loader = quiet_boot::the_loader(&site.place, kind, &record.asked.words())?;
    let request = PersistRequest {
        asked: &record.asked,
        loader: &loader,
        service: service.as_ref(),
        term: Term::Lasting,
        kernel: None,
    };
    let proposal = quiet_boot::propose(&site.place, &request)?;
    let written = quiet_boot::write(&site.place, &site.state, &proposal, site.runner())?;
    if args.json {
        let blessed = Some(true);
        let said = as_json(&proposal, &[], Some(&written.to_run));
        face::print_json(&Persisted { blessed, ..said })?;
    } else {
        face::print("The trial is good: from now on every boot is like this one.\n")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What speaks against the boot on trial: parameters that are not in force, a shield that is not up.
fn standing(site: &Site, record: &Record) -> anyhow::Result<Vec<Finding>> {
    let mut findings = boot::compare(&record.asked, &machine(&site.root)?);
    if record.apply.is_some() && site.place.is_system() && findings.is_empty() {
        let status = quiet_shield::status(&System, &site.state)?;
        if status.shield.is_none() || !status.is_good() {
            findings.push(
                Finding::new(
                    Severity::Problem,
                    "persist.shield",
                    "the shield of this boot is not up, or not as it was made",
                )
                .remedy("`quietcores status` and `systemctl status quietcores` say why"),
            );
        }
    }
    Ok(findings)
}

fn findings_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let sign = match finding.severity {
            Severity::Problem => "problem",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        let _ = writeln!(text, "{sign}: {}", finding.title);
        for line in [&finding.evidence, &finding.effect, &finding.remedy] {
            if !line.is_empty() {
                let _ = writeln!(text, "    {line}");
            }
        }
    }
    text
}

fn proposal_text(proposal: &Proposal, findings: &[Finding]) -> String {
    let asked = &proposal.asked;
    let mut text = format!(
        "CPU {} for the chain ({}), CPU {} for everybody else; boot loader: {}\n\n",
        asked.cpus,
        asked.mode.name(),
        asked.housekeeping,
        proposal.loader.name()
    );
    for parameter in &asked.parameters {
        let _ = writeln!(text, "  {}\n      {}", parameter.word(), parameter.why);
    }
    let _ = write!(text, "\n{}", proposal.diff());
    if !findings.is_empty() {
        let _ = write!(text, "\n{}", findings_text(findings));
    }
    text
}

fn done_text(proposal: &Proposal, state: &Path, to_run: &[Vec<String>]) -> String {
    let mut text = format!(
        "\nWritten. Every old file lies whole in {}.\n",
        state.join("persist/old").display()
    );
    for command in to_run {
        let _ = writeln!(text, "Not run, because this is a tree of files: {}", command.join(" "));
    }
    let start = quiet_boot::how_to_start(proposal.loader);
    text += &match proposal.term {
        Term::Lasting => "It takes effect at the next boot: sudo reboot\n\
                          Then `quietcores status` compares what was asked with what is; \
                          `quietcores unpersist` takes it back.\n"
            .to_owned(),
        Term::OneBoot => format!(
            "It is for one boot: {start}\nThe boot after that is as before, unless the trial is \
             blessed: `quietcores persist --bless`{}.\n",
            if proposal.apply.is_some() { " (its unit does it when all is good)" } else { "" }
        ),
    };
    text
}

fn as_json(
    proposal: &Proposal,
    findings: &[Finding],
    written: Option<&Vec<Vec<String>>>,
) -> Persisted {
    Persisted {
        schema: PERSISTED.to_owned(),
        loader: proposal.loader.name().to_owned(),
        trial: proposal.term == Term::OneBoot,
        blessed: None,
        asked: proposal.asked.clone(),
        findings: findings.to_vec(),
        changes: proposal.steps.iter().map(|step| step.change.what()).collect(),
        diff: proposal.diff(),
        written: written.is_some(),
        to_run: written.cloned(),
        start: quiet_boot::how_to_start(proposal.loader).to_owned(),
    }
}

/// What is kept already, where nothing is changed.
fn as_before(record: &Record, blessed: Option<bool>) -> Persisted {
    let start = loader_name(&record.loader).map(quiet_boot::how_to_start);
    Persisted {
        schema: PERSISTED.to_owned(),
        loader: record.loader.clone(),
        trial: record.trial,
        blessed,
        asked: record.asked.clone(),
        findings: Vec::new(),
        changes: Vec::new(),
        diff: String::new(),
        written: false,
        to_run: None,
        start: start.unwrap_or_default().to_owned(),
    }
}
