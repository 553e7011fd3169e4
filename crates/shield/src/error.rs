//! Why a shield could not be put up, looked at or taken down.

use quiet_linux::Hindrance;
use quiet_types::plan::Reverted;
use std::{fmt, io};

/// What stood in the way, as a sentence with its remedy.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    sentence: String,
    rolled_back: Option<Box<Reverted>>,
}

/// What kind of thing stood in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The state directory cannot be used.
    State,
    /// The journal cannot be written or read: nothing is changed without it.
    Journal,
    /// Another quietcores is at work with this state directory.
    Busy,
    /// A shield is up already.
    AlreadyUp,
    /// An earlier apply or revert did not come to its end.
    Leftover,
    /// An essential step failed; what had been done is rolled back.
    Step,
    /// A signal asked to stop; what had been done is rolled back.
    Interrupted,
    /// Whoever asked may not have it; nothing is changed.
    Refused,
}

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, sentence: impl Into<String>) -> Error {
        Error { kind, sentence: sentence.into(), rolled_back: None }
    }

    pub(crate) fn after(mut self, rolled_back: Reverted) -> Error {
        self.rolled_back = Some(Box::new(rolled_back));
        self
    }

    /// What kind of thing it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What it is to who tries again.
    pub(crate) fn hindrance(&self) -> Hindrance {
        match self.kind {
            ErrorKind::Busy => Hindrance::Busy,
            _ => Hindrance::Trouble,
        }
    }

    /// What was put back after the failure, where something had been done.
    pub fn rolled_back(&self) -> Option<&Reverted> {
        self.rolled_back.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)?;
        match &self.rolled_back {
            None => Ok(()),
            Some(back) if back.is_exact() => {
                f.write_str("; everything done before it was put back")
            }
            Some(back) if back.is_complete() => f.write_str(
                "; what was done before it was put back, except for values that somebody else \
                 has changed since",
            ),
            Some(_) => f.write_str(
                "; putting back what was done before it failed in part: run `quietcores revert`",
            ),
        }
    }
}

impl std::error::Error for Error {}

impl From<quiet_linux::Error> for Error {
    fn from(error: quiet_linux::Error) -> Error {
        let kind = match error.kind() {
            quiet_linux::ErrorKind::Busy => ErrorKind::Busy,
            _ => ErrorKind::State,
        };
        Error::new(kind, error.to_string())
    }
}

pub(crate) use quiet_linux::plain;

/// Error numbers as the kernel gives them; the same on every architecture that we know of.
pub(crate) mod errno {
    use rustix::io::Errno;
    pub const EPERM: i32 = Errno::PERM.raw_os_error();
    pub const ENOENT: i32 = Errno::NOENT.raw_os_error();
    pub const ESRCH: i32 = Errno::SRCH.raw_os_error();
    pub const EIO: i32 = Errno::IO.raw_os_error();
    pub const EACCES: i32 = Errno::ACCESS.raw_os_error();
    pub const EBUSY: i32 = Errno::BUSY.raw_os_error();
    pub const EAGAIN: i32 = Errno::AGAIN.raw_os_error();
    pub const ENODEV: i32 = Errno::NODEV.raw_os_error();
    pub const EINVAL: i32 = Errno::INVAL.raw_os_error();
    pub const ENOSPC: i32 = Errno::NOSPC.raw_os_error();
    pub const EROFS: i32 = Errno::ROFS.raw_os_error();
    pub const EOVERFLOW: i32 = Errno::OVERFLOW.raw_os_error();
    pub const ERANGE: i32 = Errno::RANGE.raw_os_error();
}

/// Whether the object of a failed act does not exist (any more).
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(errno::ENOENT | errno::ESRCH | errno::ENODEV))
}

