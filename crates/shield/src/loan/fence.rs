//! What keeps everybody else off the CPUs of a shield, as the journal tells it: opened for a loan, and closed after it.
//!
//! | mechanism | open | closed |
//! | --- | --- | --- |
//! | partition (v2) | `member`; groups that were narrowed have their CPUs | `isolated` |
//! | sets (v1) | the set of everybody else has all CPUs, and balancing is on | housekeeping's |
//! | affinity | threads have the CPUs that they had | housekeeping's |

use crate::{
    Kernel,
    apply::Hand,
    change::{Change, read_back, same},
    error::{file_reason, is_gone, partition_reason, write_reason},
    journal::{Journal, Past},
    revert,
};
use quiet_linux::{fault, files::StateDir};
use quiet_types::{
    CpuSet, GroupPath,
    loan::FenceChange,
    plan::{Action, Form, GroupValue, Outcome, PutBack, Return, Who},
    printable,
    shield::{Mechanism, Shield},
};
use std::sync::atomic::AtomicBool;

/// A group that takes part in no partition of its own.
const MEMBER: &str = "member";
/// The CPUs that the kernel balances nothing onto.
const ISOLATED: &str = "/sys/devices/system/cpu/isolated";

/// A kernel file that is part of the fence.
#[derive(Clone, Debug, PartialEq)]
struct Rail {
    path: String,
    /// Where it is read.
    request: String,
    open: String,
    closed: String,
    form: Form,
}

/// What keeps everybody else off the shield.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fence {
    /// In the order in which they are opened.
    rails: Vec<Rail>,
    shield: Option<Shield>,
}

impl Fence {
    /// The one of the shield that a journal tells of.
    pub fn of(past: &Past) -> Fence {
        let mut fence = Fence { rails: Vec::new(), shield: past.shield.clone() };
        let Some(shield) = &past.shield else { return fence };
        if shield.mechanism == Mechanism::Affinity {
            return fence;
        }
        for (step, outcome) in &past.outcomes {
            let Action::Group { path, files, .. } = &step.action else { continue };
            for file in files.iter().filter(|_| outcome.holds()) {
                let GroupValue::Is(closed) = &file.value else { continue };
                let open = match file.form {
                    Form::Partition => MEMBER.to_owned(),
                    Form::List if is_everybodys(shield, path) && is_cpus(&file.name) => {
                        shield.housekeeping.union(&shield.cpus).to_string()
                    }
                    _ => continue,
                };
                let path = path.join(&file.name).to_string();
                let (request, closed) = (path.clone(), closed.clone());
                fence.add(Rail { path, request, open, closed, form: file.form });
            }
        }
        for (_, change) in &past.changes {
            if let Change::Write { path, request, old, new, form, .. } = change
                && is_of_cpuset(path)
            {
                fence.add(Rail {
                    path: path.clone(),
                    request: request.clone(),
                    open: old.clone(),
                    closed: new.clone(),
                    form: *form,
                });
            }
        }
        fence
    }

    /// What was changed again has its first value when open, and its last one when closed.
    fn add(&mut self, rail: Rail) {
        match self.rails.iter_mut().find(|one| one.path == rail.path) {
            Some(known) => known.closed = rail.closed,
            None => self.rails.push(rail),
        }
    }

    /// Whether `path` is a file of it.
    pub fn has(&self, path: &str) -> bool {
        self.rails.iter().any(|rail| rail.path == path)
    }

    /// Whether a step of a plan would close it.
    pub fn is_closed_by(&self, action: &Action) -> bool {
        match action {
            Action::Group { .. } | Action::MoveTasks { .. } => true,
            Action::Confine { who, .. } => *who == Who::Everybody,
            Action::Write { path, .. } => self.has(path),
            _ => false,
        }
    }

    /// Whether everybody may run on the CPUs, as far as files tell.
    pub fn is_open(&self, kernel: &dyn Kernel) -> bool {
        self.rails.iter().all(|rail| {
            kernel.read(&rail.request).is_ok_and(|now| same(rail.form, &now, &rail.open))
        })
    }

    /// Opens it. Each change is read back.
    pub fn open(
        &self,
        kernel: &dyn Kernel,
        state: &StateDir,
        journal: &mut Journal,
    ) -> Vec<FenceChange> {
        let mut changes: Vec<FenceChange> =
            self.rails.iter().map(|rail| set(kernel, rail, &rail.open)).collect();
        let Some(shield) = &self.shield else { return changes };
        if shield.mechanism == Mechanism::Affinity {
            if let Some(past) = journal.past() {
                changes.push(threads(&revert::open_threads(kernel, state, past)));
            }
        } else if let Some(kept) = kept_at_boot(kernel, shield) {
            changes.push(FenceChange {
                what: ISOLATED.to_owned(),
                now: kept.to_string(),
                refused: Some(format!(
                    "CPU {kept} was isolated at boot (isolcpus=): only a boot without that gives it back"
                )),
            });
        }
        changes
    }

