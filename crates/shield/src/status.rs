//! The shield as it is: what drifted, what still runs on it.

use crate::{
    Kernel, Result, boot_id,
    change::{Change, Confined, irq_file, same},
    confirm, evl, hold, irqbalance,
    journal::{self, Past},
    lives::{self, Life},
    loan::{self, Fence},
    residents::residents,
    served::serves_another,
    standing::standing,
    tasks,
};
use quiet_linux::files::StateDir;
use quiet_types::{
    CpuSet,
    plan::{Action, Drift, GroupValue, Need, Outcome, STATUS_SCHEMA, ShieldStanding, Status, Step},
    printable,
    shield::Shield,
};
use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

/// The shield that is up, and nothing else; `None` where there is none, or only leftovers, or only settings without a CPU of their own.
///
/// # Errors
/// When the state directory or the journal cannot be read.
pub fn current(kernel: &dyn Kernel, state: &Path) -> Result<Option<Shield>> {
    let Some(state) = StateDir::open(state)? else { return Ok(None) };
    let Some(past) = journal::read(&state)? else { return Ok(None) };
    let is_up = standing(&past, &boot_id(kernel)?) == ShieldStanding::Up;
    Ok(past.shield.filter(|shield| is_up && !shield.cpus.is_empty()))
}

/// Compares the machine with what the journal tells.
///
/// # Errors
/// When the state directory or the journal cannot be read.
pub fn status(kernel: &dyn Kernel, state: &Path) -> Result<Status> {
    let mut status = Status {
        schema: STATUS_SCHEMA.into(),
        state: ShieldStanding::None,
        shield: None,
        since: None,
        by: None,
        drift: Vec::new(),
        residents: Vec::new(),
        holder: None,
        refused: Vec::new(),
        confirm: None,
        loan: None,
        boot: Vec::new(),
        links: Vec::new(),
        chain: Vec::new(),
        evl: evl::threads(kernel),
        traces: Vec::new(),
        card: None,
    };
    let Some(state) = StateDir::open(state)? else { return Ok(status) };
    let Some(past) = journal::read(&state)? else { return Ok(status) };
    status.state = standing(&past, &boot_id(kernel)?);
    status.since = past.up.clone().or(past.began.clone());
    status.shield = past.shield.clone();
    status.by = (!past.is_empty()).then(|| past.by.clone());
    status.links.clone_from(&past.links);
    status.refused = past
        .last_outcomes()
        .filter(|(_, outcome)| !outcome.holds())
        .map(|(step, outcome)| format!("{}: {}", step.action.what(), said(outcome)))
        .collect();
    if status.state == ShieldStanding::Rebooted {
        return Ok(status);
    }
    status.holder = hold::find(&state);
    status.confirm = confirm::awaited(&state, &past);
    status.refused.extend(past.unread.iter().map(|line| past.stranger(line)));
    if let Some(shield) = &past.shield {
        status.residents = residents(kernel, shield, &past);
    }
    if status.state == ShieldStanding::Up {
        status.drift = drift(kernel, &past, status.holder);
        status.loan = loan::standing_loan(&state, &past);
        if status.loan.is_some() {
            // What is open is meant to be.
            let fence = Fence::of(&past);
            status.drift.retain(|drift| !fence.has(&drift.what));
            // Everybody may be there.
            status.residents.clear();
        }
    }
    Ok(status)
}

fn drift(kernel: &dyn Kernel, past: &Past, holder: Option<u32>) -> Vec<Drift> {
    let looked = Looked::of(kernel, past, holder);
    let mut found: Vec<Drift> = looked
        .off
        .iter()
        .map(|cpu| Drift {
            what: format!("CPU {cpu}"),
            ours: "on line".into(),
            now: Some("off line".into()),
        })
        .collect();
    found.extend(groups(kernel, past));
    // What was changed again, by a watch, has its last word last.
    let mut told = HashSet::new();
    for (_, change) in past.changes.iter().rev() {
        let again = match change {
            Change::Write { .. }
            | Change::File { .. }
            | Change::DropIn { .. }
            | Change::Irq { .. }
            | Change::Scheduling { .. } => !told.insert(change.what()),
            // One that was restarted and told again is another one.
            Change::Ban { .. } => !told.insert("irqbalance".into()),
            _ => false,
        };
        if again {
            continue;
        }
        if let Change::Affinity { threads, .. } = change {
            found.extend(looked.threads(threads));
        } else if let Some((ours, now)) = looked.drifted(change) {
            found.push(Drift { what: change.what(), ours, now });
        }
    }
    found
}

