//! Boot parameters that are void, contradict each other, or are not what the machine booted with.

use super::{
    facts::{Facts, cpus, cpus_after_flags, some},
    verdict::{Verdict, fine, moot, note, problem, unknown, warning},
};
use quiet_types::{CpuId, CpuSet, Finding, finding::When};

/// Parameters that this program and its users set for latency.
pub(super) const OURS: [&str; 40] = [
    "audit",
    "clocksource",
    "cpuidle.off",
    "highres",
    "idle",
    "intel_idle.max_cstate",
    "intel_pstate",
    "irqaffinity",
    "isolcpus",
    "kthread_cpus",
    "mce",
    "mitigations",
    "nmi_watchdog",
    "nohz",
    "nohz_full",
    "nosmt",
    "nosoftlockup",
    "nowatchdog",
    "pcie_aspm",
    "preempt",
    "processor.max_cstate",
    "processor.ignore_ppc",
    "rcu_nocb_poll",
    "rcu_nocbs",
    "rcupdate.rcu_normal_after_boot",
    "rcutree.kthread_prio",
    "skew_tick",
    "snd_hda_intel.power_save",
    "systemd.cpu_affinity",
    "threadirqs",
    "transparent_hugepage",
    "tsc",
    "usbcore.autosuspend",
    "watchdog",
    "amd_pstate",
    "cpufreq.default_governor",
    "default_hugepagesz",
    "hugepages",
    "noirqbalance",
    "cstate.id",
];

/// Those of [`OURS`] that no mainline kernel knows, or that only modules or systemd read.
const FOREIGN: [&str; 5] = [
    "kthread_cpus",
    "systemd.cpu_affinity",
    "snd_hda_intel.power_save",
    "noirqbalance",
    "cstate.id",
];

/// Parameters that hold CPUs, and have to agree.
pub(super) const CPU_LISTS: [&str; 4] = ["isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity"];

/// `COMMAND_LINE_SIZE` of x86 and arm64.
const LONGEST: usize = 2048;

fn has(f: &Facts, name: &str) -> bool {
    f.parameter(name).is_some()
}

pub(super) fn kthread_cpus_void(f: &Facts) -> Verdict {
    let Some(value) = f.parameter("kthread_cpus") else {
        return fine("kthread_cpus= is not used");
    };
    warning("kthread_cpus= has no effect on a mainline kernel")
        .evidence(format!("/proc/cmdline: kthread_cpus={value}"))
        .effect("kernel threads run on the audio CPUs as if it were not there")
        .remedy(
            "take it out; nohz_full=, isolcpus=domain or an isolated partition \
                keep kernel threads away",
        )
        .when(When::Reboot)
        .into()
}

pub(super) fn nohz_contradiction(f: &Facts) -> Verdict {
    let Some(list) = f.parameter("nohz_full") else {
        return fine("nohz_full= is not used");
    };
    let told = format!("/proc/cmdline: nohz_full={list}");
    let broken = |why: &str, remedy: &str| {
        problem(format!("nohz_full= has no effect: {why}"))
            .effect("the tick interrupts the audio CPUs up to 1000 times a second")
            .remedy(remedy)
            .when(When::Reboot)
    };
    if f.parameter("nohz") == Some("off") {
        return broken("nohz=off switches off what it builds on", "take nohz=off out")
            .evidence(format!("{told} and nohz=off"))
            .into();
    }
    if f.config("NO_HZ_FULL").is_some_and(|value| value != "y") {
        return broken(
            "this kernel is built without NO_HZ_FULL",
            "boot a kernel that has it, or take it out",
        )
        .evidence(format!("{told}; CONFIG_NO_HZ_FULL is not set"))
        .into();
    }
    let wanted: CpuSet = f.parameter_cpus("nohz_full").unwrap_or_default();
    let wanted = wanted.intersection(&f.machine.possible);
    match &f.machine.nohz_full {
        Some(real) if !wanted.is_empty() && real.is_empty() => {
            broken("the kernel did not take it", "see the kernel log (dmesg) for the reason")
                .evidence(format!("{told}; /sys/devices/system/cpu/nohz_full is empty"))
                .into()
        }
        Some(real) => fine(format!("{told}; in force: {real}")),
        None => unknown("/sys/devices/system/cpu/nohz_full is not there"),
    }
}

