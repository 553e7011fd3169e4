//! A plan, what became of it, and the shield as it is: as text.

mod brief;

pub use brief::plan_brief;
use quiet_types::{
    Finding, Plan, Severity,
    plan::{
        Action, Applied, Awaited, EvlThread, Need, Outcome, Resident, ResidentKind, Return,
        Reverted, ShieldStanding, Status, Step,
    },
    printable,
    shield::{Mechanism, Shield},
};
use std::fmt::Write;

/// More lines of one kind than this are counted, not told.
const TOLD: usize = 16;

/// The steps of a plan, old and new, and why each.
pub fn plan_text(plan: &Plan) -> String {
    let mut out = head(&plan.shield, plan.chain.as_deref());
    for reason in &plan.reasons {
        line(&mut out, &format!("  {}", clean(reason)));
    }
    line(&mut out, "");
    line(&mut out, &format!("{} steps, in this order; `revert` undoes them:", plan.steps.len()));
    let mut at = 0;
    while at < plan.steps.len() {
        let step = &plan.steps[at];
        let alike = plan.steps[at..].iter().take_while(|next| is_alike(step, next)).count();
        if alike > 1 {
            irq_steps(&mut out, at, &plan.steps[at..at + alike]);
        } else {
            one_step(&mut out, at, step);
        }
        at += alike.max(1);
    }
    findings(&mut out, &plan.findings);
    out
}

fn one_step(out: &mut String, at: usize, step: &Step) {
    line(out, &format!("{:3}. {}", at + 1, clean(&step.action.what())));
    let old = step.old.as_deref().unwrap_or("(read when it is done)");
    line(out, &format!("       {} -> {}", clean(old), clean(&step.action.new_value())));
    if let Action::Group { narrow, .. } = &step.action {
        for one in narrow {
            let (path, old, value) = (clean(&one.path), clean(&one.old), clean(&one.value));
            line(
                out,
                &format!("       only where the kernel refuses it beside: {path} {old} -> {value}"),
            );
        }
    }
    let need = match step.need {
        Need::Essential => "; without it nothing is done",
        Need::BestEffort => "",
    };
    line(out, &format!("       {}{need}", clean(&step.why)));
    line(out, &format!("       verified: {}", step.action.verified_by()));
}

/// Interrupts that go the same way for the same reason are told together.
fn is_alike(step: &Step, next: &Step) -> bool {
    let (Action::Irq { cpus: a, .. }, Action::Irq { cpus: b, .. }) = (&step.action, &next.action)
    else {
        return false;
    };
    a == b && step.why == next.why
}

fn irq_steps(out: &mut String, at: usize, steps: &[Step]) {
    let (first, last) = (at + 1, at + steps.len());
    let new = steps[0].action.new_value();
    line(out, &format!("{first:3}. to {last}: {} interrupts -> {new}", steps.len()));
    for step in steps {
        let old = step.old.as_deref().unwrap_or("(read when it is done)");
        line(out, &format!("       {}: {}", clean(&step.action.what()), clean(old)));
    }
    line(out, &format!("       {}", clean(&steps[0].why)));
    line(out, &format!("       verified: {}", steps[0].action.verified_by()));
}

/// What became of every step, and what may still run on the shield.
pub fn applied_text(applied: &Applied) -> String {
    let mut out = String::new();
    let done = applied.steps.iter().filter(|taken| taken.outcome.holds()).count();
    let all = applied.steps.len();
    let but = if applied.chain.is_empty() { "" } else { " The chain is not where it should be." };
    line(&mut out, &format!("{} is up: {done} of {all} steps hold.{but}", shield(&applied.shield)));
    let mut pending = Vec::new();
    for taken in &applied.steps {
        if let (Action::Irq { number, .. }, Outcome::Pending { .. }) =
            (&taken.step.action, &taken.outcome)
        {
            pending.push(number.to_string());
        } else if let Some(text) = outcome(&taken.step, &taken.outcome) {
            line(&mut out, &format!("  {text}"));
        }
    }
    if !pending.is_empty() {
        line(
            &mut out,
            &format!("  accepted, and moved when they next fire: IRQs {}", pending.join(", ")),
        );
    }
    residents(&mut out, &applied.residents);
    // What stands as a finding of the plan already is not said twice.
    let news = applied.chain.iter().filter(|finding| !applied.findings.contains(finding));
    findings(&mut out, &news.cloned().collect::<Vec<_>>());
    findings(&mut out, &applied.findings);
    line(&mut out, "");
    line(&mut out, "`quietcores status` shows it; `quietcores revert` puts the machine back.");
    out
}

