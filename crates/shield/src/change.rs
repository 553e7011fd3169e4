//! What is noted in the journal: each change with the whole old value.

use crate::plugged::Plugged;
use quiet_linux::Kernel;
use quiet_types::{
    CpuSet, GroupPath, Nanos,
    machine::Scheduling,
    plan::{Form, Thread, UserUnit},
};
use serde::{Deserialize, Serialize};
use std::{io, thread::sleep, time::Duration};

/// One reversible change, as it stands in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub(crate) enum Change {
    /// Nothing yet: the affinity of every thread, which groups change on their own.
    Remember { threads: Vec<(Thread, CpuSet)> },
    /// A kernel file.
    Write {
        path: String,
        /// Where the value that was asked for is read.
        request: String,
        old: String,
        new: String,
        form: Form,
        /// The USB device whose file it is: another one may come to its place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<Plugged>,
    },
    /// An ordinary file, whole. It outlives a reboot, unlike everything else.
    File { path: String, old: String, new: String },
    /// What a running irqbalance keeps its interrupts off. `told` is what it was told; `back` is
    /// what gives it its old bans: `NULL` where they are its own.
    Ban { daemon: Thread, old: CpuSet, told: CpuSet, back: String },
    /// A group is made, and removed whole; by a unit of systemd of its name or by ourselves.
    Make {
        path: GroupPath,
        #[serde(default)]
        unit: bool,
    },
    /// Threads go from one group to another; the files that list and take them.
    Move { mount: GroupPath, from: GroupPath, to: GroupPath, threads: Vec<(Thread, CpuSet)> },
    /// An interrupt's CPUs.
    Irq {
        number: u32,
        /// What it served: the number may be another's later.
        #[serde(default)]
        name: String,
        old: CpuSet,
        effective: Option<CpuSet>,
        new: CpuSet,
    },
    /// Threads' own CPUs.
    Affinity { threads: Vec<Confined> },
    /// A thread's policy and priority.
    Scheduling {
        thread: Thread,
        old: Scheduling,
        /// The slice that it had of its own under the old policy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slice: Option<Nanos>,
        new: Scheduling,
        /// What it starts was made to begin under the ordinary policy; that is taken back as well.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        afresh: bool,
    },
    /// A process is started that holds `/dev/cpu_dma_latency`.
    Hold,
    /// A file of settings, whole, that others read when they start. It outlives a reboot.
    DropIn {
        path: String,
        /// Directories that were not there, the innermost first.
        made: Vec<String>,
        /// `None` where there was no such file.
        old: Option<String>,
        new: String,
        /// Who read it.
        restart: Vec<UserUnit>,
    },
}

/// A thread whose CPUs are changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confined {
    pub thread: Thread,
    pub old: CpuSet,
    pub new: CpuSet,
}

impl Change {
    /// What is changed, for people.
    pub fn what(&self) -> String {
        match self {
            Change::Remember { threads } => format!("CPUs of {} threads", threads.len()),
            Change::Write { path, .. } => path.clone(),
            Change::Make { path, .. } => format!("group {path}"),
            Change::File { path, .. } | Change::DropIn { path, .. } => path.clone(),
            Change::Ban { daemon, .. } => format!("bans of {daemon}"),
            Change::Move { from, threads, .. } => {
                format!("group of {} threads from {from}", threads.len())
            }
            Change::Irq { number, .. } => format!("IRQ {number}"),
            Change::Affinity { threads } => match threads.as_slice() {
                [one] => format!("CPUs of {}", one.thread),
                many => format!("CPUs of {} threads", many.len()),
            },
            Change::Scheduling { thread, .. } => format!("scheduling of {thread}"),
            Change::Hold => "hold of /dev/cpu_dma_latency".into(),
        }
    }
}

impl Change {
    /// What is said where it is about a USB device that is not at its place any more, and another one may be.
    pub fn replaced(&self, kernel: &dyn Kernel) -> Option<String> {
        match self {
            Change::Write { path, device: Some(device), .. } => device.replaced(kernel, path),
            _ => None,
        }
    }

    /// The same change in parts of at most `many` threads.
    pub fn parts(self, many: usize) -> Vec<Change> {
        match self {
            Change::Remember { threads } if threads.len() > many => {
                let parts = threads.chunks(many);
                parts.map(|part| Change::Remember { threads: part.to_vec() }).collect()
            }
            Change::Affinity { threads } if threads.len() > many => {
                let parts = threads.chunks(many);
                parts.map(|part| Change::Affinity { threads: part.to_vec() }).collect()
            }
            Change::Move { mount, from, to, threads } if threads.len() > many => {
                let part = |part: &[(Thread, CpuSet)]| Change::Move {
                    mount: mount.clone(),
                    from: from.clone(),
                    to: to.clone(),
                    threads: part.to_vec(),
                };
                threads.chunks(many).map(part).collect()
            }
            one => vec![one],
        }
    }
}