pub(super) fn isolcpus_void(f: &Facts) -> Verdict {
    let Some(value) = f.parameter("isolcpus") else {
        return fine("isolcpus= is not used");
    };
    let told = format!("/proc/cmdline: isolcpus={value}");
    let Some(wanted) = cpus_after_flags(value).filter(|cpus| !cpus.is_empty()) else {
        return problem("isolcpus= names no CPU that the kernel understands")
            .evidence(told)
            .effect("nothing is isolated")
            .remedy("write it as isolcpus=managed_irq,domain,2-3")
            .when(When::Reboot)
            .into();
    };
    let absent = wanted.difference(&f.machine.possible);
    if !absent.is_empty() {
        return warning(format!(
            "isolcpus= names {}, which this machine does not have",
            cpus(&absent)
        ))
        .evidence(format!("{told}; /sys/devices/system/cpu/possible is {}", f.machine.possible))
        .effect("fewer CPUs are isolated than was thought")
        .remedy("correct the list")
        .when(When::Reboot)
        .into();
    }
    let flags: Vec<&str> = value
        .split(',')
        .take_while(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()))
        .collect();
    let domain = flags.is_empty() || flags.contains(&"domain");
    match &f.machine.isolated {
        None => unknown("/sys/devices/system/cpu/isolated is not there"),
        Some(real) if domain && !wanted.is_subset(real) => {
            problem(format!("{} of isolcpus= are not isolated", cpus(&wanted.difference(real))))
                .evidence(format!("{told}; /sys/devices/system/cpu/isolated is {}", empty_or(real)))
                .effect("the kernel balances tasks onto them")
                .remedy(if wanted.contains(CpuId(0)) {
                    "the CPU that boots must stay with the kernel: take CPU 0 out of the list"
                } else {
                    "see the kernel log (dmesg) for the reason"
                })
                .when(When::Reboot)
                .into()
        }
        Some(real) => fine(format!("{told}; in force: {}", empty_or(real))),
    }
}

fn empty_or(cpus: &CpuSet) -> String {
    if cpus.is_empty() { "empty".into() } else { cpus.to_string() }
}

pub(super) fn isolcpus_and_partition(f: &Facts) -> Verdict {
    let booted = f.machine.isolated.clone().unwrap_or_default();
    let Some(groups) = f.machine.cgroups.v2.as_ref().map(|_| &f.machine.cgroups.groups) else {
        return moot("there is no cgroup v2");
    };
    let clash: Vec<_> = groups
        .iter()
        .filter(|g| {
            g.partition
                .as_deref()
                .is_some_and(|p| p.starts_with("root") || p.starts_with("isolated"))
        })
        .filter(|g| {
            !g.path.is_root() && g.cpus.as_ref().is_some_and(|cpus| cpus.intersects(&booted))
        })
        .collect();
    if clash.is_empty() {
        return fine("no CPU is both booted with isolcpus= and in a partition");
    }
    let paths: Vec<&str> = clash.iter().map(|g| g.path.as_str()).collect();
    warning(format!("isolcpus= and a partition both claim {}", cpus(&booted)))
        .evidence(format!(
            "/sys/devices/system/cpu/isolated is {booted}; {}: cpuset.cpus",
            some(&paths, 3)
        ))
        .effect(
            "CPUs booted apart may only be in an isolated partition, and are \
                not given back when it goes",
        )
        .remedy("take isolcpus= out and let the partition do it, which can be undone at run time")
        .when(When::Reboot)
        .into()
}

pub(super) fn managed_irq(f: &Facts) -> Verdict {
    let Some(value) = f.parameter("isolcpus") else {
        return moot("isolcpus= is not used");
    };
    let queued: Vec<String> = f
        .machine
        .irqs
        .iter()
        .filter(|irq| {
            irq.actions
                .iter()
                .any(|a| a.starts_with("nvme") || a.starts_with("virtio") && a.contains("req"))
        })
        .map(|irq| irq.number.to_string())
        .collect();
    if queued.is_empty() {
        return moot("no disk with an interrupt for each CPU was seen");
    }
    if value.split(',').any(|flag| flag == "managed_irq") {
        return fine("isolcpus= has managed_irq");
    }
    warning("isolcpus= lacks managed_irq, and a disk has an interrupt on every CPU")
        .evidence(format!("/proc/cmdline: isolcpus={value}; IRQs {}", some(&queued, 8)))
        .effect(
            "these interrupts cannot be moved at run time and disturb the \
                isolated CPUs when a task there uses the disk",
        )
        .remedy(format!(
            "boot with isolcpus=managed_irq,domain,{}",
            cpus_after_flags(value).unwrap_or_default()
        ))
        .when(When::Reboot)
        .into()
}