/// What a step came to, where that is more than "done".
fn outcome(step: &Step, outcome: &Outcome) -> Option<String> {
    let what = clean(&step.action.what());
    Some(match outcome {
        Outcome::Done { .. } | Outcome::Already => return None,
        Outcome::Pending { seen } => format!("accepted, not yet so: {what}: {}", clean(seen)),
        Outcome::Partly { seen, refused } => {
            format!("in part: {what}: {}; not: {}", clean(seen), clean(&refused.join("; ")))
        }
        Outcome::Refused { reason } => format!("refused: {what}: {}", clean(reason)),
        Outcome::Ignored { seen } => {
            format!("accepted and ignored: {what}: it still is {}", clean(seen))
        }
        Outcome::Absent => format!("not there: {what}"),
    })
}

/// What was put back, and what was not.
pub fn reverted_text(done: &Reverted) -> String {
    let mut out = String::new();
    let count = |test: fn(&Return) -> bool| done.items.iter().filter(|i| test(&i.outcome)).count();
    let restored = count(|r| matches!(r, Return::Restored));
    if done.rebooted {
        line(
            &mut out,
            "The journal was of an earlier boot: its changes went with the reboot. It is closed.",
        );
        let files = match restored {
            0 => String::new(),
            1 => "A setting in a file had outlived it, and was put back.".into(),
            _ => format!("{restored} settings in files had outlived it, and were put back."),
        };
        if !files.is_empty() {
            line(&mut out, &files);
        }
    }
    if done.is_exact() && !done.rebooted {
        line(
            &mut out,
            &format!(
                "The machine is as it was before: {restored} changes put back, each compared with \
                 the old value."
            ),
        );
    } else if !done.rebooted {
        line(&mut out, &format!("{restored} changes put back; not all:"));
    }
    for item in &done.items {
        let what = clean(&item.what);
        match &item.outcome {
            Return::Restored | Return::Untouched => {}
            Return::Left { now } => line(
                &mut out,
                &format!("  changed since by somebody else, left: {what}: {}", clean(now)),
            ),
            Return::Gone => line(&mut out, &format!("  not there any more: {what}")),
            Return::Refused { reason } => {
                line(&mut out, &format!("  refused: {what}: {}", clean(reason)));
            }
        }
    }
    if !done.is_complete() {
        line(&mut out, "The journal is kept: remove the cause and run `quietcores revert` again.");
    }
    if let Some(history) = &done.history {
        line(&mut out, &format!("The journal is closed: {}.", clean(history)));
    }
    out
}

/// The shield as it is.
pub fn status_text(status: &Status) -> String {
    let mut out = String::new();
    let since = status.since.as_deref().unwrap_or("an unknown time");
    match (status.state, &status.shield) {
        (ShieldStanding::None, _) => {
            line(&mut out, "No shield is up, and nothing is left of an earlier one.");
            beside(&mut out, status);
            return out;
        }
        (ShieldStanding::Rebooted, _) => {
            line(
                &mut out,
                "A shield of an earlier boot: it went with the reboot. `quietcores revert` closes \
                 its journal.",
            );
            beside(&mut out, status);
            return out;
        }
        (ShieldStanding::Leftover, _) => line(
            &mut out,
            &format!(
                "An apply or revert begun at {since} did not come to its end: run `quietcores \
                 revert`, it puts the machine back."
            ),
        ),
        (ShieldStanding::Up, Some(up)) => {
            line(&mut out, &format!("{} is up since {since}.", shield(up)));
            if let Some(by) = &status.by {
                line(&mut out, &format!("It was put up by {by}."));
            }
            match (status.chain.len(), status.links.len()) {
                (_, 0) => {}
                (0, 1) => line(&mut out, "The chain's one link is where it should be."),
                (0, links) => line(
                    &mut out,
                    &format!("All {links} links of the chain are where they should be."),
                ),
                _ => line(&mut out, "The chain is not where it should be: see below."),
            }
        }
        (ShieldStanding::Up, None) => line(&mut out, &format!("A shield is up since {since}.")),
    }
    match status.holder {
        Some(pid) => line(&mut out, &format!("Process {pid} holds /dev/cpu_dma_latency at 0 us.")),
        None => line(&mut out, "Nobody holds /dev/cpu_dma_latency."),
    }
    match status.confirm {
        Some(Awaited { seconds, guard: Some(guard) }) => line(
            &mut out,
            &format!(
                "Process {guard} puts the machine back {seconds} s after it was put up: \
                 `quietcores confirm` keeps it."
            ),
        ),
        Some(Awaited { guard: None, .. }) => line(
            &mut out,
            "It was not confirmed, and the process that was to put the machine back is gone: run \
             `quietcores revert`.",
        ),
        None => {}
    }
    if let Some(loan) = &status.loan {
        line(&mut out, &crate::loan::loan_text(loan));
    }
    if !status.drift.is_empty() {
        line(&mut out, "Changed since:");
        for drift in status.drift.iter().take(TOLD) {
            let now = drift.now.as_deref().unwrap_or("gone");
            line(
                &mut out,
                &format!("  {}: {} -> {}", clean(&drift.what), clean(&drift.ours), clean(now)),
            );
        }
        more(&mut out, status.drift.len());
    }
    if !status.refused.is_empty() {
        line(&mut out, "Not taken when it was put up:");
        for text in status.refused.iter().take(TOLD) {
            line(&mut out, &format!("  {}", clean(text)));
        }
        more(&mut out, status.refused.len());
    }
    residents(&mut out, &status.residents);
    beside(&mut out, status);
    findings(&mut out, &status.chain);
    out
}

