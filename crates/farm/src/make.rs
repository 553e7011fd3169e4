//! Records of what a store keeps.

use crate::{about::Around, sealed::plain_name};
use quiet_store::Kept;
use quiet_types::{
    Histogram, Nanos, Proof, Run,
    farm::{FarmCause, FarmKind, FarmRecord, FarmSetting, RECORD_SCHEMA},
    plan::Outcome,
    printable,
    run::Host,
    tune::Tuned,
    words,
};

/// What of a machine may leave it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discretion {
    /// Stands in place of the machine's name.
    pub pseudonym: Option<String>,
    /// Names of threads are left out: causes keep their kind alone.
    pub no_thread_names: bool,
}

/// Causes that a record has at most.
const CAUSES: usize = 12;

/// The record of something kept; `None` where it says nothing of a machine (an imported file, a checkpoint, a measurement by sound).
pub fn record(kept: &Kept, surroundings: &Around, discretion: &Discretion) -> Option<FarmRecord> {
    match kept {
        Kept::Run(run) => of_run(run, surroundings, discretion),
        Kept::Proof(proof) => Some(of_proof(proof, discretion)),
        Kept::Tune(tuned) => Some(of_tune(tuned, surroundings, discretion)),
        Kept::Buffers(_) | Kept::RoundTrip(_) => None,
    }
}

/// A moment as RFC 3339, in ms since 1970; 0 where it is none.
pub fn moment(text: &str) -> i64 {
    let time = humantime::parse_rfc3339_weak(text).ok();
    let since = time.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_millis() as i64)
}

/// ms since 1970 as RFC 3339.
pub fn told(at: i64) -> String {
    let since = std::time::Duration::from_millis(at.clamp(0, 253_402_300_799_999) as u64);
    humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + since).to_string()
}

/// The name that stands in records.
pub fn name(host: &str, discretion: &Discretion) -> String {
    plain_name(discretion.pseudonym.as_deref().unwrap_or(host))
}

fn setting(host: &Host, surroundings: &Around) -> FarmSetting {
    // Of another boot nothing is known but what was kept with it.
    let same_boot = !host.boot_id.is_empty() && host.boot_id == surroundings.boot_id;
    FarmSetting {
        kernel: short(&host.release),
        version: short(&host.version),
        arch: short(&host.arch),
        cpu: short(&host.processor),
        hypervisor: short(host.hypervisor.as_deref().unwrap_or_default()),
        board: short(&surroundings.board),
        parameters: if same_boot { surroundings.parameters.clone() } else { Vec::new() },
        ..FarmSetting::default()
    }
}

fn short(text: &str) -> String {
    printable(text, 200)
}

fn of_run(run: &Run, around: &Around, discretion: &Discretion) -> Option<FarmRecord> {
    if run.is_imported() || run.partial || run.host.name.is_empty() {
        return None;
    }
    let stress = run.stress.as_ref().map_or("none".to_owned(), |stress| stress.names.join(","));
    let shielded = run.entry.is_some();
    let setting = FarmSetting {
        chain: chain_of(run, around),
        steps: if shielded { vec!["shield".to_owned()] } else { Vec::new() },
        probe: if run.is_gap() { "gap" } else { "wakeup" }.to_owned(),
        interval: run.interval(),
        policy: run.scheduling().map_or(String::new(), |(policy, n)| words::policy(policy, n)),
        stress: short(&stress),
        threshold: run.spec.threshold,
        ..setting(&run.host, around)
    };
    let mut readings = run.readings();
    readings.linear = None;
    Some(FarmRecord {
        schema: RECORD_SCHEMA.to_owned(),
        host: name(&run.host.name, discretion),
        kind: FarmKind::Run,
        id: run.id.clone(),
        at: run.started.as_deref().map_or(0, moment),
        lasted: run.lasted.unwrap_or_default(),
        setting,
        expected: run.expected().filter(|_| !run.is_gap()),
        late: run.spec.threshold.map(|limit| readings.above(limit)),
        missed: run.missed().filter(|_| !run.is_gap()),
        causes: causes(run, discretion),
        says: short(&run.label),
        merged: 1,
        readings,
        ..FarmRecord::default()
    })
}

/// The chain that is up, where the run went through its door in this boot.
fn chain_of(run: &Run, around: &Around) -> String {
    // A boot that nobody could tell is not this one for certain.
    let same_boot = !run.host.boot_id.is_empty() && run.host.boot_id == around.boot_id;
    let here = run.entry.is_some() && same_boot;
    if here { short(&around.chain) } else { String::new() }
}

fn causes(run: &Run, discretion: &Discretion) -> Vec<FarmCause> {
    let Some(explained) = &run.explained else { return Vec::new() };
    let mut all: Vec<FarmCause> = Vec::new();
    for share in explained.cpus.iter().flat_map(|cpu| &cpu.causes) {
        let title =
            if discretion.no_thread_names { kind_of(&share.cause) } else { short(&share.title) };
        match all.iter_mut().find(|cause| cause.title == title) {
            Some(cause) => {
                cause.total =
                    cause.total.zip(share.total).map(|(a, b)| Nanos(a.0.saturating_add(b.0)));
                cause.readings += share.readings;
            }
            None => all.push(FarmCause { title, total: share.total, readings: share.readings }),
        }
    }
    all.sort_by_key(|cause| std::cmp::Reverse((cause.total, cause.readings)));
    all.truncate(CAUSES);
    all
}

