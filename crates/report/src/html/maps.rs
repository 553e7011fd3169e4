//! Who may be on which CPU, before and after: a map of threads and interrupts.

use maud::{Markup, html};
use quiet_types::{
    CpuId, CpuSet, Machine,
    proof::{ShieldMade, StepTaken},
};

/// More CPUs than this make no map that can be read.
const MOST_CPUS: usize = 64;
/// Most interrupts on it.
const MOST_ROWS: usize = 48;

/// A row: who, where before, where after, and whether it held.
struct Row {
    name: String,
    before: CpuSet,
    after: CpuSet,
    holds: bool,
}

/// The map of a shield that was up; nothing where it changed nothing that can be drawn.
pub(super) fn cpus_and_irqs(machine: &Machine, shield: &ShieldMade) -> Markup {
    let online = &machine.online;
    let moved: Vec<Row> = shield.steps.iter().filter_map(irq).collect();
    if online.is_empty() || online.len() > MOST_CPUS {
        return html! {};
    }
    let left_out = moved.len().saturating_sub(MOST_ROWS);
    let rest = Row {
        name: "everybody else's threads".into(),
        before: online.clone(),
        after: shield.housekeeping.clone(),
        holds: true,
    };
    let chain = Row {
        name: "the chain".into(),
        before: online.clone(),
        after: shield.cpus.clone(),
        holds: true,
    };
    html! {
        h3 { "Who may be where" }
        div.box tabindex="0" {
            table.map {
                thead { tr {
                    th scope="col" { "" }
                    @for cpu in online.iter() {
                        th.n scope="col" .b[shield.cpus.contains(cpu)] { (cpu) }
                    }
                } }
                tbody {
                    (row(&chain, online)) (row(&rest, online))
                    @for one in moved.iter().take(MOST_ROWS) { (row(one, online)) }
                }
            }
        }
        @if left_out > 0 { p.why { (left_out) " more interrupts stand in the table below." } }
        p.why {
            "○ before, ● after the shield was up, ◉ both; - never. Columns are CPUs; those of the shield stand out. "
            "An interrupt that the kernel did not let move is struck out."
        }
    }
}

fn row(row: &Row, online: &CpuSet) -> Markup {
    html! {
        tr .void[!row.holds] {
            th scope="row" { (row.name) }
            @for cpu in online.iter() { td.n { (sign(row, cpu)) } }
        }
    }
}

fn sign(row: &Row, cpu: CpuId) -> Markup {
    let (mark, said) = match (row.before.contains(cpu), row.after.contains(cpu)) {
        (true, true) => ("◉", "before and after"),
        (true, false) => ("○", "before"),
        (false, true) => ("●", "after"),
        (false, false) => ("-", "never"),
    };
    html! { span aria-label=(said) title=(said) { (mark) } }
}

/// A step that moved an interrupt: its old value is the kernel's list, its new one `CPU 0-2`.
fn irq(step: &StepTaken) -> Option<Row> {
    step.what.strip_prefix("IRQ ").filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))?;
    let set = |text: &str| text.trim().trim_start_matches("CPU ").trim().parse::<CpuSet>().ok();
    let (before, asked) = (set(&step.old)?, set(&step.new)?);
    let holds = step.outcome.holds();
    let after = if holds { asked } else { before.clone() };
    Some(Row { name: quiet_types::printable(&step.what, 40), before, after, holds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::plan::Outcome;

    #[test]
    fn a_moved_interrupt_has_its_cpus_before_and_after() {
        let step = |what: &str, old: &str, new: &str| StepTaken {
            what: what.into(),
            old: old.into(),
            new: new.into(),
            why: String::new(),
            outcome: Outcome::Already,
        };
        let row = irq(&step("IRQ 24 (nvme <0>)", "0-3", "CPU 0-2")).unwrap();
        assert_eq!((row.before.to_string(), row.after.to_string()), ("0-3".into(), "0-2".into()));
        assert!(irq(&step("/proc/sys/kernel/x", "0", "1")).is_none());
        assert!(irq(&step("IRQ 24", "not there", "CPU 0")).is_none());
        let drawn = super::row(&row, &"0-3".parse().unwrap()).into_string();
        assert_eq!(drawn.matches('◉').count(), 3, "{drawn}");
        assert_eq!(drawn.matches('○').count(), 1, "{drawn}");
        assert!(!drawn.contains("<0>"), "{drawn}");
    }
}
