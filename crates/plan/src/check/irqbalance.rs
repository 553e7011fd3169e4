//! What irqbalance may move.

use super::{
    facts::{Facts, cpus, task_name},
    verdict::{Verdict, fine, warning},
};
use quiet_types::{CpuSet, finding::When};

/// What irqbalance is told to leave alone.
pub(super) fn balance(f: &Facts) -> Verdict {
    let Some(daemon) = f.running(&["irqbalance"]).into_iter().next() else {
        return fine("irqbalance does not run");
    };
    if f.quiet.is_empty() && f.own_irqs().is_empty() {
        return fine("irqbalance runs; nothing is set apart that it could spoil");
    }
    let config = ["etc/default/irqbalance", "etc/sysconfig/irqbalance"]
        .iter()
        .find_map(|path| f.setting(path).map(|text| (*path, text)));
    let banned = config.and_then(|(_, text)| banned_cpus(text));
    // Without the variable it spares what was booted apart, never partitions.
    let booted = f.machine.isolated.clone().unwrap_or_default();
    let booted = booted.union(&f.machine.nohz_full.clone().unwrap_or_default());
    let spared = banned.clone().unwrap_or(booted);
    let open = f.quiet.difference(&spared);
    if !f.quiet.is_empty() && open.is_empty() {
        return fine(format!("irqbalance runs and spares {}", cpus(&f.quiet)));
    }
    let evidence = match (&config, &banned) {
        (Some((path, _)), Some(banned)) => {
            format!(
                "/{path} bans CPUs {}",
                if banned.is_empty() { "none".into() } else { banned.to_string() }
            )
        }
        (Some((path, _)), None) => format!("/{path} names no IRQBALANCE_BANNED_CPULIST"),
        (None, _) => "no configuration file of it was found".into(),
    };
    let what = if f.quiet.is_empty() { "the sound card's interrupts".into() } else { cpus(&open) };
    warning(format!("irqbalance runs and may use {what}"))
        .evidence(format!(
            "{}; {evidence}; it spares isolcpus= and nohz_full= by itself, partitions never",
            task_name(daemon)
        ))
        .effect("every 10 s it may move interrupts onto the audio CPU, or the card's away from it")
        .remedy(format!(
            "set IRQBALANCE_BANNED_CPULIST={} in its file and restart it, or stop it",
            if f.quiet.is_empty() {
                "(the audio CPUs)".into()
            } else {
                f.quiet.union(&spared).to_string()
            }
        ))
        .when(When::RunTime)
        .into()
}

/// CPUs of `IRQBALANCE_BANNED_CPULIST=` or of the older mask `IRQBALANCE_BANNED_CPUS=`, the last
/// line that is no comment. An empty value bans none.
fn banned_cpus(text: &str) -> Option<CpuSet> {
    let mut banned = None;
    for line in text.lines().map(str::trim) {
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((name, value)) = line.split_once('=') else { continue };
        let value = value.trim().trim_matches(['"', '\'']);
        match name.trim() {
            "IRQBALANCE_BANNED_CPULIST" => banned = value.parse().ok(),
            "IRQBALANCE_BANNED_CPUS" if value.is_empty() => banned = Some(CpuSet::new()),
            "IRQBALANCE_BANNED_CPUS" => banned = CpuSet::from_mask(value).ok(),
            _ => {}
        }
    }
    banned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ban_of_irqbalance_is_read_as_it_reads_it() {
        for (text, banned) in [
            ("", None),
            ("#IRQBALANCE_BANNED_CPULIST=2-3\n", None),
            ("IRQBALANCE_BANNED_CPULIST=2-3\n", Some("2-3")),
            ("IRQBALANCE_BANNED_CPULIST=\"2-3\"\n", Some("2-3")),
            ("IRQBALANCE_BANNED_CPULIST=\n", Some("")),
            ("IRQBALANCE_BANNED_CPUS=0000000c\n", Some("2-3")),
            ("IRQBALANCE_BANNED_CPULIST=1\nIRQBALANCE_BANNED_CPULIST=3\n", Some("3")),
            ("IRQBALANCE_BANNED_CPULIST=many\n", None),
        ] {
            assert_eq!(banned_cpus(text), banned.map(|list| list.parse().unwrap()), "{text}");
        }
    }
}
