//! What is asked of a run, and whether it can be.

use crate::{Error, ErrorKind, Result, watch::TraceLender};
use quiet_linux::Root;
use quiet_types::{
    CpuSet, Nanos,
    machine::Policy,
    run::{Probe, Spec},
    shield::Entry,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The longest run: a histogram of a longer one says little.
const LONGEST: Nanos = Nanos::from_secs(24 * 3600);

/// A run to be made.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// What to measure.
    pub spec: Spec,
    /// Free words, kept with the run.
    pub label: String,
    /// The door into the shield, where the threads are to run inside one.
    pub entry: Option<Entry>,
    /// Who watches the CPUs where this process has no right to; the measuring process then has its threads seated by who lends seats.
    pub lent: Option<Arc<dyn TraceLender>>,
    /// Stress suites and stressors to run meanwhile; none when empty.
    pub stress: Vec<String>,
    /// Where the stress may run; empty: wherever the program itself may.
    pub stress_cpus: CpuSet,
    /// What to do when the kernel refuses a setting.
    pub strictness: Strictness,
    /// A slice that the measuring threads ask for, under an ordinary policy (EEVDF, Linux 6.12 and newer).
    pub slice: Option<Nanos>,
    /// Whether to watch the measured CPUs, so that each reading beyond the threshold can be
    /// explained.
    pub explain: bool,
}

/// What to do when the kernel refuses a setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strictness {
    /// Go on with what was got, and say so in a finding.
    #[default]
    GoOn,
    /// End with an error.
    Strict,
}

impl RunRequest {
    /// A request with defaults for all but the measurement.
    pub fn new(spec: Spec) -> RunRequest {
        RunRequest {
            spec,
            label: String::new(),
            entry: None,
            lent: None,
            stress: Vec::new(),
            stress_cpus: CpuSet::new(),
            strictness: Strictness::GoOn,
            slice: None,
            explain: false,
        }
    }

    /// Whether this can be asked at all, on this machine.
    ///
    /// # Errors
    /// A sentence for values out of range, CPUs that are not online, and a spinning real-time
    /// thread that would leave no CPU to the rest of the machine.
    pub fn check(&self, root: &Root) -> Result<()> {
        let wrong = |sentence: String| Err(Error::new(sentence));
        let spec = &self.spec;
        if spec.bucket == Nanos::ZERO || spec.buckets > 1_000_000 {
            return wrong("the linear histogram has up to 1000000 buckets of at least 1ns".into());
        }
        if spec.length == Nanos::ZERO || spec.length > LONGEST {
            return wrong("a run lasts from 1ns to 24h; give --for a length such as 10s".into());
        }
        check_scheduling(spec)?;
        if let Probe::Wakeup { interval, .. } = spec.probe {
            let (least, most) = (Nanos::from_micros(10), Nanos::from_secs(1));
            if interval < least || interval > most {
                return wrong(format!(
                    "the interval is {interval}; it can be 10us to 1s, such as --interval 200us"
                ));
            }
            if spec.length < interval {
                return wrong(format!(
                    "a run of {} ends before its first period of {interval}; make it longer",
                    spec.length
                ));
            }
        }
        let online: CpuSet = online(root)?;
        if spec.cpus.is_empty() {
            return wrong(
                "no CPU is named to measure on; give --cpus a list such as 1 or 2-3".into(),
            );
        }
        if !spec.cpus.is_subset(&online) {
            return wrong(format!(
                "CPU {} does not exist here or is offline; online are {online}",
                spec.cpus.difference(&online)
            ));
        }
        if !self.stress_cpus.is_subset(&online) {
            return wrong(format!(
                "the stress cannot run on CPU {}, which does not exist here or is offline; online are {online}",
                self.stress_cpus.difference(&online)
            ));
        }
        let spins = spec.probe == Probe::Gap
            && matches!(spec.policy, Policy::Fifo | Policy::Rr | Policy::Deadline);
        if spins && online.is_subset(&spec.cpus) {
            return wrong(format!(
                "spinning under a real-time policy on CPU {} would leave no CPU to the rest of the \
                 machine; name fewer CPUs or use --policy other",
                spec.cpus
            ));
        }
        if spins
            && let Some(limit) =
                rustix::process::getrlimit(rustix::process::Resource::Rttime).current
            && u128::from(limit) * 1000 < u128::from(spec.length.0)
        {
            return wrong(format!(
                "the limit on real-time running (RLIMIT_RTTIME, {limit} us) would end the run by a \
                 signal; raise it (`ulimit -R unlimited`) or measure for less"
            ));
        }
        Ok(())
    }
}

fn check_scheduling(spec: &Spec) -> Result<()> {
    let priority = spec.priority;
    match spec.policy {
        Policy::Fifo | Policy::Rr if !(1..=99).contains(&priority) => Err(Error::new(format!(
            "priority {priority} does not go with {}: it can be 1 to 99, such as --priority 90",
            name(spec.policy)
        ))),
        Policy::Fifo | Policy::Rr => Ok(()),
        Policy::Idle | Policy::Ext => Err(Error::new(
            "a measuring thread is fifo, rr, other, batch or deadline; give --policy one of them",
        )),
        _ if priority != 0 => Err(Error::new(format!(
            "{} threads have no priority; leave out --priority or use --policy fifo",
            name(spec.policy)
        ))),
        _ => Ok(()),
    }
}

/// The policy's name as it is typed.
pub(crate) fn name(policy: Policy) -> &'static str {
    match policy {
        Policy::Other => "other",
        Policy::Fifo => "fifo",
        Policy::Rr => "rr",
        Policy::Batch => "batch",
        Policy::Idle => "idle",
        Policy::Deadline => "deadline",
        Policy::Ext => "ext",
    }
}

/// CPUs that run now.
pub(crate) fn online(root: &Root) -> Result<CpuSet> {
    let path = "/sys/devices/system/cpu/online";
    let text = root.read(path)?;
    text.parse().map_err(|e| {
        Error::of(ErrorKind::Machine, format!("cannot understand {}: {e}", root.shown(path)))
    })
}
