//! `tune --boot`: a verdict for every boot parameter. A boot is a whole plot of a split plot: it is asked for as one boot on trial, so
//! that whatever ends it, the next one is as before; a unit goes on after each reboot; the boot loader's bytes are put back first of all.

mod ask;
mod course;

pub use ask::{BootAsk, prepare_boots};

use super::{place::Place, sentence};
use crate::{
    Because, Error, ErrorKind, Observer, Result, ShieldWish, is_root, machine, online, raised,
};
use course::{BootBench, BootMove, ThisBoot};
use quiet_boot::{
    Loader, LoaderKind, PersistRequest, Runner, SystemRunner, Term, propose_resumption,
};
use quiet_judge::tune::{by_effect, fewest_boots, judge_boots, plots};
use quiet_linux::{
    Root,
    files::{self, Replace, StateDir, Tree},
};
use quiet_plan::boot::compare;
use quiet_types::{
    Chain, Finding, Nanos, Severity,
    boot::{BootParameters, Mode},
    boots::{BootFileMark, BootPlot, BootTune, SCHEMA, mark_of},
    chain::Choice,
    head::Head,
    proof::Restored,
    run::Spec,
    tune::{StepSays, TuneBlock, Tuned},
};
use std::{
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

/// What became of a boot.
#[derive(Debug)]
pub enum BootsGone {
    /// It was measured, or did not come as asked: [`reboot`] goes on.
    Reboot,
    /// All of it is over and judged, and the boot loader's files are as before. Once it is kept, [`finish_boots`] takes the unit away.
    Over(Box<Tuned>),
    /// It was interrupted; the next boot goes on.
    Interrupted,
}

/// Where a tune of boot parameters lies between its boots, below the state directory.
fn room(state: &Path) -> PathBuf {
    state.join("tune-boot")
}

/// The largest tune that is read: hundreds of boots are some MiB.
const LARGEST: u64 = 64 << 20;
const NAME: &str = "tune.json";

/// The tune of boot parameters that is under way; `None` where there is none.
///
/// # Errors
/// When it cannot be read, or another version wrote it.
pub fn boots_status(state: &Path) -> Result<Option<BootTune>> {
    let path = room(state).join(NAME);
    let text = match files::read_text(&path, LARGEST) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.because(ErrorKind::Keeping, || format!("cannot read {}", path.display()))?,
    };
    let tune: BootTune = serde_json::from_str(&text)
        .because(ErrorKind::Keeping, || format!("cannot understand {}", path.display()))?;
    if tune.schema != SCHEMA {
        return Err(Error::new(
            ErrorKind::Keeping,
            format!(
                "{} was written by another version of quietcores; use that one",
                path.display()
            ),
        ));
    }
    Ok(Some(tune))
}

fn keep(state: &Path, tune: &BootTune) -> Result<()> {
    let path = room(state).join(NAME);
    let text = serde_json::to_vec_pretty(tune)
        .because(ErrorKind::Keeping, || "cannot word the tune".into())?;
    files::write_whole(&path, &text, Replace::Always)
        .because(ErrorKind::Keeping, || format!("cannot write {}", path.display()))
}

/// Writes down what was prepared, the unit that goes on after each reboot, and asks for the first boot.
///
/// # Errors
/// When something cannot be written: what was done is taken back then.
pub fn begin_boots(
    mut tune: BootTune,
    state: &Path,
    program: &Path,
    stop: &AtomicBool,
    observer: &dyn Observer,
) -> Result<()> {
    if let Some(parent) = state.parent() {
        std::fs::create_dir_all(parent)
            .because(ErrorKind::Keeping, || format!("cannot make {}", parent.display()))?;
    }
    StateDir::make(state)?;
    StateDir::make(&room(state))?;
    keep(state, &tune)?;
    let begun = (|| -> Result<()> {
        let place = Tree::system()?;
        let program =
            program.to_str().ok_or_else(|| Error::asked("the program's path is not UTF-8"))?;
        let mut arguments = vec!["--boot-go-on".to_owned()];
        if state != Path::new(crate::DEFAULT_STATE) {
            arguments.extend(["--state".to_owned(), state.display().to_string()]);
        }
        let kind = kind_of(&tune.loader)?;
        let unit = propose_resumption(&place, kind, program, &arguments)?;
        quiet_boot::write(&place, &room(state).join("unit"), &unit, &SystemRunner)?;
        let mut here = Here::of(&tune, state, stop, observer)?;
        match course::go_on(&mut tune, &mut here)? {
            BootMove::Reboot => Ok(()),
            _ => Err(Error::asked("there is no boot to measure")),
        }
    })();
    if let Err(error) = begun {
        finish_boots(state)?;
        return Err(error);
    }
    Ok(())
}