/// What is there with or without a shield.
fn beside(out: &mut String, status: &Status) {
    if let Some(card) = &status.card {
        let address = clean(&card.address);
        let driver = match &card.driver {
            Some(driver) => format!("{} gets it back", clean(driver)),
            None => "no driver had it".to_owned(),
        };
        line(
            out,
            &match card.process {
                Some(pid) => format!(
                    "Process {pid} plays on the sound card {address} without the kernel: {driver} when it ends."
                ),
                None => format!(
                    "A killed `play --host hda` has left the sound card {address}: `quietcores revert` puts it back ({driver})."
                ),
            },
        );
    }
    evl(out, &status.evl);
    if !status.traces.is_empty() {
        line(out, "Traces that killed programs have left on (`quietcores revert` removes them):");
        for name in status.traces.iter().take(TOLD) {
            line(out, &format!("  {}", clean(name)));
        }
        more(out, status.traces.len());
    }
}

fn evl(out: &mut String, threads: &[EvlThread]) {
    if threads.is_empty() {
        return;
    }
    line(out, "Threads of the EVL core:");
    for one in threads.iter().take(TOLD) {
        let stage = if one.in_band { "in-band (Linux runs it)" } else { "out-of-band" };
        let switches = match one.switches {
            Some(1) => ", once over to Linux".to_owned(),
            Some(times) => format!(", {times} times over to Linux"),
            None => String::new(),
        };
        line(
            out,
            &format!(
                "  CPU {}: thread {} ({}), {} {}: {stage}{switches}",
                one.cpu,
                one.tid,
                clean(&one.name),
                clean(&one.class),
                one.priority
            ),
        );
    }
    more(out, threads.len());
}

fn head(up: &Shield, chain: Option<&str>) -> String {
    let mut out = String::new();
    let chain = chain.map(|name| format!(" for chain `{}`", clean(name))).unwrap_or_default();
    line(&mut out, &format!("Plan{chain}: {}.", shield(up)));
    out
}

fn shield(shield: &Shield) -> String {
    if shield.cpus.is_empty() {
        return "A set of single settings (no CPU is shielded)".into();
    }
    let by = match shield.mechanism {
        Mechanism::PartitionV2 => "a partition of cgroup v2",
        Mechanism::SetsV1 => "cpusets of cgroup v1",
        Mechanism::Affinity => "the affinity of threads",
    };
    format!("A shield of CPU {} by {by}, housekeeping on CPU {}", shield.cpus, shield.housekeeping)
}

fn residents(out: &mut String, found: &[Resident]) {
    for (kind, title) in [
        (ResidentKind::Chain, "On the shield, as planned:"),
        (ResidentKind::Foreign, "On the shield, and should not be:"),
        (ResidentKind::Irq, "Interrupts that are still delivered to the shield:"),
        (
            ResidentKind::Kernel,
            "Kernel threads that may still run on the shield (`quietcores watch` moves what came since):",
        ),
    ] {
        let (silent, these): (Vec<&Resident>, Vec<&Resident>) = found
            .iter()
            .filter(|r| r.kind == kind)
            .partition(|r| kind == ResidentKind::Irq && r.since == Some(0));
        if !silent.is_empty() {
            let numbers: Vec<String> = silent.iter().map(|r| r.number.to_string()).collect();
            line(
                out,
                &format!(
                    "{} interrupts would still be delivered to the shield, and have not fired \
                     since: {}",
                    silent.len(),
                    numbers.join(", ")
                ),
            );
        }
        if these.is_empty() {
            continue;
        }
        line(out, title);
        for one in these.iter().take(TOLD) {
            let since = one.since.map(|n| format!(", {n} times since")).unwrap_or_default();
            // Only interrupts are counted.
            let is_irq = kind == ResidentKind::Irq || one.since.is_some();
            let who = if is_irq { "IRQ" } else { "thread" };
            line(
                out,
                &format!(
                    "  CPU {}: {who} {} ({}){since}: {}",
                    one.cpus,
                    one.number,
                    clean(&one.name),
                    clean(&one.why)
                ),
            );
        }
        more(out, these.len());
    }
    let fixed: Vec<&Resident> = found.iter().filter(|r| r.kind == ResidentKind::Fixed).collect();
    if !fixed.is_empty() {
        let names: Vec<String> = fixed.iter().take(TOLD).map(|r| clean(&r.name)).collect();
        let rest = if fixed.len() > TOLD { " ..." } else { "" };
        line(
            out,
            &format!(
                "{} kernel threads cannot leave the shield: {}{rest}",
                fixed.len(),
                names.join(", ")
            ),
        );
    }
}