/// Whether the text of a kernel file, `now`, has the meaning of `value` that was written to it.
pub(crate) fn same(form: Form, now: &str, value: &str) -> bool {
    let (now, value) = (now.trim(), value.trim());
    match form {
        Form::Text | Form::Partition => now == value,
        Form::List => match (now.parse::<CpuSet>(), value.parse::<CpuSet>()) {
            (Ok(a), Ok(b)) => a == b,
            _ => now == value,
        },
        Form::Mask => match (CpuSet::from_mask(now), CpuSet::from_mask(value)) {
            (Ok(a), Ok(b)) => a == b,
            _ => now == value,
        },
        Form::Chosen => chosen(now) == chosen(value),
        Form::Word => now.split_ascii_whitespace().any(|word| word == word_of(value)),
    }
}

/// The text of a kernel file that was given `value`. Frequencies are taken by a work item of the kernel, a moment after the write
/// (`cpufreq_notifier_min`, drivers/cpufreq/cpufreq.c): they are read until they are there, 0.2 s at most.
pub(crate) fn read_back(
    kernel: &dyn Kernel,
    path: &str,
    value: &str,
    form: Form,
) -> io::Result<String> {
    let mut now = kernel.read(path)?;
    for _ in 0..if path.contains("/cpufreq/") { 40 } else { 0 } {
        if same(form, &now, value) {
            break;
        }
        sleep(Duration::from_millis(5));
        now = kernel.read(path)?;
    }
    Ok(now)
}

/// The word in force of `always [madvise] never`; a word alone is itself.
pub(crate) fn chosen(text: &str) -> &str {
    let inner = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or(text, |(word, _)| word).trim()
}

/// The text of a file of `NAME=value` lines in which `name` has `value`: its last assignment is
/// changed where there is one, else a line is added. All else stays byte for byte.
pub(crate) fn assigned(text: &str, name: &str, value: &str) -> String {
    let is_ours =
        |line: &&str| line.trim_start().strip_prefix(name).is_some_and(|r| r.starts_with('='));
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut new: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    let line = format!("{name}={value}\n");
    match lines.iter().rposition(is_ours) {
        Some(at) => new[at] = line,
        None => {
            if new.last().is_some_and(|last| !last.ends_with('\n')) {
                new.push("\n".into());
            }
            new.push(line);
        }
    }
    new.concat()
}

/// `cpuset` of `+cpuset`.
pub(crate) fn word_of(value: &str) -> &str {
    value.trim().trim_start_matches(['+', '-'])
}

/// Where an interrupt's CPUs are asked for.
pub(crate) fn irq_file(number: u32) -> String {
    format!("/proc/irq/{number}/smp_affinity_list")
}

/// Where an interrupt is really delivered.
pub(crate) fn effective_file(number: u32) -> String {
    format!("/proc/irq/{number}/effective_affinity_list")
}

/// The interrupt that a thread of this name serves: 26 of `irq/26-snd_hda_int` and `irq/26-s-snd_hda_i`.
pub(crate) fn irq_of(comm: &str) -> Option<u32> {
    comm.strip_prefix("irq/")?.split_once('-')?.0.parse().ok()
}

/// What is left of `allowed` off the shield; all of `rest` where nothing is.
pub(crate) fn outside(allowed: &CpuSet, off: &CpuSet, rest: &CpuSet) -> CpuSet {
    let left = allowed.difference(off);
    if left.is_empty() { rest.clone() } else { left }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_interrupts_tell_which() {
        assert_eq!(irq_of("irq/26-s-snd_hda_i"), Some(26));
        assert_eq!(irq_of("irq/126-xhci_hcd"), Some(126));
        for other in ["irq/x-y", "irq/26", "irq_work/1", "ksoftirqd/2"] {
            assert_eq!(irq_of(other), None, "{other}");
        }
    }

    #[test]
    fn values_are_compared_by_meaning() {
        assert!(same(Form::List, "0-1\n", "0,1"));
        assert!(same(Form::List, "\n", ""));
        assert!(!same(Form::List, "0-1", "0"));
        assert!(same(Form::Mask, "00000000,00000003\n", "3"));
        assert!(same(Form::Word, "cpu cpuset io\n", "+cpuset"));
        assert!(!same(Form::Word, "cpu io\n", "+cpuset"));
        assert!(!same(Form::Partition, "isolated invalid (cpuset.cpus is empty)", "isolated"));
        assert!(same(Form::Text, "950000\n", "950000"));
        assert!(same(Form::Chosen, "always [madvise] never\n", "madvise"));
        assert!(!same(Form::Chosen, "[always] madvise never\n", "madvise"));
        // `0` is no constraint and `n/a` is a latency of zero: opposites.
        assert!(!same(Form::Text, "0\n", "n/a"));
    }

    #[test]
    fn a_variable_is_given_a_value_and_the_rest_of_the_file_stays() {
        let text = "# bans\n#A=9\nA=1\nB=2\nA=\"3\"\n\n# end";
        assert_eq!(assigned(text, "A", "4"), "# bans\n#A=9\nA=1\nB=2\nA=4\n\n# end");
        assert_eq!(assigned(text, "C", "4"), format!("{text}\nC=4\n"));
        assert_eq!(assigned("", "C", "4"), "C=4\n");
        assert_eq!(assigned("CC=1\n", "C", "4"), "CC=1\nC=4\n");
    }
}