/// What the journal tells, put in order to be compared.
struct Looked<'a> {
    kernel: &'a dyn Kernel,
    past: &'a Past,
    holder: Option<u32>,
    /// CPUs that were switched off.
    off: CpuSet,
    /// What was done by steps that hold.
    done: HashSet<String>,
    lives: HashMap<(u32, u64), Life<'a>>,
    /// Where each interrupt was sent last, and what came of it.
    asked: HashMap<u32, (&'a CpuSet, &'a Outcome)>,
}

impl<'a> Looked<'a> {
    fn of(kernel: &'a dyn Kernel, past: &'a Past, holder: Option<u32>) -> Looked<'a> {
        let held = |step: &Step| step.action.what();
        let done = past.outcomes.iter().filter(|(_, o)| o.holds()).map(|(step, _)| held(step));
        let sent = past.outcomes.iter().filter_map(|(step, outcome)| match &step.action {
            Action::Irq { number, cpus, .. } => Some((*number, (cpus, outcome))),
            _ => None,
        });
        Looked {
            kernel,
            past,
            holder,
            off: offline(kernel, past),
            done: done.collect(),
            lives: lives::of(past),
            asked: sent.collect(),
        }
    }

    /// What a change made and what is there now, where that is something else.
    fn drifted(&self, change: &Change) -> Option<(String, Option<String>)> {
        let kernel = self.kernel;
        match change {
            Change::Write { path, .. } if !self.done.contains(path) => None,
            // Another device has values of its own.
            Change::Write { .. } if change.replaced(kernel).is_some() => None,
            // Its device was pulled out, and its files went with it.
            Change::Write { path, request, .. }
                if path.starts_with("/sys/devices/")
                    && !path.starts_with("/sys/devices/system/")
                    && kernel.read(request).is_err() =>
            {
                None
            }
            Change::Write { request, new, form, .. } => {
                drifted(kernel.read(request).ok(), new, |now| same(*form, now, new))
            }
            Change::Irq { number, name, .. } if serves_another(kernel, *number, name) => None,
            Change::Irq { number, new, .. } => self.irq(*number, new),
            Change::Make { path, .. } => match kernel.list(path) {
                Ok(_) => None,
                Err(_) => Some(("made".into(), None)),
            },
            Change::Scheduling { thread, new, .. } => kernel
                .scheduling(thread.tid)
                .ok()
                .filter(|now| now != new && tasks::lives(kernel, thread))
                .map(|now| (new.to_string(), Some(now.to_string()))),
            Change::Hold => {
                let took = self.done.contains("/dev/cpu_dma_latency");
                (took && self.holder.is_none()).then(|| ("a process holds it".into(), None))
            }
            Change::File { path, old, new } => kernel
                .read(path)
                .ok()
                .filter(|now| now != new && now != old)
                .map(|_| ("the ban in it".into(), Some("another text".into()))),
            Change::DropIn { path, .. } if !self.done.contains(path) => None,
            Change::DropIn { path, new, .. } => {
                let now = kernel.read(path).ok();
                let is_ours = now.as_ref() == Some(new);
                (!is_ours).then(|| ("as written".into(), now.map(|_| "another text".into())))
            }
            Change::Ban { daemon, old, told, .. } if tasks::lives(kernel, daemon) => {
                let now = irqbalance::banned(kernel, daemon).ok();
                // It takes what it is told at its next scan.
                let scanned = now.filter(|now| !told.is_subset(now) && now != old);
                scanned.map(|now| (format!("CPU {told}"), Some(format!("CPU {now}"))))
            }
            Change::Ban { told, .. } => {
                Some((format!("CPU {told}"), Some("irqbalance was ended or restarted".into())))
            }
            Change::Affinity { .. } | Change::Move { .. } | Change::Remember { .. } => None,
        }
    }

    fn irq(&self, number: u32, new: &CpuSet) -> Option<(String, Option<String>)> {
        let last = self.asked.get(&number).copied();
        let new = last.map_or(new, |(cpus, _)| cpus);
        let now = self.kernel.read(&irq_file(number)).ok();
        if last.is_some_and(|(_, outcome)| !outcome.holds()) || now.is_none() {
            // Refused; or its device is gone, and the interrupt with it.
            None
        } else {
            drifted(now, &format!("CPU {new}"), |now| {
                now.parse::<CpuSet>().is_ok_and(|now| in_place(&now, new, self.past))
            })
        }
    }

    /// Threads that may run elsewhere than they were told.
    fn threads(&self, threads: &[Confined]) -> Vec<Drift> {
        let found = threads.iter().filter_map(|one| {
            // Taken off the shield with all others, then put onto it: the last one counts.
            let last = self.lives.get(&(one.thread.tid, one.thread.start));
            if last.is_some_and(|life| life.given.last() != Some(&&one.new)) {
                return None;
            }
            if one.thread.comm.starts_with("irq/") {
                return None;
            }
            let now = self.kernel.affinity(one.thread.tid).ok()?;
            // CPUs that do not run are left out there.
            let is = |cpus: &CpuSet| now == *cpus || now == cpus.difference(&self.off);
            let is_off = !is(&one.new) && !is(&one.old);
            (is_off && tasks::lives(self.kernel, &one.thread)).then(|| Drift {
                what: format!("CPUs of {}", one.thread),
                ours: format!("CPU {}", one.new),
                now: Some(format!("CPU {now}")),
            })
        });
        found.collect()
    }
}

