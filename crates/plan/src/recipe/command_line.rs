//! A kernel command line.

use super::{RecipeError, page::Page};
use crate::check::cpus_after_flags;
use quiet_types::CpuSet;

/// What each parameter was for, and who does it now.
const MEANT: [(&str, &str); 22] = [
    (
        "nohz_full",
        "the tick is not stopped at run time: `quietcores persist` sets it, \
            for a loop that never sleeps",
    ),
    ("rcu_nocbs", "RCU callbacks can be sent away at boot only: `quietcores persist`"),
    ("rcu_nocb_poll", "at boot only; polls on the housekeeping CPUs"),
    (
        "threadirqs",
        "at boot only: without it links that are interrupts have no priority, but on PREEMPT_RT",
    ),
    ("kthread_cpus", "no mainline kernel knows it: a shield moves kernel threads itself"),
    ("skew_tick", "at boot only"),
    (
        "nosoftlockup",
        "the shield leaves watchdogs alone; kernel.watchdog_cpumask takes them \
            off these CPUs at run time",
    ),
    (
        "nowatchdog",
        "the shield leaves watchdogs alone; kernel.watchdog_cpumask takes them \
            off these CPUs at run time",
    ),
    ("nmi_watchdog", "can be set at run time: kernel.nmi_watchdog"),
    (
        "processor.max_cstate",
        "the shield holds idle states off by /dev/cpu_dma_latency while it is up",
    ),
    (
        "intel_idle.max_cstate",
        "the shield holds idle states off by /dev/cpu_dma_latency while it is up",
    ),
    ("idle", "the shield holds idle states off by /dev/cpu_dma_latency while it is up"),
    ("intel_pstate", "at boot only; the governor is set at run time"),
    ("amd_pstate", "at boot only; the governor is set at run time"),
    ("cpufreq.default_governor", "the governor is set at run time"),
    ("tsc", "at boot only"),
    ("clocksource", "at boot, or in /sys/devices/system/clocksource"),
    ("mce", "at boot only"),
    ("preempt", "at boot only"),
    ("transparent_hugepage", "can be set at run time: /sys/kernel/mm/transparent_hugepage"),
    ("nosmt", "whole cores are shielded; siblings can be taken offline at run time"),
    ("mitigations", "a decision about security, which is not made here"),
];

pub(super) fn looks_so(text: &str) -> bool {
    let names = ["isolcpus", "nohz_full", "irqaffinity", "rcu_nocbs"];
    words(text).any(|word| names.contains(&name(word)) && word.contains('='))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.flat_map(|line| line.split([' ', '\t', '"', '\''])).filter(|word| !word.is_empty())
}

fn name(word: &str) -> &str {
    word.split('=').next().unwrap_or(word)
}

pub(super) fn import(text: &str, chain: &str) -> Result<String, RecipeError> {
    let mut page = Page::new(
        chain,
        "From a kernel command line. It names CPUs, and no links: add them from input to output.",
    );
    let mut isolated: Option<CpuSet> = None;
    let mut others: Vec<&str> = Vec::new();
    let mut seen = false;
    for (line, at) in text.lines().zip(1..) {
        for word in words(line) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match name {
                "isolcpus" => {
                    seen = true;
                    let cpus = cpus_after_flags(value).filter(|cpus| !cpus.is_empty());
                    let cpus = cpus.ok_or_else(|| {
                        RecipeError::at(
                            at,
                            format!("`{}` names no CPUs", quiet_types::printable(word, 80)),
                        )
                    })?;
                    say_of_flags(&mut page, value);
                    isolated = Some(isolated.unwrap_or_default().union(&cpus));
                }
                "irqaffinity" => {
                    seen = true;
                    let keep: CpuSet = value
                        .parse()
                        .map_err(|e| RecipeError::at(at, format!("irqaffinity: {e}")))?;
                    page.say(format!(
                        "{word}: new interrupts went to CPUs {keep}; a shield \
                            sends all foreign ones to the CPUs that are not \
                            shielded."
                    ));
                }
                _ => match MEANT.iter().find(|(known, _)| *known == name) {
                    Some((_, what)) => {
                        seen = true;
                        page.say(format!("{word}: {what}."));
                    }
                    None => others.push(name),
                },
            }
        }
    }
    if !seen {
        return Err(RecipeError::whole(
            "no parameter of it has to do with latency: isolcpus=, nohz_full=, irqaffinity= ...",
        ));
    }
    match isolated {
        Some(cpus) => page.cpus(cpus),
        None => page.say("No isolcpus= names the CPUs, so the plan chooses them."),
    }
    if !others.is_empty() {
        page.say(format!("Not about latency, and left out (names only): {}.", others.join(" ")));
    }
    Ok(page.text())
}

fn say_of_flags(page: &mut Page, value: &str) {
    let flags: Vec<&str> =
        value.split(',').take_while(|w| w.starts_with(|c: char| c.is_ascii_alphabetic())).collect();
    if flags.is_empty() {
        page.say(format!(
            "isolcpus={value}: the shield takes its place; take it out of the \
                command line, or both claim these CPUs."
        ));
        return;
    }
    page.say(format!(
        "isolcpus={value}: the shield takes the place of `domain`; \
            `managed_irq` keeps the interrupts of disks with many queues away and \
            can be had at boot only (flags here: {}).",
        flags.join(", ")
    ));
}
