//! The kernel's texts, understood: pure functions on `&str`.
//!
//! None panics on any input; what makes no sense is answered with its line and the reason
//! ([`Wrong`]). CPU lists and masks are read by [`quiet_types::CpuSet`].

mod cgroup;
mod cmdline;
mod config;
mod counters;
mod cpu_info;
mod interrupts;
mod pid;
mod pipewire;
mod proc_stat;
mod process;
mod secret;
mod times;

pub use cgroup::{
    CgroupMount, cgroup_mounts, only_cgroup_mounts, task_cgroup, task_unit_group, v1_group,
    v2_group,
};
pub use cmdline::{boot_parameters, print_boot_parameters};
pub use config::config;
pub use counters::counters;
pub use cpu_info::{CpuInfo, cpu_info};
pub use interrupts::{Interrupts, IrqRow, interrupts};
pub use pid::{PidStat, PidStatus, pid_stat, pid_status};
pub use pipewire::{pipewire_folder, pipewire_lines, pipewire_settings, pipewire_version};
pub use proc_stat::steal;
pub use process::{
    CAP_IPC_LOCK, CAP_SYS_NICE, Credentials, Limits, Used, audio_groups, credentials, limits,
    migrations, mounts, status_kib, used, users,
};
pub use secret::{mask_arguments, mask_parameter};
pub use times::{CpuTimes, ThreadTimes, cpu_times, schedstat};

use quiet_types::CpuSet;
use std::fmt;

/// The list form of all 8192 CPUs is shorter.
const LONGEST_CPUS: usize = 48 << 10;

/// A CPU list or mask by `read`, if it is not absurdly long.
pub(crate) fn cpus<E: fmt::Display>(
    text: &str,
    line: usize,
    read: fn(&str) -> Result<CpuSet, E>,
) -> Result<CpuSet, Wrong> {
    if text.len() > LONGEST_CPUS {
        return Err(Wrong::at(line, "it is longer than any set of CPUs"));
    }
    read(text).map_err(|error| Wrong::at(line, error.to_string()))
}

/// What could not be understood: the line, from 1, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Line of the text, from 1.
    pub line: usize,
    /// Why, as the end of a sentence.
    pub why: String,
}

impl Wrong {
    fn at(line: usize, why: impl Into<String>) -> Wrong {
        Wrong { line, why: why.into() }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for Wrong {}
