//! `setup`: a conversation that ends with a proven chain.

mod hands;

use super::{
    apply::{self, LONGEST_WAIT},
    import::write_chain,
    prove,
};
use crate::{asked, face, progress::Progress, talk::Talk, user};
use anyhow::{Context, bail};
use hands::Hands;
use quiet_experiment::{machine, make_way};
use quiet_linux::{Root, files::DEFAULT_STATE};
use quiet_plan::{chain_text, propose};
use quiet_report::{
    plan::applied_text,
    setup::{found_text, setup_text},
};
use quiet_service::approved::is_name;
use quiet_types::{
    CpuSet, Finding, Machine, Plan, Severity,
    proof::Verdict,
    setup::{PlayerKind, ProofTold, SCHEMA, SetUp, SetupAnswers, SetupProposal},
};
use std::{
    io::{Stdin, stdin},
    path::PathBuf,
    process::ExitCode,
    sync::atomic::AtomicBool,
};

/// From what is found on this machine to a chain that is applied and proven, by questions
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo quietcores setup                   looks, asks, writes the chain, applies it, proves it
  sudo quietcores setup --yes             takes the default of every question
  quietcores setup --dry-run              the chain and its plan; nothing is written or changed
  sudo quietcores setup --player mpd,camilladsp --card DAC --cores 2 --last --yes
  quietcores setup                        without root: takes a chain that root has approved
  quietcores setup --root my-pc --yes     for a captured machine (see inspect --capture)

Each question has a default in brackets; an empty line takes it. An input that ends without an
answer ends setup: the machine is as it was. The shield is put back by itself unless you say in
time that everything plays (docs/setup.md).
Exit status: 0 done, 1 something is left to do (named), 2 an error: the machine is as it was.")]
pub struct Args {
    /// What you play with; the question is not asked
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = player)]
    player: Vec<PlayerKind>,
    /// Through which card, by its name in the list, or none; the question is not asked
    #[arg(long, value_name = "NAME")]
    card: Option<String>,
    /// How many cores it may have; the question is not asked
    #[arg(long, value_name = "N")]
    cores: Option<u32>,
    /// Have it last across reboots; the question is not asked
    #[arg(long)]
    last: bool,
    /// Write the chain here [default: ./PLAYER.toml]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    /// Take the default of every question, and read no answer
    #[arg(long, short)]
    yes: bool,
    /// Show every step of the plan
    #[arg(long)]
    verbose: bool,
    /// Show the chain and its plan; write and change nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Put the machine back after so many seconds unless it is said that everything plays
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=LONGEST_WAIT))]
    confirm: u64,
    /// Prove nothing
    #[arg(long)]
    no_proof: bool,
    /// Pairs of arms of the proof; at least 6 for a verdict
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=200))]
    pairs: u32,
    /// Read the machine captured in DIR in place of this one, and end with the plan
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Print what came of it as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Directory of the journal
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    state: PathBuf,
    /// Keep the proof here [default: $XDG_DATA_HOME/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
}

fn player(name: &str) -> Result<PlayerKind, String> {
    let found = PlayerKind::ALL.iter().find(|(_, known)| *known == name);
    found
        .map(|(kind, _)| *kind)
        .ok_or_else(|| format!("known are {}", PlayerKind::ALL.map(|(_, name)| name).join(", ")))
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let root = match &args.root {
        Some(dir) => Root::at(dir),
        None => Root::system(),
    }
    .context("cannot set anything up")?;
    if args.root.is_none() && !args.dry_run {
        make_way(&args.state, &Progress::new())?;
    }
    let machine = machine(&root)?;
    let stop = face::interrupt()?;
    let mut asking = Asking { talk: Talk::new(stdin(), args.yes, &stop), args: &args };
    let me = asker();
    let found = propose::propose(&machine, me);
    if let Some(name) = asking.approved()? {
        let plan = apply::plan_by_service(&name)?;
        let set = begun(found, name.clone(), plan);
        return asking.go_on(set, Some(Hands::service(&args, name)), &stop);
    }
    if !(args.json && args.yes) {
        face::say(found_text(&found).trim_end());
    }
    let answers =
        asking.answers(&machine, &found, me).context("nothing on this machine is changed")?;
    let chain = propose::chain(&machine, &answers, me);
    let text = chain_text(&chain, &comments(&answers));
    let plan = plan(&machine, &text)?;
    let (name, out) = names(&args, &answers);
    let mut set = begun(found, name, plan);
    let hands = if args.dry_run || args.root.is_some() {
        asking.tell(&format!("{text}\n"))?;
        None
    } else {
        let to = write_chain(&out, &text, args.force)?;
        face::say(&format!("The chain is in {to}."));
        set.file = Some(to.clone());
        if face::is_root() {
            Some(Hands::root(&args, out, set.plan.clone()))
        } else {
            set.findings.push(for_root(&args, &to));
            None
        }
    };
    (set.answers, set.text) = (Some(answers), Some(text));
    asking.go_on(set, hands, &stop)
}

