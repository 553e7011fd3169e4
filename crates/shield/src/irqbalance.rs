//! A running irqbalance, spoken to by its socket.
//!
//! # Source
//! `sock_handle`, `init_socket` (irqbalance.c) and `setup_banned_cpus` (cputree.c) of irqbalance
//! 1.9: `setup` is answered with `SLEEP s ... BANNED mask`, `settings cpus LIST` takes effect at the
//! next scan and replaces what it bans by itself, `settings cpus NULL` gives that back.

use crate::error::is_gone;
use quiet_linux::Kernel;
use quiet_types::{CpuSet, plan::Thread};
use std::io;

/// Its own bans again.
pub(crate) const OWN: &str = "NULL";

/// The CPUs that it keeps its interrupts off now.
pub(crate) fn banned(kernel: &dyn Kernel, daemon: &Thread) -> io::Result<CpuSet> {
    let answer = ask(kernel, daemon, "setup")?;
    let mask = answer.split_ascii_whitespace().skip_while(|word| *word != "BANNED").nth(1);
    let mask = mask.ok_or_else(|| io::Error::other("it does not answer with its bans"))?;
    CpuSet::from_mask(mask).map_err(io::Error::other)
}

/// Tells it what to ban: a list, or [`OWN`].
pub(crate) fn tell(kernel: &dyn Kernel, daemon: &Thread, list: &str) -> io::Result<()> {
    ask(kernel, daemon, &format!("settings cpus {list}")).map(drop)
}

/// What it bans when it is told nothing: by its environment, else what was isolated at boot.
pub(crate) fn own(kernel: &dyn Kernel, daemon: &Thread) -> Option<CpuSet> {
    let environment = kernel.read(&format!("/proc/{}/environ", daemon.tid)).ok()?;
    let value = |name: &str| {
        environment.split('\0').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    if let Some(mask) = value("IRQBALANCE_BANNED_CPUS").filter(|mask| !mask.is_empty()) {
        return CpuSet::from_mask(mask).ok();
    }
    if let Some(list) = value("IRQBALANCE_BANNED_CPULIST") {
        return list.parse().ok();
    }
    let booted = |name: &str| -> CpuSet {
        let text = kernel.read(&format!("/sys/devices/system/cpu/{name}")).unwrap_or_default();
        text.trim().parse().unwrap_or_default()
    };
    Some(booted("isolated").union(&booted("nohz_full")))
}

fn ask(kernel: &dyn Kernel, daemon: &Thread, text: &str) -> io::Result<String> {
    let name = format!("irqbalance{}.sock", daemon.tid);
    match kernel.ask(&format!("/run/irqbalance/{name}"), text) {
        // Where it could not make that one it has one without a file.
        Err(error) if is_gone(&error) => kernel.ask(&format!("@{name}"), text),
        answer => answer,
    }
}
