//! Threads of an EVL core (Xenomai 4), and on which side each of them runs.
//!
//! # Source
//! The core's device class `thread`: files `pid`, `sched` (CPU, base and current priority, class), `state` (flags in
//! hexadecimal) and `stats` (switches in-band, context switches, system calls, remote wake-ups, time, use).

use quiet_linux::Kernel;
use quiet_types::{CpuId, plan::EvlThread, printable};

const THREADS: &str = "/sys/devices/virtual/thread";

/// `EVL_T_INBAND` of the core's interface to user space (ABI level 32).
const IN_BAND: u32 = 0x80;

/// Threads of the core, by CPU and name; none where there is no core. One that ends while it is read is left out.
pub(crate) fn threads(kernel: &dyn Kernel) -> Vec<EvlThread> {
    let names = kernel.list(THREADS).unwrap_or_default();
    let mut threads: Vec<EvlThread> =
        names.iter().filter_map(|name| thread(kernel, name)).collect();
    threads.sort_by(|a, b| (a.cpu, &a.name).cmp(&(b.cpu, &b.name)));
    threads
}

fn thread(kernel: &dyn Kernel, name: &str) -> Option<EvlThread> {
    let read = |file: &str| kernel.read(&format!("{THREADS}/{name}/{file}")).ok();
    let sched = read("sched")?;
    let mut words = sched.split_whitespace();
    let cpu = CpuId(words.next()?.parse().ok()?);
    let priority = words.nth(1)?.parse().ok()?;
    let class = printable(words.next()?, 16);
    let state = u32::from_str_radix(read("state")?.trim().trim_start_matches("0x"), 16).ok()?;
    // Where the core is built without its account, all of the line is zero.
    let stats = read("stats").unwrap_or_default();
    let counted: Vec<u64> = stats.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let switches = counted.first().copied().filter(|_| counted.iter().any(|count| *count > 0));
    Some(EvlThread {
        name: printable(name, 64),
        tid: read("pid")?.trim().parse().ok()?,
        cpu,
        class,
        priority,
        in_band: state & IN_BAND != 0,
        switches,
    })
}
