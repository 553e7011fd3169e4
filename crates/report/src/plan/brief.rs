//! A plan at a glance: who gets which CPU, and what kinds of steps lead there.

use super::{clean, head, line};
use crate::text::wrap;
use quiet_types::{
    Plan, Severity,
    plan::{Action, Step},
};
use std::collections::BTreeSet;

/// More CPUs than this are not drawn one by one.
const DRAWN: usize = 32;
/// Names of this many settings stand in the line of their kind.
const NAMED: usize = 3;

/// Steps that belong together for whoever reads, in the order in which they are shown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sort {
    Fence,
    Interrupts,
    ChainInterrupts,
    Chain,
    Idle,
    Settings,
    Files,
}

const SORTS: [Sort; 7] = [
    Sort::Fence,
    Sort::Interrupts,
    Sort::ChainInterrupts,
    Sort::Chain,
    Sort::Idle,
    Sort::Settings,
    Sort::Files,
];

/// The plan in a dozen lines of at most `width` columns: a map of the CPUs, how many steps of which kind, what stands in the way.
/// [`plan_text`](super::plan_text) has every step.
pub fn plan_brief(plan: &Plan, width: usize) -> String {
    let mut out = String::new();
    line(&mut out, &wrap(&head(&plan.shield, plan.chain.as_deref()), width, 2));
    if let Some(map) = map(plan, width) {
        line(&mut out, &map);
    }
    line(&mut out, "");
    line(&mut out, &format!("{} steps, which `revert` undoes:", plan.steps.len()));
    for sort in SORTS {
        let steps: Vec<&Step> =
            plan.steps.iter().filter(|step| sort_of(plan, step) == sort).collect();
        if !steps.is_empty() {
            let said = format!("{:5}  {}", steps.len(), told(plan, sort, &steps));
            // The count's blanks are not words.
            let said = wrap(said.trim_start(), width.saturating_sub(INDENT), 0);
            let first = INDENT - format!("{}  ", steps.len()).len();
            let rest = format!("\n{}", " ".repeat(INDENT));
            let said = said.replacen(' ', "  ", 1).replace('\n', &rest);
            line(&mut out, &format!("{}{said}", " ".repeat(first)));
        }
    }
    standing(&mut out, plan, width);
    out
}

/// Where the words of a kind begin.
const INDENT: usize = 7;

/// `CPUs  0   1  [2] [3]`: in brackets the chain's.
fn map(plan: &Plan, width: usize) -> Option<String> {
    const TITLE: &str = "CPUs ";
    let up = &plan.shield;
    let all: BTreeSet<_> = up.cpus.iter().chain(up.housekeeping.iter()).collect();
    if up.cpus.is_empty() || all.len() > DRAWN {
        return None;
    }
    let digits = all.last().map_or(1, |cpu| cpu.to_string().len());
    let (mut map, mut used) = (String::from(TITLE), TITLE.len());
    let mut put = |cell: &str| {
        let length = cell.chars().count();
        if used + length > width {
            map.push_str(&format!("\n{}", " ".repeat(TITLE.len())));
            used = TITLE.len();
        }
        map.push_str(cell);
        used += length;
    };
    for cpu in all {
        let (open, close) = if up.cpus.contains(cpu) { ('[', ']') } else { (' ', ' ') };
        put(&format!("{open}{:>digits$}{close}", cpu.to_string()));
    }
    put("  in brackets: the chain's alone");
    Some(map)
}

fn sort_of(plan: &Plan, step: &Step) -> Sort {
    match &step.action {
        Action::Group { .. } | Action::MoveTasks { .. } | Action::Confine { .. } => Sort::Fence,
        Action::Write { path, .. } if path.contains("/cgroup") => Sort::Fence,
        Action::Write { path, .. }
            if ["pm_qos", "cpuidle", "cpufreq", "power/"]
                .iter()
                .any(|part| path.contains(part)) =>
        {
            Sort::Idle
        }
        Action::HoldLatency => Sort::Idle,
        Action::Write { .. } => Sort::Settings,
        Action::Irq { cpus, .. } if cpus.iter().any(|cpu| plan.shield.cpus.contains(cpu)) => {
            Sort::ChainInterrupts
        }
        Action::Irq { .. } => Sort::Interrupts,
        Action::Enter { .. } | Action::Pin { .. } | Action::Schedule { .. } => Sort::Chain,
        Action::Assign { .. } | Action::Ban { .. } | Action::DropIn { .. } => Sort::Files,
    }
}