pub(super) fn unknown_parameter(f: &Facts) -> Verdict {
    let mut found: Vec<Finding> = Vec::new();
    for word in &f.machine.kernel.boot_parameters {
        let name = word.split('=').next().unwrap_or(word);
        if let Some(meant) = OURS.iter().find(|known| is_slip(name, known)) {
            found.push(
                warning(format!("`{name}` is no boot parameter; `{meant}` was probably meant"))
                    .evidence(format!("/proc/cmdline: {word}"))
                    .effect("the kernel hands it to init and does nothing")
                    .remedy(format!("write {meant}"))
                    .when(When::Reboot),
            );
        }
    }
    const SAID: &str = "Unknown kernel command line parameters";
    let lines = f.around.kernel_log.iter().flatten().filter(|line| line.contains(SAID));
    for line in lines {
        let said = line.split(SAID).nth(1).unwrap_or_default();
        let words = said.trim_matches([' ', '"', ',']).split([' ', '"']);
        let ours: Vec<&str> = words
            .map(|word| word.split('=').next().unwrap_or(word))
            .filter(|name| OURS.contains(name) && !FOREIGN.contains(name))
            .collect();
        if !ours.is_empty() {
            found.push(
                warning(format!("this kernel does not know the boot parameter {}", some(&ours, 4)))
                    .evidence(format!("kernel log: `{}`", quiet_types::printable(line.trim(), 200)))
                    .effect("what it was to do is not done")
                    .remedy("boot a kernel built with that option, or take it out")
                    .when(When::Reboot),
            );
        }
    }
    match (found.is_empty(), &f.around.kernel_log) {
        (true, None) => fine("no boot parameter looks misspelt; the kernel log may not be read"),
        (_, _) => Verdict::of(found, "no boot parameter is unknown or looks misspelt"),
    }
}

/// Whether `name` is one letter away from a known parameter of some length.
fn is_slip(name: &str, known: &str) -> bool {
    if name == known
        || known.len() < 7
        || OURS.contains(&name)
        || name.len().abs_diff(known.len()) > 1
    {
        return false;
    }
    let alike = |a: &[u8], b: &[u8]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (name.as_bytes(), known.as_bytes());
    let front = alike(a, b);
    let back = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    // `-` and `_` are the same to the kernel.
    if name.replace('-', "_") == known {
        return false;
    }
    front + back >= a.len().max(b.len()) - 1
}

pub(super) fn duplicate_parameter(f: &Facts) -> Verdict {
    let names: Vec<&str> = f
        .machine
        .kernel
        .boot_parameters
        .iter()
        .map(|word| word.split('=').next().unwrap_or(word))
        .collect();
    let mut twice: Vec<&str> = OURS
        .iter()
        .copied()
        .filter(|ours| names.iter().filter(|name| *name == ours).count() > 1)
        // Hugepage sizes come in pairs on purpose.
        .filter(|name| !name.contains("hugepage"))
        .collect();
    twice.sort_unstable();
    if twice.is_empty() {
        return fine("no boot parameter for latency is given twice");
    }
    let words = f.machine.kernel.boot_parameters.iter();
    let words: Vec<&String> =
        words.filter(|w| twice.contains(&w.split('=').next().unwrap_or(w))).collect();
    warning(format!("the boot parameter {} is given more than once", some(&twice, 4)))
        .evidence(format!("/proc/cmdline: {}", some(&words, 8)))
        .effect("which one holds depends on the parameter: the last, the first, or all together")
        .remedy("leave one")
        .when(When::Reboot)
        .into()
}

pub(super) fn too_long(f: &Facts) -> Verdict {
    let length: usize = f.machine.kernel.boot_parameters.iter().map(|word| word.len() + 1).sum();
    if length + 1 < LONGEST {
        return fine(format!("the boot parameters take {length} of {LONGEST} characters"));
    }
    warning("the boot parameters fill all the room that there is, and are probably cut off")
        .evidence(format!("/proc/cmdline: {length} characters; x86 and arm64 keep {LONGEST}"))
        .effect("parameters at the end are not in force")
        .remedy("write CPU lists as ranges (2-3,6-7) and take out what is not needed")
        .when(When::Reboot)
        .into()
}

