//! What the program says to who calls it without a verb.

use crate::{machine::preemption_words, text::wrap};
use quiet_types::{
    Finding, Machine, Plan, Severity, plan::ShieldStanding, printable, shield::Shield,
};
use std::{collections::HashSet, fmt::Write as _};

/// Columns that titles take.
const TITLES: usize = 12;

/// What is known when nothing was asked for.
pub struct Greeting<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// What stands in the way on it, greatest effect first.
    pub findings: &'a [Finding],
    /// The shield that would be put up; `None` where none can be.
    pub plan: Option<&'a Plan>,
    /// Whether one is up; `None` where that is not to be read.
    pub standing: Option<ShieldStanding>,
    /// The one that is up.
    pub shield: Option<&'a Shield>,
}

/// The machine, its shield, what stands in the way, and the next commands: a dozen lines.
pub fn greeting_text(it: &Greeting<'_>, width: usize) -> String {
    let mut out = String::new();
    let mut say = |title: &str, text: &str| {
        let text = wrap(text, width.saturating_sub(TITLES), 0);
        let mut lines = text.lines();
        let _ = writeln!(out, "{title:<TITLES$}{}", lines.next().unwrap_or_default());
        lines.for_each(|line| {
            let _ = writeln!(out, "{:TITLES$}{line}", "");
        });
    };
    say("Machine", &machine_line(it.machine));
    say("Kernel", &kernel_line(it.machine));
    say("Sound", &cards_line(it.machine));
    say("Shield", &shield_line(it));
    say("In the way", &findings_line(it.findings));
    out.push('\n');
    out += "Next:\n";
    for (command, what) in next(it) {
        let _ = writeln!(out, "  {:<28} {what}", format!("quietcores {command}"));
    }
    out
}

fn machine_line(machine: &Machine) -> String {
    let parts = [machine.board.as_deref().unwrap_or_default(), machine.processor.as_str()];
    let parts: Vec<String> =
        parts.iter().filter(|part| !part.is_empty()).map(|part| printable(part, 100)).collect();
    let cores: HashSet<_> = machine.cpus.iter().map(|cpu| (cpu.package, cpu.core)).collect();
    let known = machine.cpus.iter().all(|cpu| cpu.core.is_some());
    let cpus = counted(machine.online.len(), "CPU");
    let cores = match known && cores.len() != machine.online.len() {
        true => format!(" on {}", counted(cores.len(), "core")),
        false => String::new(),
    };
    let name = if parts.is_empty() { "unnamed".into() } else { parts.join(", ") };
    format!("{name}: {cpus}{cores}")
}

fn kernel_line(machine: &Machine) -> String {
    let guest = match machine.hypervisor {
        Some(_) => "; a virtual machine, whose host may take a CPU at any time",
        None => "",
    };
    let release = printable(&machine.kernel.release, 100);
    format!("Linux {release}, {}{guest}", preemption_words(machine.kernel.preemption))
}

fn cards_line(machine: &Machine) -> String {
    let cards = &machine.sound_cards;
    let named: Vec<String> =
        cards.iter().take(3).map(|card| printable(&card.description, 60)).collect();
    match cards.len() {
        0 => "no sound card".into(),
        all if all > named.len() => format!("{}, and {} more", named.join("; "), all - named.len()),
        _ => named.join("; "),
    }
}

fn shield_line(it: &Greeting<'_>) -> String {
    let could = match it.plan {
        Some(plan) => format!(
            "CPU {} could be the chain's own, by {}",
            plan.shield.cpus,
            counted(plan.steps.len(), "step")
        ),
        None => "no CPU can be spared here".into(),
    };
    match it.standing.map(|standing| (standing, it.shield)) {
        Some((ShieldStanding::Up, Some(up))) => format!("up: CPU {} is the chain's own", up.cpus),
        Some((ShieldStanding::Up, None)) => "up".into(),
        Some((ShieldStanding::Leftover, _)) => {
            "half up: an `apply` or `revert` did not come to its end".into()
        }
        Some((ShieldStanding::None | ShieldStanding::Rebooted, _)) => format!("none; {could}"),
        None => format!("not to be read by this user; {could}"),
    }
}

fn findings_line(findings: &[Finding]) -> String {
    let of = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let (problems, warnings) = (of(Severity::Problem), of(Severity::Warning));
    let worst = findings.iter().find(|finding| finding.severity >= Severity::Warning);
    match worst {
        None => "nothing that a look can see".into(),
        Some(worst) => format!(
            "{}, {}; the first: {}",
            counted(problems, "problem"),
            counted(warnings, "warning"),
            printable(&worst.title, 200)
        ),
    }
}

fn next(it: &Greeting<'_>) -> Vec<(&'static str, &'static str)> {
    let mut next = Vec::new();
    match it.standing {
        Some(ShieldStanding::Leftover) => next.push(("revert", "put the machine back")),
        Some(ShieldStanding::Up) => {
            next.push(("status", "the shield as it is"));
            next.push(("revert", "put the machine back"));
        }
        _ if it.plan.is_some() => {
            next.push(("setup", "answer some questions, and end with a proven chain"));
        }
        _ => {}
    }
    next.push(("doctor", "mend what stands in the way, one by one"));
    if it.plan.is_some() {
        next.push(("prove --for 1min", "measure whether a shield helps here, and put all back"));
    }
    next.push(("--help", "everything else"));
    next
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may

    use super::*;
    use quiet_types::shield::Mechanism;

    #[test]
    fn who_asks_for_nothing_reads_what_to_do_next() {
        let machine = Machine {
            processor: "A processor\u{1b}[31m".into(),
            online: "0-3".parse().unwrap(),
            ..Machine::default()
        };
        let up = Shield {
            cpus: "3".parse().unwrap(),
            housekeeping: "0-2".parse().unwrap(),
            mechanism: Mechanism::Affinity,
            entry: None,
        };
        let text = |standing: Option<ShieldStanding>| {
            let shield = (standing == Some(ShieldStanding::Up)).then_some(&up);
            let it = Greeting { machine: &machine, findings: &[], plan: None, standing, shield };
            greeting_text(&it, 80)
        };
        let none = text(Some(ShieldStanding::None));
        assert!(none.contains("none; no CPU can be spared here"), "{none}");
        assert!(!none.contains('\u{1b}'), "{none}");
        assert!(none.contains("4 CPUs"), "{none}");
        let up = text(Some(ShieldStanding::Up));
        assert!(up.contains("CPU 3 is the chain's own"), "{up}");
        assert!(up.contains("quietcores revert"), "{up}");
        let half = text(Some(ShieldStanding::Leftover));
        assert!(half.contains("did not come to its end"), "{half}");
        assert!(text(None).contains("not to be read"), "{}", text(None));
        assert!(none.lines().all(|line| line.len() <= 80), "{none}");
    }
}