    /// Closes it, last opened first. Each change is read back.
    pub fn close(
        &self,
        kernel: &dyn Kernel,
        state: &StateDir,
        journal: &mut Journal,
    ) -> Vec<FenceChange> {
        let closed = |rail: &Rail| set(kernel, rail, &rail.closed);
        let mut changes: Vec<FenceChange> = self.rails.iter().rev().map(closed).collect();
        if let Some(shield) = &self.shield
            && shield.mechanism == Mechanism::Affinity
        {
            changes.push(confine(kernel, state, journal, shield));
        }
        changes
    }
}

/// Whether a group of two v1 sets is the one of everybody else.
fn is_everybodys(shield: &Shield, group: &GroupPath) -> bool {
    let own = |file: &GroupPath| file.parent().is_some_and(|own| own == *group);
    shield.mechanism == Mechanism::SetsV1
        && !shield.entry.as_ref().is_some_and(|entry| own(&entry.file))
}

fn is_cpus(name: &str) -> bool {
    name == "cpus" || name == "cpuset.cpus"
}

/// Whether a file says which CPUs the tasks of a group have, or whether they are balanced.
fn is_of_cpuset(path: &str) -> bool {
    let Some((group, name)) = path.rsplit_once('/') else { return false };
    let is_group = !group.starts_with("/proc/") && !group.starts_with("/sys/devices/");
    is_group
        && (is_cpus(name) || name == "sched_load_balance" || name == "cpuset.sched_load_balance")
}

/// CPUs of the shield that the kernel's command line keeps from everybody: a partition that is none any more does not.
fn kept_at_boot(kernel: &dyn Kernel, shield: &Shield) -> Option<CpuSet> {
    let isolated: CpuSet = kernel.read(ISOLATED).ok()?.trim().parse().ok()?;
    Some(isolated.intersection(&shield.cpus)).filter(|kept| !kept.is_empty())
}

fn set(kernel: &dyn Kernel, rail: &Rail, value: &str) -> FenceChange {
    let change = |now: &str, refused| FenceChange {
        what: rail.path.clone(),
        now: printable(now.trim(), 200),
        refused,
    };
    let is_there = |now: &str| same(rail.form, now, value);
    match kernel.read(&rail.request) {
        Ok(now) if is_there(&now) => return change(&now, None),
        Ok(_) => {}
        // A group that others have removed keeps nobody off.
        Err(error) if is_gone(&error) && rail.form != Form::Partition => {
            return change("gone", None);
        }
        Err(error) => return change("", Some(write_reason(&error))),
    }
    let done = kernel.write(&rail.path, value);
    fault::point();
    let now = read_back(kernel, &rail.request, value, rail.form).unwrap_or_default();
    let refused = match done {
        Err(error) => Some(file_reason(&rail.path, &error)),
        Ok(()) if is_there(&now) => None,
        Ok(()) if now.contains("invalid") => Some(partition_reason(&printable(now.trim(), 200))),
        Ok(()) => Some("the kernel accepted it and answers otherwise".to_owned()),
    };
    change(&now, refused)
}

/// Takes every thread off the shield but those that the journal put onto it.
fn confine(
    kernel: &dyn Kernel,
    state: &StateDir,
    journal: &mut Journal,
    shield: &Shield,
) -> FenceChange {
    let mut hand = Hand {
        kernel,
        journal,
        state,
        shield,
        holder: None,
        interrupt: &AtomicBool::new(false),
        strangers: false,
        calm: true,
    };
    let done = hand.confine_programs();
    let (now, refused) = match done {
        Ok(Outcome::Done { seen } | Outcome::Pending { seen }) => (seen, None),
        Ok(Outcome::Already) => ("nobody to confine".to_owned(), None),
        // Those that the kernel refuses were refused before.
        Ok(Outcome::Partly { seen, .. }) => (seen, None),
        Ok(Outcome::Refused { reason }) => (String::new(), Some(reason)),
        Ok(Outcome::Ignored { seen }) => (seen, None),
        Ok(Outcome::Absent) => (String::new(), None),
        Err(error) => (String::new(), Some(error.to_string())),
    };
    FenceChange { what: THREADS.to_owned(), now, refused }
}

const THREADS: &str = "CPUs of threads";

/// What became of threads, as one line.
fn threads(items: &[PutBack]) -> FenceChange {
    let refused: Vec<String> = items
        .iter()
        .filter_map(|item| match &item.outcome {
            Return::Refused { reason } => Some(format!("{}: {reason}", item.what)),
            _ => None,
        })
        .collect();
    FenceChange {
        what: THREADS.to_owned(),
        now: "as before the shield".to_owned(),
        refused: (!refused.is_empty()).then(|| refused.join("; ")),
    }
}
