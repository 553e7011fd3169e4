//! `tune`: a verdict for every step of a plan, and the smallest shield that is enough.

mod boots;
mod choices;
mod course;
mod here;
mod place;
mod player;
#[cfg(test)]
mod simulated;

pub use boots::{
    BootAsk, BootsGone, begin_boots, boots_go_on, boots_status, end_boots, finish_boots,
    prepare_boots, reboot,
};
pub use choices::Pick;
pub use here::measured_here;
pub use place::TriedWrite;

use crate::{
    Error, ErrorKind, Observer, Result, ShieldWish, begin, begun, is_root, machine,
    prove::restored, raised, refuse_over_a_shield,
};
use course::{Course, Ran};
use place::Place;
use quiet_engine::{AudioHost, SeatWish, Setup, Ticks, Wait, trial::calibrate};
use quiet_linux::{Root, System};
use quiet_probe::{RunRequest, RunningStress};
use quiet_types::{
    Chain, CpuSet, Finding, Frames, Machine, Nanos, SampleRate, Severity,
    chain::Choice,
    machine::Policy,
    run::{Idle, Probe, Spec},
    tune::{
        Enough, Factor, LeftOut, SCHEMA, StepSays, TuneDesign, TuneResponse, Tuned, TunedChoice,
        TunedStep,
    },
    words,
};
use std::{collections::BTreeSet, path::PathBuf, sync::atomic::AtomicBool};

/// The steps of the plan that can be taken or left, and what cannot.
///
/// # Errors
/// When no plan can be made.
pub fn tunable(wish: &ShieldWish, machine: &Machine) -> Result<(Vec<Factor>, Vec<LeftOut>)> {
    Ok(quiet_plan::factors(&crate::plan(wish, machine)?))
}

/// Playing on a host without a card, in place of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DuplexAsk {
    /// Frames a period, at 48 kHz, two of them in the ring.
    pub period: Frames,
    /// Share of a period that the work of a strip takes, 0 to 0.95.
    pub load: f64,
}

/// What is to be tuned, and how.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// The whole shield.
    pub wish: ShieldWish,
    /// For all of it.
    pub budget: Nanos,
    /// Length of one measurement.
    pub block: Nanos,
    /// What is measured.
    pub probe: Probe,
    /// What the engine is to play in place of the probe.
    pub duplex: Option<DuplexAsk>,
    /// The control socket of a `quietcores play` that plays on meanwhile, whose counters are read in place of a probe.
    pub player: Option<PathBuf>,
    /// What is chosen, in place of a screening of the steps.
    pub picks: Vec<Pick>,
    /// SCHED_FIFO priority of the measuring thread, 1 to 99.
    pub priority: u8,
    /// A wakeup later than this counts as beyond; of gaps, what counts as taken.
    pub threshold: Nanos,
    /// Stress suites or stressors.
    pub stress: Vec<String>,
    /// Steps that are never taken, by the names of their factors.
    pub forbidden: Vec<String>,
    /// Files that are to be tried beside the plan's steps.
    pub tried: Vec<TriedWrite>,
    /// By how many times the smallest set may be off the whole, above 1.
    pub margin: f64,
    /// What orders are drawn from; `None` for a new number.
    pub seed: Option<u32>,
    /// Free words, kept with it.
    pub label: String,
    /// The state directory.
    pub state: PathBuf,
}