/// Why an interrupt's CPUs could not be set, in words.
///
/// # Source
/// `write_irq_affinity` and `irq_can_set_affinity_usr` of the kernel (kernel/irq/proc.c): EIO up to
/// 6.11, EPERM from 6.12 for interrupts that cannot be moved by user space.
pub(crate) fn irq_reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno::EPERM | errno::EIO) => {
            "the kernel keeps it where it is: a managed interrupt of a multi-queue device, one of a \
             single CPU, or one whose controller steers none"
                .into()
        }
        Some(errno::EINVAL) => {
            "its interrupt controller cannot deliver it there, or no CPU of the set runs".into()
        }
        Some(errno::ENOSPC) => "the interrupt vectors of these CPUs are used up".into(),
        Some(errno::EBUSY | errno::EAGAIN) => "it is being moved just now; try again".into(),
        Some(errno::EOVERFLOW | errno::ERANGE) => "a CPU of the set does not run".into(),
        _ => plain(error),
    }
}

/// Why a write to a kernel file was refused, in words.
pub(crate) fn write_reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno::EPERM | errno::EACCES) => {
            "permission denied: root is needed, or the kernel is locked down".into()
        }
        Some(errno::EROFS) => "the file system is mounted read-only (a container?)".into(),
        Some(errno::EBUSY) => "in use (EBUSY)".into(),
        Some(errno::EINVAL) => "the kernel finds the value not valid here (EINVAL)".into(),
        Some(errno::ENOSPC) => "it would leave tasks without a CPU or memory node (ENOSPC)".into(),
        _ => plain(error),
    }
}

/// As [`write_reason`], of files whose refusals have meanings of their own.
///
/// # Source
/// `store_energy_performance_preference` (intel_pstate, amd-pstate): EBUSY under the governor
/// `performance`; `sched_rt_runtime` and `tg_set_rt_bandwidth` (kernel/sched/rt.c);
/// `validate_change` (kernel/cgroup/cpuset.c).
pub(crate) fn file_reason(path: &str, error: &io::Error) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    match (name, error.raw_os_error()) {
        ("energy_performance_preference", Some(errno::EBUSY)) => {
            "under the governor `performance` the processor's driver takes no other".into()
        }
        ("cpu.rt_runtime_us", Some(errno::EINVAL)) => {
            "groups beside it have claimed the time of the group above (EINVAL)".into()
        }
        ("cpu.rt_runtime_us", Some(errno::EBUSY)) => {
            "real-time threads run in it just now, and need what it has (EBUSY)".into()
        }
        ("sched_rt_runtime_us", Some(errno::EBUSY)) => {
            "deadline threads or groups have claimed the time that is there (EBUSY)".into()
        }
        ("cpuset.cpus" | "cpus" | "cpuset.cpus.exclusive", Some(errno::EINVAL)) => {
            "a group beside it holds these CPUs for itself, or the group above has not all of them \
             (EINVAL)"
                .into()
        }
        ("cpuset.cpus" | "cpus", Some(errno::EACCES | errno::EPERM)) => {
            "the group above has not all of these CPUs, or root is needed".into()
        }
        ("cpuset.cpus" | "cpus", Some(errno::EBUSY)) => {
            "a group below it holds CPUs that it would lose (EBUSY)".into()
        }
        ("cgroup.subtree_control", Some(errno::EBUSY)) => {
            "tasks live in this group itself: the kernel gives controllers only to groups without \
             tasks (EBUSY)"
                .into()
        }
        ("online", Some(errno::EBUSY)) => {
            "the kernel needs this CPU: the last one of a partition, or taken by a driver (EBUSY)"
                .into()
        }
        ("scaling_governor", Some(errno::EINVAL)) => {
            "the driver does not offer this governor (EINVAL)".into()
        }
        _ => write_reason(error),
    }
}

/// Why a controller could not be taken from the groups below, in words.
///
/// # Source
/// `cgroup_subtree_control_write` of kernel/cgroup/cgroup.c: a child that passes it on to its own children.
pub(crate) fn withdrawal_reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno::EBUSY) => "a group below has given it to groups of its own (EBUSY)".into(),
        _ => write_reason(error),
    }
}