/// Who plays: the user who called sudo, or who runs this.
fn asker() -> Option<u32> {
    match user::asking() {
        Some(user) => Some(user.owner.uid),
        None => Some(rustix::process::geteuid().as_raw()).filter(|uid| *uid != 0),
    }
}

fn begun(found: SetupProposal, chain: String, plan: Plan) -> SetUp {
    SetUp {
        schema: SCHEMA.to_owned(),
        found,
        answers: None,
        chain,
        file: None,
        text: None,
        plan,
        applied: None,
        up: false,
        proof: None,
        persisted: None,
        findings: Vec::new(),
    }
}

/// The plan of what stands in the file, not of what was meant by it.
fn plan(machine: &Machine, text: &str) -> anyhow::Result<Plan> {
    let there: CpuSet = machine.cpus.iter().map(|cpu| cpu.id).collect();
    let read = quiet_plan::chain::parse(text, "the chain", Some(&there.union(&machine.online)))?;
    Ok(quiet_plan::plan(machine, &read)?)
}

/// What the chain is called by, and its file.
fn names(args: &Args, answers: &SetupAnswers) -> (String, PathBuf) {
    let usual = answers.players.iter().map(|kind| kind.name()).collect::<Vec<_>>().join("-");
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{usual}.toml")));
    let stem = out.file_stem().and_then(|stem| stem.to_str()).filter(|stem| is_name(stem));
    (stem.map_or(usual, str::to_owned), out)
}

fn comments(answers: &SetupAnswers) -> Vec<String> {
    let mut comments =
        vec!["Written by `quietcores setup`; see `quietcores plan --help`.".to_owned()];
    let is = |kind| answers.players.contains(&kind);
    if is(PlayerKind::PipeWire) {
        comments.push(
            "Programs that play through PipeWire stay with the rest. To take one in, put before the server: [[link]] \
             with pipewire = { client = \"mpv\" } and a lower priority."
                .into(),
        );
    }
    if is(PlayerKind::Jack) {
        comments.push(
            "Clients of JACK stay with the rest. To take one in, put before the server: [[link]] with process = \
             \"guitarix\", its user and a lower priority."
                .into(),
        );
    }
    if is(PlayerKind::Engine) {
        comments.push("`quietcores play` finds the shield and seats its thread by itself.".into());
    }
    comments
}

/// What is left to who may: without root a new chain is only written.
fn for_root(args: &Args, file: &str) -> Finding {
    let served = asked::is_for_service(&args.state) && asked::service().is_ok();
    let remedy = match served {
        true => format!(
            "run `sudo quietcores approve {file}`; from then on `quietcores setup` applies it without root"
        ),
        false => {
            format!("run `sudo quietcores apply {file} --confirm 60`, then `quietcores confirm`")
        }
    };
    Finding::new(
        Severity::Warning,
        "setup.not_root",
        "The chain is written and not applied: approving a new chain is root's.",
    )
    .remedy(remedy)
}

/// Who is asked, and what was asked of the verb.
struct Asking<'a> {
    talk: Talk<'a, Stdin>,
    args: &'a Args,
}