/// Screens, confirms, compares; the machine is put back after every block.
///
/// # Errors
/// When this process is not root, a shield is up already, there is nothing to screen or too little time for it, the machine cannot be
/// changed or put back, or `stop` is raised before anything was measured.
pub fn tune(args: &Tuning, stop: &AtomicBool, observer: &dyn Observer) -> Result<Tuned> {
    args.check()?;
    refuse_over_a_shield(&System, &args.state, observer)?;
    let before = machine(&Root::system()?)?;
    let whole = crate::plan(&args.wish, &before)?;
    args.check_tried(&whole)?;
    let began = begin("tune")?;
    let measured = match &args.wish.cpus {
        Some(cpus) => cpus.clone(),
        None => whole.first_cpu().into_iter().collect(),
    };
    // The same CPUs in every block, whoever chose them first.
    let wish = ShieldWish { cpus: Some(whole.shield.cpus.clone()), ..args.wish.clone() };
    let spec = args.spec(measured);
    RunRequest::new(spec.clone()).check(&Root::system()?)?;
    if !args.stress.is_empty() {
        RunningStress::check(&args.stress)?;
    }
    if let Some(socket) = &args.player {
        player::check(socket)?;
    }
    let responses = args.responses();
    let setup = args.setup(&spec);
    let calibrated = match &setup {
        Some(_) => Some(calibrate(Ticks::calibrated(&Root::system()?))),
        None => None,
    };
    let mut place = Place {
        tried: &args.tried,
        forbidden: &args.forbidden,
        setup,
        player: args.player.as_deref(),
        load: args.load(),
        calibrated,
        ..Place::new(
            wish,
            spec.clone(),
            &args.stress,
            &before.online,
            (&args.state, stop, observer),
        )
    };
    place.responses = responses.iter().map(|one| one.id.clone()).collect();
    observer.begin(args.budget);
    *place.whole.borrow_mut() = args.budget;
    let seed = args.seed.map_or_else(begun::seed, Ok)?;
    let done = match args.picks.is_empty() {
        true => steps(args, seed, &mut place),
        false => picks(args, seed, &before, &mut place),
    };
    observer.end();
    let exact = place.exact;
    let Done { ran, choices, left_out, mut findings } = done?;
    let Ran { design, blocks, steps, smallest, interrupted } = ran;
    if blocks.is_empty() {
        let why = "interrupted before anything was measured; the machine is as it was";
        return Err(Error::new(ErrorKind::Interrupted, why));
    }
    findings.extend(findings_of(&steps, &left_out));
    let restored = restored(&before, exact, &mut findings)?;
    let mut tuned = Tuned {
        head: began.head(SCHEMA, &args.label, interrupted || raised(stop)),
        question: question(args, &whole.shield.cpus, &spec.cpus),
        spec,
        stress: args.stress.clone(),
        design,
        steps,
        left_out,
        smallest,
        boots: Vec::new(),
        choices,
        restored: Some(restored),
        sentence: String::new(),
        chain: String::new(),
        commands: Vec::new(),
        findings,
        blocks,
    };
    tuned.sentence = sentence(&tuned);
    tuned.commands = commands(args, &whole.shield.cpus, seed);
    tuned.chain = chain(args, &before, &whole.shield.cpus, &tuned)?;
    Ok(tuned)
}

/// What came of either course.
struct Done {
    ran: Ran,
    choices: Vec<TunedChoice>,
    left_out: Vec<LeftOut>,
    findings: Vec<Finding>,
}

/// A verdict for every step.
fn steps(args: &Tuning, seed: u32, place: &mut Place<'_>) -> Result<Done> {
    place.tell("every step once, to see what can be had");
    let (factors, left_out, applied) = place.look()?;
    args.enough_time(factors.len())?;
    let course = Course {
        seed,
        budget: args.budget,
        factors,
        responses: args.responses(),
        margin: args.margin,
        flips: quiet_judge::tune::FLIPS,
    };
    let ran = course.run(place)?;
    Ok(Done { ran, choices: Vec::new(), left_out, findings: applied.findings })
}