/// Why a partition is not one: the kernel's reason and what to do.
///
/// # Source
/// `perr_strings` of kernel/cgroup/cpuset.c.
pub(crate) fn partition_reason(state: &str) -> String {
    let remedies = [
        ("cpuset.cpus.exclusive", "choose CPUs that no other group has for itself"),
        ("Parent is an invalid partition", "make the partition above valid first"),
        ("Parent is not a partition", "this kernel takes partitions right below the root only"),
        (
            "not exclusive",
            "another group names these CPUs: take them out of its cpuset.cpus (AllowedCPUs= of a \
             systemd unit)",
        ),
        (
            "unable to distribute cpu downstream",
            "no CPU would be left to the group above: shield fewer",
        ),
        ("due to hotplug", "switch its CPUs on again"),
        ("cpuset.cpus is empty", "its CPUs were taken away: revert, and apply again"),
        (
            "conflicts with housekeeping setup",
            "shield all CPUs of isolcpus= or none of them, and leave one that is not",
        ),
    ];
    let remedy = remedies.iter().find(|(reason, _)| state.contains(reason));
    match remedy {
        Some((_, remedy)) => format!("the kernel calls it `{state}`: {remedy}"),
        None => format!("the kernel calls it `{state}`"),
    }
}

/// Why a thread's scheduling could not be set, in words; `group` is its v1 `cpu` group.
pub(crate) fn schedule_reason(error: &io::Error, group: Option<&str>) -> String {
    match (error.raw_os_error(), group) {
        (Some(errno::EPERM), Some(group)) => format!(
            "not permitted: its group {} may have no real-time budget (cpu.rt_runtime_us, \
             RT_GROUP_SCHED)",
            quiet_types::printable(group, 100)
        ),
        (Some(errno::EINVAL), _) => "the kernel does not know such a policy or priority".into(),
        (Some(errno::EBUSY), _) => "the CPUs have no time left to promise (EBUSY)".into(),
        _ => task_reason(error),
    }
}

/// Why a thread could not be moved, in words.
pub(crate) fn task_reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno::EINVAL) => "bound by the kernel, or none of the CPUs is open to it".into(),
        Some(errno::EPERM | errno::EACCES) => {
            "not permitted (a group without real-time budget, or root is needed)".into()
        }
        Some(errno::ENOSPC) => "the group has no CPU or no memory node".into(),
        _ => plain(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_of_an_invalid_partition_has_its_remedy() {
        // `perr_strings` of kernel/cgroup/cpuset.c.
        for reason in [
            "Invalid cpu list in cpuset.cpus.exclusive",
            "Parent is an invalid partition root",
            "Parent is not a partition root",
            "Cpu list in cpuset.cpus not exclusive",
            "Parent unable to distribute cpu downstream",
            "No cpu available due to hotplug",
            "cpuset.cpus is empty",
            "partition config conflicts with housekeeping setup",
        ] {
            let said = partition_reason(&format!("isolated invalid ({reason})"));
            assert!(said.contains(reason) && said.contains("`: "), "{said}");
        }
        assert!(!partition_reason("isolated invalid (something new)").contains("`: "));
    }

    #[test]
    fn refusals_that_have_meanings_of_their_own_are_told_apart() {
        let said = |path: &str, code| file_reason(path, &io::Error::from_raw_os_error(code));
        let epp = "/sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference";
        assert!(said(epp, errno::EBUSY).contains("governor `performance`"));
        assert!(said("/x/cpu.rt_runtime_us", errno::EINVAL).contains("claimed the time"));
        assert!(said("/x/cgroup.subtree_control", errno::EBUSY).contains("without tasks"));
        assert!(said("cpuset.cpus", errno::EINVAL).contains("a group beside it"));
        assert!(said("cpuset.cpus", errno::ENOSPC).contains("ENOSPC"));
        assert!(said("/x/tasks", errno::EROFS).contains("read-only"));
        let eperm = io::Error::from_raw_os_error(errno::EPERM);
        assert!(schedule_reason(&eperm, Some("/audio")).contains("group /audio"));
        assert!(schedule_reason(&eperm, None).contains("not permitted"));
    }
}