/// Starts the boot that was asked for.
///
/// # Errors
/// When the machine cannot be told to.
pub fn reboot(state: &Path) -> Result<()> {
    let Some(tune) = boots_status(state)? else {
        return Err(Error::asked("no tune of boot parameters is under way"));
    };
    let command = quiet_boot::start_words(kind_of(&tune.loader)?);
    match SystemRunner.run(&command) {
        // The reboot ends whoever asked for it, too.
        Err(why) if !why.contains("(signal: 15") => {
            Err(Error::new(ErrorKind::Machine, format!("{} failed: {why}", command.join(" "))))
        }
        _ => Ok(()),
    }
}

/// What this boot has to do for the tune that is under way.
///
/// # Errors
/// When none is, the boot loader's files cannot be put back or changed, or nothing can be measured.
pub fn boots_go_on(state: &Path, stop: &AtomicBool, observer: &dyn Observer) -> Result<BootsGone> {
    root_alone()?;
    let Some(mut tune) = boots_status(state)? else {
        return Err(Error::asked(
            "no tune of boot parameters is under way; `quietcores tune --boot` begins one",
        ));
    };
    let _lock = StateDir::make(&room(state))?.lock()?;
    let mut here = Here::of(&tune, state, stop, observer)?;
    Ok(match course::go_on(&mut tune, &mut here)? {
        BootMove::Reboot => BootsGone::Reboot,
        BootMove::Interrupted => BootsGone::Interrupted,
        BootMove::Done => BootsGone::Over(Box::new(over(&tune, state, None)?)),
        BootMove::GivenUp(why) => BootsGone::Over(Box::new(over(&tune, state, Some(why))?)),
    })
}

/// Ends the tune that is under way: the boot loader's files are put back, and the boots that are there are judged. Once it is kept,
/// [`finish_boots`] takes the unit away.
///
/// # Errors
/// When none is under way, or something cannot be put back.
pub fn end_boots(state: &Path) -> Result<Tuned> {
    root_alone()?;
    let Some(tune) = boots_status(state)? else {
        return Err(Error::asked("no tune of boot parameters is under way"));
    };
    let _lock = StateDir::make(&room(state))?.lock()?;
    over(&tune, state, Some("it was ended before its time".to_owned()))
}

fn root_alone() -> Result<()> {
    if is_root() {
        return Ok(());
    }
    Err(Error::asked("only root can have the machine booted otherwise; run it with sudo"))
}

fn kind_of(name: &str) -> Result<LoaderKind> {
    let found = LoaderKind::ALL.iter().find(|(_, known)| *known == name);
    found.map(|(kind, _)| *kind).ok_or_else(|| {
        Error::asked(format!("no boot loader is called {}", quiet_types::printable(name, 60)))
    })
}

/// Takes away what goes on after each reboot, and forgets the tune: its result is kept. Cut before this, the next boot judges once more.
///
/// # Errors
/// When something cannot be taken away.
pub fn finish_boots(state: &Path) -> Result<()> {
    let place = Tree::system()?;
    for part in ["boot", "unit"] {
        undo(&place, &room(state).join(part))?;
    }
    let dir = room(state);
    std::fs::remove_dir_all(&dir)
        .because(ErrorKind::Keeping, || format!("cannot remove {}", dir.display()))
}

fn undo(place: &Tree, dir: &Path) -> Result<()> {
    let Some(undone) = quiet_boot::undo(place, dir, &SystemRunner)? else { return Ok(()) };
    if undone.is_complete() {
        return Ok(());
    }
    let left = undone.items.iter().map(|item| item.what.as_str()).collect::<Vec<_>>().join(", ");
    Err(Error::new(
        ErrorKind::Machine,
        format!(
            "cannot put back all of {left}; the old texts lie in {}",
            dir.join("persist/old").display()
        ),
    ))
}

/// What a boot loader's file is like.
fn mark(place: &Tree, path: &str) -> Result<BootFileMark> {
    let found = place.read(path)?;
    Ok(BootFileMark {
        path: path.to_owned(),
        length: found.as_ref().map(|found| found.bytes.len() as u64),
        mark: found.map_or(0, |found| mark_of(&found.bytes)),
    })
}

/// This machine, in this boot.
struct Here<'a> {
    place: Tree,
    loader: Loader,
    state: &'a Path,
    stop: &'a AtomicBool,
    observer: &'a dyn Observer,
}