/// What is chosen beside the steps, each with an equal share of the time.
fn picks(args: &Tuning, seed: u32, machine: &Machine, place: &mut Place<'_>) -> Result<Done> {
    let (mut blocks, mut found, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    let time = Nanos(args.budget.0 / args.picks.len() as u64);
    for pick in &args.picks {
        if raised(place.stop) {
            break;
        }
        let kept = (&mut blocks, &mut left_out);
        match choices::choose(*pick, args, machine, place, (seed, time), kept) {
            Ok(choice) => found.extend(choice),
            // What was chosen before, or can be after it, is not lost by it.
            Err(error) if error.kind() == ErrorKind::Asked && args.picks.len() > 1 => {
                left_out.push(LeftOut { what: pick.name().to_owned(), why: format!("{error:#}") });
            }
            Err(error) => return Err(error),
        }
    }
    let interrupted = raised(place.stop);
    if found.is_empty() && !left_out.is_empty() && !interrupted {
        let all = left_out.iter().map(|left| format!("{}: {}", left.what, left.why));
        let all = all.collect::<Vec<_>>().join("; ");
        let why = format!("there is nothing to choose here that could be measured: {all}");
        return Err(Error::new(ErrorKind::Measuring, why));
    }
    let design = TuneDesign {
        seed,
        budget: args.budget,
        responses: args.responses(),
        margin: args.margin,
        ..TuneDesign::default()
    };
    let ran = Ran { design, blocks, steps: Vec::new(), smallest: None, interrupted };
    Ok(Done { ran, choices: found, left_out, findings: Vec::new() })
}

impl Tuning {
    /// Whether it makes sense.
    fn check(&self) -> Result<()> {
        if !is_root() {
            return Err(Error::asked(
                "only root can take and leave the steps of a shield; run `sudo quietcores tune`",
            ));
        }
        if self.playing().is_some_and(|ask| {
            !(1..=65_536).contains(&ask.period.0) || !(0.0..=0.95).contains(&ask.load)
        }) {
            return Err(Error::asked(
                "a period is 1 to 65536 frames, and the work takes 0 to 0.95 of it",
            ));
        }
        if self.player.is_some() && !self.picks.is_empty() {
            return Err(Error::asked(
                "what plays already has its CPU, priority and periods: nothing of it is chosen",
            ));
        }
        if !(1.01..=10.0).contains(&self.margin) {
            return Err(Error::asked(format!(
                "the margin is {}; it can be 1.01 to 10, such as --margin 1.25: the smallest set may be a quarter worse",
                self.margin
            )));
        }
        if self.block < Nanos::from_millis(50) || self.block > self.budget {
            return Err(Error::asked(format!(
                "a block is measured for {}; it can be 50ms and more, and far less than --for",
                self.block
            )));
        }
        if self.stress.iter().any(String::is_empty) {
            return Err(Error::asked("a stress has a name, such as --stress kernel"));
        }
        for tried in &self.tried {
            let shown = quiet_types::printable(&tried.path, 200);
            let inside = ["/proc/sys/", "/sys/"].iter().any(|dir| tried.path.starts_with(dir));
            if !inside
                || tried.path.split('/').any(|part| part == "..")
                || tried.value.contains('\n')
            {
                return Err(Error::asked(format!(
                    "cannot try {shown}: it has to be a file below /proc/sys or /sys, and one line, such as \
                     --try /proc/sys/vm/swappiness=10"
                )));
            }
            let old = std::fs::read_to_string(&tried.path);
            if !old.is_ok_and(|old| !old.trim().is_empty()) {
                return Err(Error::asked(format!(
                    "cannot try {shown}: it is not there, or its value cannot be read, so that it could not be put back"
                )));
            }
        }
        Ok(())
    }

    /// Names that mean nothing, and files that the plan writes itself.
    fn check_tried(&self, plan: &quiet_types::Plan) -> Result<()> {
        let (known, _) = quiet_plan::factors(plan);
        let names: Vec<&str> = known.iter().map(|factor| factor.name.as_str()).collect();
        if let Some(name) = self.forbidden.iter().find(|name| !names.contains(&name.as_str())) {
            return Err(Error::asked(format!(
                "no step here is called {}; there are {}",
                quiet_types::printable(name, 60),
                names.join(", ")
            )));
        }
        let mut more: BTreeSet<String> = BTreeSet::new();
        for tried in &self.tried {
            let name = quiet_plan::factor_of(plan, &tried.step()).unwrap_or_default();
            if name.is_empty() || names.contains(&name.as_str()) || !more.insert(name.clone()) {
                return Err(Error::asked(format!(
                    "cannot try {}: it belongs to the step {}, which is tried already",
                    quiet_types::printable(&tried.path, 200),
                    quiet_types::printable(&name, 60),
                )));
            }
        }
        Ok(())
    }

    fn spec(&self, cpus: CpuSet) -> Spec {
        let probe = match self.playing() {
            Some(DuplexAsk { period, load }) => {
                let interval = period.lasting(RATE);
                Probe::Wakeup { interval, work: Nanos((interval.0 as f64 * load) as u64) }
            }
            None => self.probe,
        };
        Spec {
            probe,
            cpus,
            policy: Policy::Fifo,
            priority: self.priority,
            length: self.block,
            threshold: self.threshold,
            bucket: Nanos::from_micros(1),
            buckets: 1000,
            // Keeping out of deep idle states is one of the steps.
            idle: Idle::AsIs,
            core: Default::default(),
        }
    }

    /// What the engine is to play, and how hard.
    fn playing(&self) -> Option<DuplexAsk> {
        let usual = DuplexAsk { period: Frames(64), load: 0.3 };
        self.duplex.or_else(|| {
            self.picks.iter().any(|pick| matches!(pick, Pick::Mode | Pick::Period)).then_some(usual)
        })
    }

    fn load(&self) -> f64 {
        self.playing().map_or(0.0, |ask| ask.load)
    }

    fn setup(&self, spec: &Spec) -> Option<Setup> {
        let period = self.playing()?.period;
        let cpu = spec.cpus.first();
        let wish = SeatWish {
            cpu,
            mode: Some(Wait::Sleep),
            priority: self.priority,
            ..SeatWish::default()
        };
        Some(Setup {
            host: AudioHost::Null(None),
            rate: RATE,
            period,
            buffer: Frames(period.0 * 2),
            channels: 2,
            inputs: 2,
            outputs: 2,
            wish,
        })
    }

    /// The figures, the first of which decides: the primary ones of a proof.
    fn responses(&self) -> Vec<TuneResponse> {
        let late = format!("beyond {}", self.threshold);
        let all = match self.probe {
            _ if self.player.is_some() => {
                vec![
                    ("player.lost", "lost periods".to_owned()),
                    ("player.load", "load of 99 in 100 blocks".to_owned()),
                ]
            }
            _ if self.playing().is_some() => {
                vec![
                    ("duplex.late", "late blocks".to_owned()),
                    ("duplex.missed", "lost periods".to_owned()),
                ]
            }
            Probe::Wakeup { .. } => vec![("wakeup.p99", "p99".to_owned()), ("wakeup.beyond", late)],
            Probe::Gap => vec![("gap.stolen", "time taken".to_owned())],
        };
        let one = |(id, title): (&str, String)| TuneResponse {
            id: id.to_owned(),
            title,
            ..TuneResponse::default()
        };
        all.into_iter().map(one).collect()
    }

    /// Whether the time is enough for the least design, before it is spent: for measuring alone. What comes on top is known after the pilot.
    fn enough_time(&self, steps: usize) -> Result<()> {
        if steps == 0 {
            return Err(Error::asked(
                "there is nothing to tune: no step of the plan can be switched here (see `quietcores plan`)",
            ));
        }
        let Some(pairs) = quiet_judge::tune::fewest_pairs(steps) else {
            return Err(Error::asked(format!(
                "there are {steps} steps, and no design for more than 63: leave some out by --keep-off"
            )));
        };
        // Screening, pilot, references, one confirmation and one comparison.
        let blocks = 2 * pairs as u64 + 8 + 2 + 32;
        let needs = Nanos(self.block.0 * blocks);
        if needs > self.budget {
            return Err(Error::asked(format!(
                "{} is too little for {steps} steps: {blocks} blocks of {} need more than {}; give --for twice as much as \
                 that, shorter blocks by --block, or leave steps out by --keep-off",
                self.budget,
                self.block,
                words::span(needs)
            )));
        }
        Ok(())
    }
}

/// Frames a second of what is played.
const RATE: SampleRate = SampleRate(48_000);

fn question(args: &Tuning, shield: &CpuSet, measured: &CpuSet) -> String {
    let probe = match (args.playing(), args.probe) {
        _ if args.player.is_some() => "what plays".to_owned(),
        (Some(ask), _) => {
            let share = ask.load * 100.0;
            format!("playing {} frames a period under {share:.0} % of work", ask.period.0)
        }
        (None, probe) => probe_words(probe),
    };
    let stress = match args.stress.as_slice() {
        [] => "no stress".to_owned(),
        names => format!("stress {}", names.join(", ")),
    };
    if !args.picks.is_empty() {
        let names: Vec<&str> = args.picks.iter().map(|pick| pick.name()).collect();
        return format!("which {} is best for {probe} under {stress}", names.join(", "));
    }
    format!("which steps of a shield of CPU {shield} help {probe} on CPU {measured} under {stress}")
}

/// What a probe measures, in words.
fn probe_words(probe: Probe) -> String {
    match probe {
        Probe::Wakeup { interval, work: Nanos(0) } => format!("wake-ups every {interval}"),
        Probe::Wakeup { interval, work } => {
            format!("wake-ups every {interval} with {work} of work")
        }
        Probe::Gap => "gaps of a spinning thread".to_owned(),
    }
}

/// What to know of steps that could not be judged.
fn findings_of(steps: &[TunedStep], left_out: &[LeftOut]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for step in steps.iter().filter(|step| step.void > 0) {
        let name = quiet_types::printable(&step.factor.name, 60);
        let title = format!("The step {name} was not in force in {} blocks", step.void);
        findings.push(
            Finding::new(Severity::Warning, "tune.void", title)
                .evidence("Read back when it was taken, and at the end of the block.")
                .effect(
                    "These blocks say nothing of it; where they are the most, it has no verdict.",
                )
                .remedy("Look who changes it: `quietcores watch` names what is not kept."),
        );
    }
    if left_out.iter().any(|left| left.why.starts_with("it cannot be had")) {
        findings.push(
            Finding::new(
                Severity::Note,
                "tune.refused",
                "Some steps cannot be had on this machine",
            )
            .effect("Nothing is said of them.")
            .remedy("`quietcores apply` names the kernel's reasons."),
        );
    }
    findings
}

fn sentence(tuned: &Tuned) -> String {
    if !tuned.choices.is_empty() {
        let said = tuned.choices.iter().map(|one| format!("{}: {}", one.what, one.sentence));
        return said.collect::<Vec<_>>().join(". ") + ".";
    }
    let named = |says: StepSays| -> Vec<&str> {
        let these = tuned.steps.iter().filter(|step| step.says == says);
        these.map(|step| step.factor.name.as_str()).collect()
    };
    let (helps, hurts) = (named(StepSays::Helps), named(StepSays::Hurts));
    let mut text = match helps.as_slice() {
        [] => "No step is shown to help".to_owned(),
        [one] => format!("{one} helps"),
        [.., _] => format!("{} help", helps.join(", ")),
    };
    if !hurts.is_empty() {
        text +=
            &format!("; {} {}", hurts.join(", "), if hurts.len() == 1 { "hurts" } else { "hurt" });
    }
    let rest = named(StepSays::NotShown).len();
    if rest > 0 && rest < tuned.steps.len() {
        text += "; of the others nothing is shown";
    }
    if let Some(smallest) = &tuned.smallest {
        let set = match smallest.steps.as_slice() {
            [] => "no step at all".to_owned(),
            names => names.join(" + "),
        };
        text += &match smallest.says {
            Enough::AsGood => format!(". {set} is as good as the whole shield"),
            Enough::Better => format!(". {set} is better than the whole shield"),
            Enough::Worse => format!(". {set} is worse than the whole shield: keep all of it"),
            Enough::NotShown => format!(". That {set} is enough is not shown"),
        };
    }
    text + "."
}

fn commands(args: &Tuning, cpus: &CpuSet, seed: u32) -> Vec<String> {
    let us = |time: Nanos| format!("{}us", time.0 / 1000);
    let mut words = vec!["quietcores tune".to_owned(), format!("--cpus {cpus}")];
    words.push(format!("--for {} --block {} --seed {seed}", us(args.budget), us(args.block)));
    words.push(match (args.playing(), args.probe) {
        _ if args.player.is_some() => "--probe player".to_owned(),
        (Some(ask), _) => format!("--probe duplex --period {} --load {}", ask.period.0, ask.load),
        (None, Probe::Wakeup { interval, work }) => {
            format!("--probe wakeup --interval {} --work {}", us(interval), us(work))
        }
        (None, Probe::Gap) => "--probe gap".to_owned(),
    });
    if !args.picks.is_empty() {
        let names: Vec<&str> = args.picks.iter().map(|pick| pick.name()).collect();
        words.push(format!("--choose {}", names.join(",")));
    }
    words.push(format!("--priority {} --threshold {}", args.priority, us(args.threshold)));
    let stress = if args.stress.is_empty() { "none".to_owned() } else { args.stress.join(",") };
    words.push(format!("--stress {stress}"));
    if !args.forbidden.is_empty() {
        words.push(format!("--keep-off {}", args.forbidden.join(",")));
    }
    words.extend(args.tried.iter().map(|tried| format!("--try {}={}", tried.path, tried.value)));
    vec![words.join(" "), "quietcores apply tuned.toml --yes".to_owned()]
}

/// The chain that was given, with the steps that are kept.
fn chain(args: &Tuning, machine: &Machine, cpus: &CpuSet, tuned: &Tuned) -> Result<String> {
    let mut chain = match &args.wish.chain {
        Some(path) => crate::read_chain(path, &machine.online)?,
        None => Chain { name: Some("tuned".into()), ..Chain::default() },
    };
    chain.cpus = Choice::These(cpus.clone());
    if args.wish.never_sleep {
        chain.mode = quiet_types::boot::Mode::NeverSleepingCore;
    }
    chain.smt_off |= args.wish.smt_off;
    let tried: Vec<String> = args.tried.iter().map(|one| one.path.clone()).collect();
    let own = |step: &&TunedStep| step.factor.steps.iter().any(|what| tried.contains(what));
    let kept: Vec<String> = tuned
        .steps
        .iter()
        .filter(|step| step.kept && !own(step))
        .map(|step| step.factor.name.clone())
        .collect();
    if args.picks.is_empty() {
        chain.steps = Some(kept);
    }
    let mut comments = vec![
        format!("Made by `quietcores tune` on {}, {}.", tuned.head.host.name, tuned.head.started),
        format!("Kernel {}; {}.", tuned.head.host.release, tuned.question),
        tuned.sentence.clone(),
    ];
    for choice in &tuned.choices {
        comments.push(format!("{}: {}", choice.what, choice.sentence));
    }
    for step in &tuned.steps {
        comments.push(quiet_judge::tune::step_line(step, &tuned.design));
    }
    for step in tuned.steps.iter().filter(|step| step.kept).filter(own) {
        comments.push(format!(
            "{} is no step of a chain: set it in /etc/sysctl.d or a unit of your own.",
            step.factor.steps.join(", ")
        ));
    }
    Ok(quiet_plan::chain_text(&chain, &comments))
}