fn told(plan: &Plan, sort: Sort, steps: &[&Step]) -> String {
    let up = &plan.shield;
    match sort {
        Sort::Fence => format!("everybody but the chain leaves CPU {}", up.cpus),
        Sort::Interrupts => format!("interrupts of others go to CPU {}", up.housekeeping),
        Sort::ChainInterrupts => format!("interrupts of the chain go to CPU {}", up.cpus),
        Sort::Chain => {
            let who: BTreeSet<u32> = steps.iter().filter_map(|step| thread(&step.action)).collect();
            let ranked = steps.iter().any(|step| matches!(step.action, Action::Schedule { .. }));
            let what = if ranked { "their CPU and priority" } else { "their CPU" };
            format!("{} threads of the chain get {what}", who.len())
        }
        Sort::Idle => "idle states and frequencies: the CPU wakes up at once".into(),
        Sort::Settings => format!("settings of the kernel: {}", names(steps)),
        Sort::Files => format!("files that outlive a reboot, and daemons: {}", names(steps)),
    }
}

fn thread(action: &Action) -> Option<u32> {
    match action {
        Action::Enter { thread, .. }
        | Action::Pin { thread, .. }
        | Action::Schedule { thread, .. } => Some(thread.tid),
        _ => None,
    }
}

/// The last parts of what is changed, the first few of them.
fn names(steps: &[&Step]) -> String {
    let mut names: Vec<String> = Vec::new();
    for step in steps {
        let what = step.action.what();
        let name = clean(what.rsplit('/').next().unwrap_or(&what));
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", names.join(", "))
}

/// What the steps cannot do: problems and warnings with their remedy, notes by their number.
fn standing(out: &mut String, plan: &Plan, width: usize) {
    let (notes, grave): (Vec<_>, Vec<_>) =
        plan.findings.iter().partition(|finding| finding.severity == Severity::Note);
    if !grave.is_empty() {
        line(out, "");
    }
    for finding in grave {
        let severity = crate::severity_word(finding.severity);
        let remedy = match finding.remedy.is_empty() {
            true => String::new(),
            false => format!(": {}", finding.remedy),
        };
        let said = clean(&format!("{severity}: {}{remedy}", finding.title));
        line(out, &wrap(&said, width, 2));
    }
    let notes = match notes.len() {
        0 => String::new(),
        1 => ", and 1 note".into(),
        many => format!(", and {many} notes"),
    };
    line(out, "");
    line(
        out,
        &wrap(
            &format!("--verbose shows each step with its old value and reason{notes}."),
            width,
            0,
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::{super::tests::example, plan_brief};
    use quiet_types::CpuSet;

    #[test]
    fn a_plan_is_a_dozen_lines_that_fit_with_every_step_counted_once() {
        let plan = example();
        let text = plan_brief(&plan, 60);
        assert!(text.contains("CPUs  0 [1]  in brackets"), "{text}");
        assert!(text.contains("2 steps, which `revert` undoes:"), "{text}");
        assert!(text.contains("\n    2  interrupts of others go to CPU 0\n"), "{text}");
        assert!(text.contains("1 note."), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }

    #[test]
    fn a_machine_of_many_cpus_is_not_drawn_cpu_by_cpu() {
        let mut plan = example();
        plan.shield.housekeeping = "2-511".parse::<CpuSet>().unwrap();
        let text = plan_brief(&plan, 80);
        assert!(!text.contains("CPUs "), "{text}");
        assert!(text.contains("housekeeping on CPU 2-511"), "{text}");
    }
}