pub(super) fn nohz_full_sleeping(f: &Facts) -> Verdict {
    let ticks_off = f.machine.nohz_full.clone().unwrap_or_default();
    if ticks_off.is_empty() {
        return fine("nohz_full is not in force");
    }
    let tasks = f.audio_tasks();
    let crowd: Vec<(CpuId, usize)> = ticks_off
        .iter()
        .map(|cpu| (cpu, tasks.iter().filter(|t| t.allowed.contains(cpu)).count()))
        .filter(|(_, count)| *count > 1)
        .collect();
    let Some((cpu, count)) = crowd.first() else {
        return fine(format!(
            "no two audio threads share one of the CPUs {ticks_off} of nohz_full"
        ));
    };
    warning(format!("nohz_full= holds CPU {cpu}, on which {count} audio threads may run and sleep"))
        .evidence(format!(
            "/sys/devices/system/cpu/nohz_full is {ticks_off}; \
                Cpus_allowed_list of the audio threads"
        ))
        .effect(
            "the tick stays as soon as two threads are runnable, and each \
                system call and interrupt costs more: it is made for one loop that \
                never enters the kernel",
        )
        .remedy(
            "for a chain that sleeps between periods, take nohz_full= out; for a \
            loop that never sleeps, give it a CPU of its own",
        )
        .when(When::Reboot)
        .into()
}

pub(super) fn rcu_callbacks(f: &Facts) -> Verdict {
    let booted = f.machine.isolated.clone().unwrap_or_default();
    if booted.is_empty() {
        return moot("no CPU was booted with isolcpus=");
    }
    let off = f.parameter("rcu_nocbs");
    let off = match off {
        Some("all") => f.machine.possible.clone(),
        Some(list) => list.parse().unwrap_or_default(),
        None => CpuSet::new(),
    };
    let off = off.union(&f.machine.nohz_full.clone().unwrap_or_default());
    let rest = booted.difference(&off);
    if rest.is_empty() {
        return fine(format!("RCU callbacks of {} run elsewhere", cpus(&booted)));
    }
    note(format!("RCU callbacks still run on the isolated {}", cpus(&rest)))
        .evidence("/proc/cmdline: neither rcu_nocbs= nor nohz_full= holds them")
        .effect(
            "the kernel's deferred work runs in softirqs on the audio CPU, \
                some microseconds at a time",
        )
        .remedy(format!("boot with rcu_nocbs={booted}"))
        .when(When::Reboot)
        .into()
}

pub(super) fn rcu_poll(f: &Facts) -> Verdict {
    if !has(f, "rcu_nocb_poll") {
        return fine("rcu_nocb_poll is not used");
    }
    note("rcu_nocb_poll keeps threads polling on the housekeeping CPUs")
        .evidence("/proc/cmdline: rcu_nocb_poll")
        .effect("no wakeups come from the audio CPU; the others lose time and power")
        .remedy("take it out when the housekeeping CPUs are short of time")
        .when(When::Reboot)
        .into()
}

pub(super) fn idle_poll(f: &Facts) -> Verdict {
    if f.parameter("idle") != Some("poll") {
        return fine("idle=poll is not used");
    }
    warning("idle=poll lets every CPU spin while it has nothing to do")
        .evidence("/proc/cmdline: idle=poll")
        .effect(
            "an idle SMT sibling takes half of the core, the processor runs \
                hot and loses its boost",
        )
        .remedy(
            "take it out; /dev/cpu_dma_latency held at 0 does the same while \
                it is wanted (`quietcores apply`)",
        )
        .when(When::Reboot)
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_one_letter_is_seen_and_real_parameters_are_not() {
        for (name, slip) in [
            ("isolcpu", true),
            ("isolcpuss", true),
            ("nohz_ful", true),
            ("rcu_nocb", true),
            ("threadirq", true),
            ("isolcpus", false),
            ("nohz", false),
            ("quiet", false),
            ("root", false),
            ("nowatchdog", false),
            ("rcu-nocbs", false),
        ] {
            assert_eq!(OURS.iter().any(|known| is_slip(name, known)), slip, "{name}");
        }
    }
}