/// What a cause is, without whose.
fn kind_of(cause: &quiet_types::explain::Cause) -> String {
    let json = serde_json::to_value(cause).unwrap_or_default();
    let kind = json.get("kind").and_then(|kind| kind.as_str()).or(json.as_str());
    kind.unwrap_or("cause").replace('_', " ")
}

fn of_proof(proof: &Proof, discretion: &Discretion) -> FarmRecord {
    let machine = &proof.machine;
    let around = Around {
        board: machine.board.clone().unwrap_or_default(),
        boot_id: proof.host.boot_id.clone(),
        parameters: machine.kernel.boot_parameters.iter().map(|word| short(word)).collect(),
        chain: String::new(),
    };
    let taken = |step: &&quiet_types::proof::StepTaken| {
        matches!(step.outcome, Outcome::Done { .. } | Outcome::Already)
    };
    let steps = proof.shield.iter().flat_map(|shield| shield.steps.iter().filter(taken));
    let mut steps: Vec<String> = steps.map(|step| step_name(&step.what, discretion)).collect();
    steps.sort();
    steps.dedup();
    steps.truncate(64);
    FarmRecord {
        schema: RECORD_SCHEMA.to_owned(),
        host: name(&proof.host.name, discretion),
        kind: FarmKind::Proof,
        id: proof.id.clone(),
        at: moment(&proof.started),
        lasted: proof.lasted,
        setting: FarmSetting {
            steps,
            probe: "proof".to_owned(),
            threshold: Some(proof.spec.threshold),
            ..setting(&proof.host, &around)
        },
        verdict: Some(proof.verdict),
        says: short(&proof.sentence),
        merged: 1,
        readings: Histogram::default(),
        ..FarmRecord::default()
    }
}

/// What was changed, without the number or the name of a task.
fn step_name(what: &str, discretion: &Discretion) -> String {
    let task = what.starts_with("thread ") || what.starts_with("task ");
    if task || (discretion.no_thread_names && what.contains('(')) {
        "threads".to_owned()
    } else {
        short(what)
    }
}

fn of_tune(tuned: &Tuned, around: &Around, discretion: &Discretion) -> FarmRecord {
    let says = |step: &quiet_types::tune::TunedStep| {
        let word = serde_json::to_value(step.says).unwrap_or_default();
        format!("{}: {}", step.factor.name, word.as_str().unwrap_or_default().replace('_', " "))
    };
    let steps = tuned.steps.iter().take(64).map(says).collect();
    FarmRecord {
        schema: RECORD_SCHEMA.to_owned(),
        host: name(&tuned.head.host.name, discretion),
        kind: FarmKind::Tune,
        id: tuned.head.id.clone(),
        at: moment(&tuned.head.started),
        lasted: tuned.head.lasted,
        setting: FarmSetting {
            steps,
            probe: "tune".to_owned(),
            stress: short(&tuned.stress.join(",")),
            threshold: Some(tuned.spec.threshold),
            ..setting(&tuned.head.host, around)
        },
        says: short(&tuned.sentence),
        merged: 1,
        readings: Histogram::default(),
        ..FarmRecord::default()
    }
}

/// A shield that went up or came down: what `status` says, in one record.
pub fn of_shield(
    host: &Host,
    at: i64,
    says: &str,
    around: &Around,
    discretion: &Discretion,
) -> FarmRecord {
    FarmRecord {
        schema: RECORD_SCHEMA.to_owned(),
        host: name(&host.name, discretion),
        kind: FarmKind::Shield,
        id: format!("{at}"),
        at,
        setting: FarmSetting {
            probe: "shield".to_owned(),
            chain: short(&around.chain),
            ..setting(host, around)
        },
        says: short(says),
        merged: 1,
        ..FarmRecord::default()
    }
}

/// Some minutes of a chain that plays, of two looks at its counts.
pub fn of_live(
    host: &Host,
    minutes: LiveMinutes,
    around: &Around,
    discretion: &Discretion,
) -> FarmRecord {
    let LiveMinutes { at, lasted, period, chain, readings, missed } = minutes;
    let late = readings.above(period);
    FarmRecord {
        schema: RECORD_SCHEMA.to_owned(),
        host: name(&host.name, discretion),
        kind: FarmKind::Live,
        id: format!("{}-{}", at / 1000, plain_name(&chain)),
        at,
        lasted,
        setting: FarmSetting {
            probe: "blocks".to_owned(),
            chain: short(&chain),
            interval: Some(period),
            threshold: Some(period),
            ..setting(host, around)
        },
        expected: Some(readings.count),
        late: Some(late),
        missed: Some(missed),
        merged: 1,
        readings,
        ..FarmRecord::default()
    }
}

/// What a chain did between two looks.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveMinutes {
    /// Of the first look, ms since 1970.
    pub at: i64,
    /// Between them.
    pub lasted: Nanos,
    /// Of a block.
    pub period: Nanos,
    /// The chain.
    pub chain: String,
    /// How long the blocks took.
    pub readings: Histogram,
    /// Blocks that came too late to be heard.
    pub missed: u64,
}