impl Asking<'_> {
    /// An approved chain that is taken, where the service has some and none is described by arguments.
    fn approved(&mut self) -> anyhow::Result<Option<String>> {
        let args = self.args;
        let described = !args.player.is_empty()
            || args.card.is_some()
            || args.cores.is_some()
            || args.out.is_some();
        if args.root.is_some() || described || !asked::is_for_service(&args.state) {
            return Ok(None);
        }
        // Without a service there is nothing to choose from.
        let chains = asked::service().and_then(|service| service.chains()).unwrap_or_default();
        let usable: Vec<(String, String)> = chains
            .into_iter()
            .filter(|(.., usable)| *usable)
            .map(|(name, title, _)| (name, format!(": {title}")))
            .collect();
        if usable.is_empty() {
            return Ok(None);
        }
        let mut options = usable.clone();
        options.push(("new".into(), ": describe a chain, which root has to approve".into()));
        let at = self.talk.choose("Which chain? Root has approved:", &options, 0)?;
        Ok(usable.get(at).map(|(name, _)| name.clone()))
    }

    fn answers(
        &mut self,
        machine: &Machine,
        found: &SetupProposal,
        me: Option<u32>,
    ) -> anyhow::Result<SetupAnswers> {
        let mut answers = SetupAnswers {
            players: self.players(found)?,
            card: self.card(found)?,
            ..SetupAnswers::default()
        };
        answers.players.sort_unstable();
        answers.players.dedup();
        let usual = propose::cores(machine, &answers, me);
        let most = found.most_cores;
        answers.cores = match self.args.cores {
            Some(cores) if (1..=most).contains(&cores) => cores,
            Some(cores) if most == 0 => bail!(
                "cannot give {cores} cores: this machine has one, whose last CPU is given; leave --cores out"
            ),
            Some(cores) => bail!("cannot give {cores} cores: 1 to {most} are to be had here"),
            None if most == 0 => 0,
            None => self.talk.number("How many cores may it have?", 1..=most, usual)?,
        };
        answers.last =
            self.args.last || self.talk.agrees("Shall it last across reboots?", found.last)?;
        Ok(answers)
    }

    fn players(&mut self, found: &SetupProposal) -> anyhow::Result<Vec<PlayerKind>> {
        if !self.args.player.is_empty() {
            return Ok(self.args.player.clone());
        }
        let about = |running: &[String]| match running {
            [] => String::new(),
            [one] => format!(": runs, {one}"),
            several => format!(": runs, {} processes", several.len()),
        };
        let options: Vec<(String, String)> = found
            .players
            .iter()
            .map(|one| (one.kind.name().to_owned(), about(&one.running)))
            .collect();
        let at = |one: &_| found.players.iter().position(|other| other == one);
        let usual: Vec<usize> =
            found.players.iter().filter(|one| one.proposed).filter_map(at).collect();
        let chosen =
            self.talk.choose_some("What do you play with?", &options, &usual, options.len())?;
        Ok(chosen.into_iter().map(|at| found.players[at].kind).collect())
    }

    fn card(&mut self, found: &SetupProposal) -> anyhow::Result<Option<String>> {
        const NONE: &str = "none";
        if let Some(name) = &self.args.card {
            if name == NONE || found.cards.iter().any(|card| card.name == *name) {
                return Ok(Some(name.clone()).filter(|name| name != NONE));
            }
            let names: Vec<&str> = found.cards.iter().map(|card| card.name.as_str()).collect();
            bail!(
                "there is no sound card `{}`: {}",
                quiet_types::printable(name, 60),
                if names.is_empty() {
                    "this machine has none; write --card none".to_owned()
                } else {
                    format!("name one of {}, or none", names.join(", "))
                }
            );
        }
        if found.cards.is_empty() {
            return Ok(None);
        }
        let mut options: Vec<(String, String)> = found
            .cards
            .iter()
            .map(|card| (card.name.clone(), format!(": {}", card.about)))
            .collect();
        options.push((NONE.into(), ": no card".into()));
        let at = self.talk.choose("Through which card?", &options, 0)?;
        Ok(found.cards.get(at).map(|card| card.name.clone()))
    }

    /// What belongs to the conversation and to no JSON.
    fn tell(&self, text: &str) -> anyhow::Result<()> {
        match (self.args.json, self.args.yes) {
            (false, _) => return face::print(text),
            // Nobody is asked, and the object has it all.
            (true, true) => {}
            (true, false) => face::say(text.trim_end()),
        }
        Ok(())
    }

    /// From the plan on.
    fn go_on(
        &mut self,
        mut set: SetUp,
        hands: Option<Hands<'_>>,
        stop: &AtomicBool,
    ) -> anyhow::Result<ExitCode> {
        self.tell(&super::plan::shown(&set.plan, self.args.verbose))?;
        if let Some(hands) = hands.filter(|_| !self.args.dry_run) {
            self.apply(&mut set, &hands, stop)?;
        }
        if self.args.json {
            face::print_json(&set)?;
        } else {
            face::print(&format!("\n{}", setup_text(&set)))?;
        }
        let whole = set.applied.as_ref().is_none_or(apply::is_whole)
            && set.findings.iter().all(|finding| finding.severity < Severity::Warning);
        Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(face::FINDINGS) })
    }

    fn apply(
        &mut self,
        set: &mut SetUp,
        hands: &Hands<'_>,
        stop: &AtomicBool,
    ) -> anyhow::Result<()> {
        let seconds = self.args.confirm;
        let question = format!(
            "Take these {} steps? They are put back after {seconds} s unless you say then that everything plays.",
            set.plan.steps.len()
        );
        let agreed = self.talk.agrees(&question, true);
        if !agreed.context("nothing on this machine is changed")? {
            set.findings.push(
                Finding::new(Severity::Note, "setup.not_applied", "The steps were not taken.")
                    .remedy(format!("{} takes them", hands.apply_command())),
            );
            return Ok(());
        }
        if let Err(error) = self.up_and_kept(set, hands, stop) {
            hands.down().context("cannot put the machine back; run `quietcores revert`")?;
            return Err(error.context("the machine is put back"));
        }
        Ok(())
    }

    /// With the shield up: confirmed, proven, kept. Where it fails, it is the caller's to put the machine back.
    fn up_and_kept(
        &mut self,
        set: &mut SetUp,
        hands: &Hands<'_>,
        stop: &AtomicBool,
    ) -> anyhow::Result<()> {
        let applied = hands.up(self.args.confirm, stop)?;
        self.tell(&face::fitted(&format!("\n{}", applied_text(&applied))))?;
        set.applied = Some(applied);
        let question = "Does everything play as it should? No puts the machine back.";
        if !self.talk.agrees(question, true)? {
            hands.down()?;
            set.findings.push(
                Finding::new(
                    Severity::Warning,
                    "setup.does_not_play",
                    "The machine is put back: under the shield not everything played.",
                )
                .remedy("`quietcores check CHAIN` names what stands in the way; fewer links or more cores may do"),
            );
            return Ok(());
        }
        hands.confirm()?;
        set.up = true;
        self.prove(set, hands, stop)?;
        if set.answers.as_ref().is_none_or(|answers| answers.last) && set.up {
            self.persist(set, hands);
        }
        Ok(())
    }

    /// The shield gives way to the proof, and is put up again after it.
    fn prove(
        &mut self,
        set: &mut SetUp,
        hands: &Hands<'_>,
        stop: &AtomicBool,
    ) -> anyhow::Result<()> {
        let args = self.args;
        if args.no_proof {
            return Ok(());
        }
        let question = format!(
            "Prove it? Shared against shielded in turn, about {} s; the shield is up only in every other part meanwhile.",
            args.pairs * 10
        );
        if !self.talk.agrees(&question, true)? {
            return Ok(());
        }
        hands.down()?;
        set.up = false;
        match hands.prove(stop) {
            Ok(made) => {
                set.proof = Some(ProofTold::from(&made.proof));
                if !args.json {
                    face::print(&quiet_report::proof_text(&made.proof, face::width()))?;
                }
                if let Some(page) = &made.shown {
                    face::say(&format!("report: {}", page.display()));
                }
                if let Some(differences) = prove::not_restored(&made.proof) {
                    bail!("{differences}");
                }
                made.losses.end(ExitCode::SUCCESS);
            }
            Err(error) => set.findings.push(
                Finding::new(Severity::Warning, "setup.not_proven", "The proof was not made.")
                    .evidence(format!("{error:#}"))
                    .remedy(format!("{} makes it", hands.prove_command())),
            ),
        }
        if face::raised(stop) {
            bail!("stopped by a signal");
        }
        let worse = set.proof.as_ref().is_some_and(|proof| proof.verdict == Verdict::Worse);
        let question = match worse {
            true => "By the proof the shield makes it worse. Keep it all the same?",
            false => "Put the shield up again, and keep it?",
        };
        if !self.talk.agrees(question, !worse)? {
            set.findings.push(
                Finding::new(
                    if worse { Severity::Warning } else { Severity::Note },
                    "setup.not_kept",
                    "The machine is put back.",
                )
                .remedy(format!("{} puts the shield up", hands.apply_command())),
            );
            return Ok(());
        }
        set.applied = Some(hands.up_again(stop)?);
        set.up = true;
        Ok(())
    }

    /// The shield stands whatever comes of this.
    fn persist(&mut self, set: &mut SetUp, hands: &Hands<'_>) {
        let talk = &mut self.talk;
        let asked = hands.persist(|text| {
            face::say(text.trim_end());
            talk.agrees("Write this?", true)
        });
        let evidence = match asked {
            Ok(Some(written)) => {
                set.persisted = Some(written);
                return;
            }
            Ok(None) if set.answers.is_none() => return,
            Ok(None) => String::new(),
            Err(error) => format!("{error:#}"),
        };
        set.findings.push(
            Finding::new(
                Severity::Warning,
                "setup.not_lasting",
                "The shield ends with the next reboot.",
            )
            .evidence(evidence)
            .remedy(format!("{} keeps it across reboots", hands.persist_command())),
        );
    }
}