impl<'a> Here<'a> {
    fn of(
        tune: &BootTune,
        state: &'a Path,
        stop: &'a AtomicBool,
        observer: &'a dyn Observer,
    ) -> Result<Here<'a>> {
        let place = Tree::system()?;
        let loader = quiet_boot::the_loader(&place, Some(kind_of(&tune.loader)?), &[])?;
        Ok(Here { place, loader, state, stop, observer })
    }

    /// Services that start with the system come to rest.
    fn settle(&self, length: Nanos) {
        let until = Instant::now() + Duration::from_nanos(length.0);
        while !raised(self.stop) && Instant::now() < until {
            self.observer.doing("the boot comes to rest");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// What a plot asks of the boot, in the words of the other rooms.
fn asked_of(tune: &BootTune, plot: &BootPlot) -> BootParameters {
    BootParameters {
        cpus: tune.cpus.clone(),
        housekeeping: tune.housekeeping.clone(),
        mode: Mode::SleepingChain,
        parameters: tune
            .on(plot)
            .filter(|one| one.kernel().is_none())
            .map(|one| one.parameter.clone())
            .collect(),
    }
}

impl BootBench for Here<'_> {
    type Error = Error;

    fn this(&self, tune: &BootTune) -> Result<ThisBoot> {
        let root = Root::system()?;
        let machine = machine(&root)?;
        let ignored = tune.factors.iter().filter(|one| {
            let parameters = vec![one.parameter.clone()];
            let alone = BootParameters {
                cpus: tune.cpus.clone(),
                housekeeping: tune.housekeeping.clone(),
                mode: Mode::SleepingChain,
                parameters,
            };
            compare(&alone, &machine).iter().any(|finding| finding.id == "boot.ignored")
        });
        Ok(ThisBoot {
            id: root.read("/proc/sys/kernel/random/boot_id")?.trim().to_owned(),
            kernel: machine.kernel.release.clone(),
            ignored: ignored.map(|one| one.parameter.word()).collect(),
            words: machine.kernel.boot_parameters.clone(),
        })
    }

    fn take_back(&mut self) -> Result<()> {
        undo(&self.place, &room(self.state).join("boot"))
    }

    fn ask(&mut self, tune: &BootTune, plot: &BootPlot) -> Result<()> {
        let asked = asked_of(tune, plot);
        let kernel = tune.kernel_of(plot);
        if asked.parameters.is_empty() && kernel == tune.kernel {
            // An ordinary boot.
            return Ok(());
        }
        let request = PersistRequest {
            asked: &asked,
            loader: &self.loader,
            service: None,
            term: Term::OneBoot,
            kernel: Some(kernel),
        };
        let proposal = quiet_boot::propose(&self.place, &request)?;
        quiet_boot::write(&self.place, &room(self.state).join("boot"), &proposal, &SystemRunner)?;
        Ok(())
    }

    fn measure(&mut self, tune: &BootTune) -> Result<Option<Vec<TuneBlock>>> {
        self.settle(tune.settle);
        measured(tune, tune.blocks, (self.state, self.stop, self.observer))
    }

    fn keep(&mut self, tune: &BootTune) -> Result<()> {
        keep(self.state, tune)
    }

    fn now(&self) -> String {
        files::stamp()
    }
}

/// So many blocks in this boot; `None` where it was interrupted.
fn measured(
    tune: &BootTune,
    blocks: u32,
    (state, stop, observer): (&Path, &AtomicBool, &dyn Observer),
) -> Result<Option<Vec<TuneBlock>>> {
    let spec = spec_of(tune)?;
    let wish = ShieldWish { cpus: Some(tune.cpus.clone()), ..ShieldWish::default() };
    let mut place = Place::new(wish, spec, &tune.stress, &online()?, (state, stop, observer));
    place.responses = tune.design.responses.iter().map(|one| one.id.clone()).collect();
    *place.whole.borrow_mut() = Nanos(tune.design.block.0 * u64::from(blocks));
    observer.begin(*place.whole.borrow());
    let mut all = Vec::new();
    for number in 0..blocks {
        if raised(stop) {
            break;
        }
        place.tell(&format!(
            "boot {} of {}, block {} of {blocks}",
            tune.boots.len() + 1,
            tune.order.len(),
            number + 1
        ));
        let Some(block) = place.of_boot(tune.shielded)? else { break };
        all.push(TuneBlock { pair: number, ..block });
    }
    observer.end();
    Ok((all.len() == blocks as usize).then_some(all))
}

fn spec_of(tune: &BootTune) -> Result<Spec> {
    tune.spec
        .clone()
        .ok_or_else(|| Error::new(ErrorKind::Keeping, "the tune does not say what is measured"))
}

/// The boot loader's files are put back; then the boots that are there are judged.
fn over(tune: &BootTune, state: &Path, why: Option<String>) -> Result<Tuned> {
    let place = Tree::system()?;
    undo(&place, &room(state).join("boot"))?;
    let mut differences = Vec::new();
    for was in &tune.files {
        if mark(&place, &was.path)? != *was {
            differences.push(format!("{} is not as it was found", was.path));
        }
    }
    judged(tune, why, Restored { exact: differences.is_empty(), differences })
}

fn judged(tune: &BootTune, why: Option<String>, restored: Restored) -> Result<Tuned> {
    let factors: Vec<_> = tune.factors.iter().map(|one| one.factor.clone()).collect();
    let mut steps = judge_boots(&tune.boots, &factors, &tune.design.responses, tune.design.seed);
    by_effect(&mut steps);
    for step in &mut steps {
        step.kept = step.says == StepSays::Helps;
    }
    let spec = spec_of(tune)?;
    let mut tuned = Tuned {
        head: Head {
            schema: quiet_types::tune::SCHEMA.to_owned(),
            id: tune.id.clone(),
            label: tune.label.clone(),
            started: tune.started.clone(),
            lasted: Nanos::from_secs(ask::seconds().saturating_sub(tune.began)),
            interrupted: why.is_some(),
            host: quiet_probe::host(&Root::system()?)?,
        },
        question: ask::question(tune, &spec),
        spec,
        stress: tune.stress.clone(),
        design: tune.design.clone(),
        findings: findings(tune, &steps, why),
        steps,
        left_out: tune.left_out.clone(),
        smallest: None,
        choices: Vec::new(),
        blocks: plots(&tune.boots, tune.design.responses.len()),
        boots: tune.boots.clone(),
        restored: Some(restored),
        sentence: String::new(),
        chain: String::new(),
        commands: vec![ask::command(tune)],
    };
    tuned.sentence = sentence(&tuned);
    if let Some(few) = few_boots(tune) {
        tuned.sentence = format!("{} {few}", tuned.sentence);
    }
    tuned.chain = chain(tune, &tuned);
    Ok(tuned)
}

/// Said where there are too few boots for any verdict.
fn few_boots(tune: &BootTune) -> Option<String> {
    let fewest = fewest_boots(tune.factors.len())?;
    let boots = tune.boots.len();
    (boots < fewest).then(|| {
        format!(
            "{boots} boots can show nothing of {} parameters, whatever they read: {fewest} are the fewest that can.",
            tune.factors.len()
        )
    })
}

fn findings(
    tune: &BootTune,
    steps: &[quiet_types::tune::TunedStep],
    why: Option<String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(why) = why {
        findings.push(
            Finding::new(Severity::Warning, "tune.boots_ended", "Not every boot was measured")
                .evidence(format!("{why}."))
                .effect("What is there was judged once; the boot loader's files are as before."),
        );
    }
    for step in steps.iter().filter(|step| step.void > 0) {
        let name = quiet_types::printable(&step.factor.name, 60);
        let title = format!(
            "The kernel had {name} on its command line and did not do it, in {} boots",
            step.void
        );
        findings.push(
            Finding::new(Severity::Warning, "tune.void", title)
                .effect(
                    "These boots say nothing of it; where they are the most, it has no verdict.",
                )
                .remedy("Look for the kernel's reason in `dmesg`."),
        );
    }
    let again: u32 = tune.boots.iter().map(|boot| boot.tries.saturating_sub(1)).sum();
    if again > 0 {
        findings.push(
            Finding::new(
                Severity::Note,
                "tune.boots_again",
                format!("{again} boots had to be asked for again"),
            )
            .evidence(
                "The machine came up otherwise: a power cut, or another entry of the boot menu.",
            )
            .effect("They were not measured, and each was asked for once more."),
        );
    }
    findings
}

/// A chain of these CPUs; which parameters help stands in its comments, with the figures.
fn chain(tune: &BootTune, tuned: &Tuned) -> String {
    let mut comments = vec![
        format!(
            "Made by `quietcores tune --boot` on {}, {}.",
            tuned.head.host.name, tuned.head.started
        ),
        format!("{}.", tuned.question),
        tuned.sentence.clone(),
    ];
    comments
        .extend(tuned.steps.iter().map(|step| quiet_judge::tune::step_line(step, &tuned.design)));
    let words: Vec<String> = tune
        .factors
        .iter()
        .filter(|one| {
            tuned.steps.iter().any(|step| step.kept && step.factor.name == one.factor.name)
        })
        .map(|one| one.parameter.word())
        .collect();
    if !words.is_empty() {
        comments.push(format!("For the kernel's command line: {}", words.join(" ")));
    }
    let chain = Chain {
        name: Some("tuned".into()),
        cpus: Choice::These(tune.cpus.clone()),
        ..Chain::default()
    };
    quiet_plan::chain_text(&chain, &comments)
}