fn findings(out: &mut String, findings: &[Finding]) {
    for finding in findings {
        let severity = match finding.severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Problem => "problem",
        };
        line(out, "");
        line(out, &format!("{severity}: {}", clean(&finding.title)));
        for text in [&finding.evidence, &finding.effect, &finding.remedy] {
            if !text.is_empty() {
                line(out, &format!("  {}", clean(text)));
            }
        }
    }
}

fn more(out: &mut String, all: usize) {
    if all > TOLD {
        line(out, &format!("  and {} more", all - TOLD));
    }
}

fn line(out: &mut String, text: &str) {
    // Writing to a String does not fail.
    let _ = writeln!(out, "{text}");
}

fn clean(text: &str) -> String {
    printable(text, 400)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::{
        CpuSet,
        plan::{APPLIED_SCHEMA, PLAN_SCHEMA, PutBack, REVERTED_SCHEMA, Taken},
    };

    fn cpus(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    pub(super) fn example() -> Plan {
        let irq = |number, old: &str| Step {
            action: Action::Irq { number, name: format!("dev{number}"), cpus: cpus("0") },
            old: Some(old.into()),
            why: "its handler runs off the shield".into(),
            need: Need::BestEffort,
        };
        Plan {
            schema: PLAN_SCHEMA.into(),
            chain: Some("living\u{1b}[31m room".into()),
            mode: Default::default(),
            shield: Shield {
                cpus: cpus("1"),
                housekeeping: cpus("0"),
                mechanism: Mechanism::SetsV1,
                entry: None,
            },
            links: Vec::new(),
            reasons: vec!["CPU 1 to be shielded: asked for.".into()],
            steps: vec![irq(24, "CPU 0-1, delivered to CPU 1"), irq(25, "CPU 0-1")],
            findings: vec![Finding::new(Severity::Note, "plan.guards-stay", "a guard stays")],
        }
    }

    #[test]
    fn a_plan_tells_every_interrupt_with_its_old_value_and_no_escape_sequence() {
        let text = plan_text(&example());
        assert!(text.contains("  1. to 2: 2 interrupts -> CPU 0\n"), "{text}");
        assert!(text.contains("IRQ 24 (dev24): CPU 0-1, delivered to CPU 1\n"), "{text}");
        assert!(text.contains("note: a guard stays"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn a_refused_step_is_named_with_the_reason_and_not_counted() {
        let plan = example();
        let outcomes = [
            Outcome::Refused { reason: "the kernel keeps it where it is".into() },
            Outcome::Done { seen: "CPU 0".into() },
        ];
        let steps = plan.steps.iter().cloned().zip(outcomes);
        let applied = Applied {
            schema: APPLIED_SCHEMA.into(),
            shield: plan.shield.clone(),
            steps: steps.map(|(step, outcome)| Taken { step, outcome }).collect(),
            residents: Vec::new(),
            chain: Vec::new(),
            findings: Vec::new(),
        };
        let text = applied_text(&applied);
        assert!(text.contains("is up: 1 of 2 steps hold"), "{text}");
        assert!(
            text.contains("refused: IRQ 24 (dev24): the kernel keeps it where it is"),
            "{text}"
        );
    }

    #[test]
    fn a_revert_that_is_not_exact_does_not_say_that_it_is() {
        let mut done = Reverted {
            schema: REVERTED_SCHEMA.into(),
            rebooted: false,
            items: vec![PutBack { what: "IRQ 24".into(), outcome: Return::Restored }],
            history: None,
        };
        assert!(reverted_text(&done).contains("The machine is as it was before"));
        let now = "CPU 1".into();
        done.items.push(PutBack { what: "IRQ 25".into(), outcome: Return::Left { now } });
        let text = reverted_text(&done);
        assert!(!text.contains("as it was before"), "{text}");
        assert!(text.contains("changed since by somebody else, left: IRQ 25: CPU 1"), "{text}");
    }
}
