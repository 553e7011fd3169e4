//! What is asked of a tune of boot parameters, and what it states before the first reboot.

use super::{asked_of, measured, root_alone};
use crate::{
    Error, ErrorKind, Observer, Result, begin, begun, machine, make_way,
    tune::{Tuning, probe_words},
};
use quiet_boot::{Loader, LoaderKind, PersistRequest, Term};
use quiet_judge::tune::{BOOTS_STATED, boot_order, boots_resolve, usual_boots, within_boots};
use quiet_linux::{Root, files::Tree};
use quiet_plan::boot::{self, BootWish, Extra};
use quiet_probe::{RunRequest, RunningStress};
use quiet_types::{
    Machine, Nanos, Severity,
    boot::{BootParameters, Mode, Parameter},
    boots::{BootFactor, BootPlot, BootTune, SCHEMA},
    run::Spec,
    tune::{Factor, LeftOut, TuneDesign},
};
use std::{
    path::PathBuf,
    sync::atomic::AtomicBool,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// What is to be judged by boots, and how.
#[derive(Clone, Debug)]
pub struct BootAsk {
    /// What is measured in each boot, under which stress; its time and steps do not count here.
    pub tuning: Tuning,
    /// Parameters by name (`isolcpus`), by word (`preempt=full`), or `kernel=RELEASE`; none for those that `persist` writes.
    pub parameters: Vec<String>,
    /// Boots; `None` for as many as show something.
    pub boots: Option<u32>,
    /// Blocks a boot.
    pub blocks: u32,
    /// How long a boot comes to rest before it is measured.
    pub settle: Nanos,
    /// Whether blocks are measured under the whole run-time shield.
    pub shielded: bool,
    /// The boot loader, where the files of several are found.
    pub loader: Option<LoaderKind>,
    /// The program that goes on after each reboot: root's alone.
    pub program: PathBuf,
    /// Whether the user reboots.
    pub by_hand: bool,
    /// Where the result is kept.
    pub store: Option<PathBuf>,
    /// Where the page is written.
    pub page: Option<PathBuf>,
}

/// What a person must not switch: a boot without it is none, or another one.
const NEVER: [&str; 12] = [
    "root",
    "rootfstype",
    "rootflags",
    "init",
    "rdinit",
    "initrd",
    "ro",
    "rw",
    "resume",
    "console",
    "BOOT_IMAGE",
    "quietcores.off",
];

/// Makes the design and states it; measures some blocks in this boot, and writes nothing.
///
/// # Errors
/// When this process is not root, a boot cannot be had on trial here, something is made to last or a tune is under way already, or what is
/// asked for makes no sense.
pub fn prepare_boots(
    args: &BootAsk,
    stop: &AtomicBool,
    observer: &dyn Observer,
) -> Result<BootTune> {
    root_alone()?;
    args.check()?;
    let state = &args.tuning.state;
    if super::boots_status(state)?.is_some() {
        return Err(Error::new(
            ErrorKind::Busy,
            "a tune of boot parameters is under way; `quietcores tune --boot-status` tells how far, `--boot-end` ends it",
        ));
    }
    quiet_boot::vacant(state)?;
    make_way(state, observer)?;
    let now = machine(&Root::system()?)?;
    let plan = crate::plan(&args.tuning.wish, &now)?;
    let cpus = plan.shield.cpus.clone();
    let place = Tree::system()?;
    let mut tune = BootTune {
        schema: SCHEMA.to_owned(),
        label: args.tuning.label.clone(),
        housekeeping: now.online.difference(&cpus),
        spec: Some(args.tuning.spec(cpus.clone())),
        cpus,
        stress: args.tuning.stress.clone(),
        shielded: args.shielded,
        blocks: args.blocks,
        settle: args.settle,
        kernel: now.kernel.release.clone(),
        began: seconds(),
        by_hand: args.by_hand,
        store: args.store.as_ref().map(|path| path.display().to_string()),
        page: args.page.as_ref().map(|path| path.display().to_string()),
        ..BootTune::default()
    };
    args.factors(&now, &mut tune)?;
    quiet_boot::only_roots(&args.program)?;
    let words: Vec<String> = tune.factors.iter().map(|one| one.parameter.word()).collect();
    let loader = quiet_boot::the_loader(&place, args.loader, &words)?;
    loader.kind.name().clone_into(&mut tune.loader);
    reconciled(&place, &loader, &now, &mut tune)?;
    let seed = args.tuning.seed.map_or_else(begun::seed, Ok)?;
    let many = tune.factors.len();
    let usual = usual_boots(many).ok_or_else(|| Error::asked("there are too many parameters"))?;
    let boots = args.boots.map_or(usual, |boots| boots as usize);
    tune.order = boot_order(seed, many, boots);
    try_each(&place, &loader, &mut tune)?;
    state_design(args, &mut tune, (seed, boots), stop, observer)?;
    let begun = begin("tune")?.head(quiet_types::tune::SCHEMA, "", false);
    (tune.id, tune.started) = (begun.id, begun.started);
    Ok(tune)
}

impl BootAsk {
    fn check(&self) -> Result<()> {
        if self.tuning.wish.chain.is_some() {
            return Err(Error::asked(
                "boot parameters are judged for CPUs (--cpus), not for a chain file",
            ));
        }
        if self.tuning.playing().is_some()
            || self.tuning.player.is_some()
            || !self.tuning.picks.is_empty()
        {
            return Err(Error::asked("boots are measured by --probe wakeup or gap"));
        }
        if !(1..=1000).contains(&self.blocks) {
            return Err(Error::asked("a boot has 1 to 1000 blocks"));
        }
        if self.boots.is_some_and(|boots| !(4..=1000).contains(&boots) || boots % 2 == 1) {
            return Err(Error::asked("boots come in pairs: 4, 6, 8 ... up to 1000"));
        }
        Ok(())
    }

    /// The parameters as factors; what cannot be had is left out and told.
    fn factors(&self, machine: &Machine, tune: &mut BootTune) -> Result<()> {
        let extras =
            vec![Extra::ThreadedIrqs, Extra::SkewedTick, Extra::NoSoftLockup, Extra::PollRcu];
        let mode = Mode::NeverSleepingCore;
        let wish = BootWish { cpus: tune.cpus.clone(), mode, extras };
        let (known, left_out) = boot::parameters(machine, &wish)
            .map_err(|finding| Error::asked(format!("{}; {}", finding.title, finding.remedy)))?;
        let usual = self.parameters.is_empty();
        let asked: Vec<String> = match usual {
            true => ["isolcpus", "nohz_full", "rcu_nocbs", "threadirqs"].map(str::to_owned).into(),
            false => self.parameters.clone(),
        };
        for word in asked {
            let named = known.parameters.iter().find(|one| one.name == word);
            let parameter = match (named, word.split_once('=')) {
                (Some(named), _) => named.clone(),
                (None, Some((name, value))) => Parameter {
                    name: name.to_owned(),
                    value: Some(value.to_owned()),
                    why: "asked for by --boot".to_owned(),
                },
                (None, None) => {
                    let why =
                        left_out.iter().find(|finding| finding.id.ends_with(&format!(".{word}")));
                    match why {
                        Some(why) => {
                            tune.left_out.push(LeftOut { what: word, why: why.title.clone() });
                            continue;
                        }
                        // A bare word that is no parameter known here.
                        None => Parameter {
                            name: word,
                            value: None,
                            why: "asked for by --boot".to_owned(),
                        },
                    }
                }
            };
            plain(&parameter)?;
            let name = match tune.factors.iter().any(|one| one.factor.name == parameter.name) {
                true => parameter.word(),
                false => parameter.name.clone(),
            };
            let factor = Factor { name, steps: vec![parameter.word()], why: parameter.why.clone() };
            tune.factors.push(BootFactor { factor, parameter });
        }
        let same = |a: &BootFactor, b: &BootFactor| a.parameter.name == b.parameter.name;
        let twice = tune
            .factors
            .iter()
            .enumerate()
            .find(|(at, one)| tune.factors[..*at].iter().any(|b| same(one, b)));
        if let Some((_, twice)) = twice {
            return Err(Error::asked(format!(
                "{} is named twice: a boot has it with one value or without it",
                quiet_types::printable(&twice.parameter.name, 60)
            )));
        }
        Ok(())
    }
}

/// Whether a word can stand on a command line as it is, and may be switched at all.
fn plain(parameter: &Parameter) -> Result<()> {
    let word = parameter.word();
    let shown = quiet_types::printable(&word, 100);
    let sound = word.chars().all(|c| c.is_ascii_alphanumeric() || "=._-,:/+".contains(c));
    if !sound || parameter.name.is_empty() || word.len() > 200 {
        return Err(Error::asked(format!("{shown} is no plain word of a kernel's command line")));
    }
    if NEVER.contains(&parameter.name.as_str()) || parameter.name.starts_with("systemd.") {
        return Err(Error::asked(format!(
            "{shown} is not switched: a boot without it, or with another, may be none"
        )));
    }
    Ok(())
}

/// What every boot has already is left out; what others have set otherwise is refused.
fn reconciled(place: &Tree, loader: &Loader, machine: &Machine, tune: &mut BootTune) -> Result<()> {
    let asked = BootParameters {
        cpus: tune.cpus.clone(),
        housekeeping: tune.housekeeping.clone(),
        mode: Mode::NeverSleepingCore,
        parameters: tune
            .factors
            .iter()
            .filter(|one| one.kernel().is_none())
            .map(|one| one.parameter.clone())
            .collect(),
    };
    let (entries, longest) = quiet_boot::entries_of(place, loader).map_err(Error::asked)?;
    let (left, findings) =
        boot::reconcile(&asked, &entries, &machine.kernel.boot_parameters, longest);
    if let Some(finding) = findings.iter().find(|finding| finding.severity == Severity::Problem) {
        return Err(Error::asked(format!(
            "{} ({}); {}",
            finding.title, finding.evidence, finding.remedy
        )));
    }
    let mut kept = Vec::new();
    for one in std::mem::take(&mut tune.factors) {
        if one.kernel().is_some_and(|kernel| kernel == machine.kernel.release) {
            let why = "it is the kernel that runs: name another one".to_owned();
            tune.left_out.push(LeftOut { what: one.parameter.word(), why });
        } else if one.kernel().is_some() || left.parameters.contains(&one.parameter) {
            kept.push(one);
        } else {
            let why = "every boot has it already: there is nothing to switch".to_owned();
            tune.left_out.push(LeftOut { what: one.parameter.word(), why });
        }
    }
    tune.factors = kept;
    if tune.factors.is_empty() {
        return Err(Error::asked("there is no boot parameter to switch"));
    }
    Ok(())
}

/// Every plot is proposed once, and nothing written: what cannot be booted on trial is found out now. The files that would be changed are
/// noted as they are.
fn try_each(place: &Tree, loader: &Loader, tune: &mut BootTune) -> Result<()> {
    let mut paths: Vec<String> = loader.files.iter().map(|(path, _)| path.clone()).collect();
    paths.extend(loader.generated.clone());
    let all = BootPlot { pair: 0, on: vec![true; tune.factors.len()] };
    for plot in tune.order.iter().chain([&all]) {
        let asked = asked_of(tune, plot);
        let kernel = tune.kernel_of(plot);
        if asked.parameters.is_empty() && kernel == tune.kernel {
            continue;
        }
        let (service, term) = (None, Term::OneBoot);
        let request = PersistRequest { asked: &asked, loader, service, term, kernel: Some(kernel) };
        let proposal = quiet_boot::propose(place, &request)?;
        for step in &proposal.steps {
            if let quiet_boot::FileChange::File { path, .. } = &step.change
                && !paths.contains(path)
            {
                paths.push(path.clone());
            }
        }
    }
    for path in paths {
        tune.files.push(super::mark(place, &path)?);
    }
    Ok(())
}

/// What can be said before the first reboot: measured in this boot is how long a block takes, and how much blocks of one boot differ.
fn state_design(
    args: &BootAsk,
    tune: &mut BootTune,
    (seed, boots): (u32, usize),
    stop: &AtomicBool,
    observer: &dyn Observer,
) -> Result<()> {
    let spec = tune.spec.clone().unwrap_or_else(|| args.tuning.spec(tune.cpus.clone()));
    RunRequest::new(spec.clone()).check(&Root::system()?)?;
    if !tune.stress.is_empty() {
        RunningStress::check(&tune.stress)?;
    }
    tune.design = TuneDesign {
        seed,
        responses: args.tuning.responses(),
        block: spec.length,
        pairs: (boots / 2) as u32,
        family: BOOTS_STATED,
        margin: args.tuning.margin,
        ..TuneDesign::default()
    };
    let began = Instant::now();
    // Nothing lies on the disk yet: shields go by the usual journal.
    let pilot = measured(tune, tune.blocks.max(2), (&args.tuning.state, stop, observer))?;
    let Some(pilot) = pilot else {
        return Err(Error::new(ErrorKind::Interrupted, "interrupted; nothing was changed"));
    };
    tune.design.block = Nanos(began.elapsed().as_nanos() as u64 / pilot.len() as u64);
    let figures = tune.design.responses.len();
    let pairs = tune.design.pairs as usize;
    for (nth, response) in tune.design.responses.iter_mut().enumerate() {
        response.noise = within_boots(&pilot, nth, tune.blocks);
        response.resolves = boots_resolve(response.noise, pairs, tune.factors.len(), figures);
    }
    Ok(())
}

/// Seconds since 1970.
pub(super) fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

pub(super) fn question(tune: &BootTune, spec: &Spec) -> String {
    let stress = match tune.stress.as_slice() {
        [] => "no stress".to_owned(),
        names => format!("stress {}", names.join(", ")),
    };
    let how =
        if tune.shielded { "under the whole run-time shield" } else { "without a run-time shield" };
    format!(
        "which boot parameters help {} on CPU {} {how}, under {stress}, boot by boot",
        probe_words(spec.probe),
        tune.cpus
    )
}

pub(super) fn command(tune: &BootTune) -> String {
    let words: Vec<String> = tune.factors.iter().map(|one| one.parameter.word()).collect();
    let stress = if tune.stress.is_empty() { "none".to_owned() } else { tune.stress.join(",") };
    let shield = if tune.shielded { " --shield" } else { "" };
    format!(
        "quietcores tune --cpus {} --boots {} --blocks {} --seed {} --stress {stress}{shield} --boot {}",
        tune.cpus,
        tune.order.len(),
        tune.blocks,
        tune.design.seed,
        words.join(" ")
    )
}