/// Whether an interrupt is where it was sent. One that was only sent off the shield may be moved about
/// among the CPUs it was left: that is what irqbalance is for.
fn in_place(now: &CpuSet, asked: &CpuSet, past: &Past) -> bool {
    let served = past.shield.as_ref().is_none_or(|shield| asked.intersects(&shield.cpus));
    now == asked || (!served && !now.is_empty() && now.is_subset(asked))
}

/// CPUs that were switched off: a partition of them may be called valid all the same, and a revert cannot give them to threads
/// on every kernel.
fn offline(kernel: &dyn Kernel, past: &Past) -> CpuSet {
    let online = kernel.read("/sys/devices/system/cpu/online").ok();
    let online = online.and_then(|text| text.trim().parse::<CpuSet>().ok());
    match (&past.shield, online) {
        (Some(shield), Some(online)) => shield.cpus.union(&shield.housekeeping).difference(&online),
        _ => CpuSet::new(),
    }
}

/// Files of our groups: a partition may become invalid by what others do.
fn groups(kernel: &dyn Kernel, past: &Past) -> Vec<Drift> {
    let mut found = Vec::new();
    for (step, outcome) in &past.outcomes {
        let Action::Group { path, files, .. } = &step.action else { continue };
        for file in files.iter().filter(|file| outcome.holds() && file.need == Need::Essential) {
            let GroupValue::Is(value) = &file.value else { continue };
            let whole = path.join(&file.name).to_string();
            let now = kernel.read(&whole).ok();
            if let Some((ours, now)) = drifted(now, value, |now| same(file.form, now, value)) {
                found.push(Drift { what: whole, ours, now });
            }
        }
    }
    found
}

fn drifted(
    now: Option<String>,
    ours: &str,
    same: impl Fn(&str) -> bool,
) -> Option<(String, Option<String>)> {
    match now {
        Some(now) if same(&now) => None,
        Some(now) => Some((ours.to_owned(), Some(printable(now.trim(), 200)))),
        None => Some((ours.to_owned(), None)),
    }
}

fn said(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Refused { reason } => reason.clone(),
        Outcome::Ignored { seen } => format!("accepted and ignored: it is {seen}"),
        Outcome::Absent => "not there".into(),
        Outcome::Partly { seen, refused } => format!("{seen}; not {}", refused.join("; not ")),
        _ => String::new(),
    }
}
