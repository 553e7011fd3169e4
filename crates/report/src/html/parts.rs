//! The parts of the page that are words: findings, steps, machine, state, commands, data.

use crate::text;
use maud::{Markup, html};
use quiet_judge::known;
use quiet_types::words;
use quiet_types::{
    Finding, Machine, Proof, Run, Severity,
    machine::Preemption,
    proof::{Arm, Setting, StepTaken},
    run::Host,
};
use std::collections::BTreeMap;

pub(crate) fn findings(findings: &[Finding]) -> Markup {
    html! {
        @if !findings.is_empty() {
            h2 { "Findings" }
            (finding_list(findings))
        }
    }
}

pub(super) fn finding_list(findings: &[Finding]) -> Markup {
    html! {
        ul.findings {
            @for finding in findings {
                @let severity = match finding.severity {
                    Severity::Note => "note",
                    Severity::Warning => "warning",
                    Severity::Problem => "problem",
                };
                li class=(severity) {
                    p.what { (finding.title) " " span.sev { "(" (severity) ")" } }
                    @for more in [&finding.evidence, &finding.effect, &finding.remedy] {
                        @if !more.is_empty() { p.more { (more) } }
                    }
                }
            }
        }
    }
}

/// A row of figures for each name, which stands first. On a phone each row is a card: no figure hides beyond the edge.
pub(crate) fn figures_table(heads: &[&str], rows: &[Vec<String>]) -> Markup {
    html! {
        div.box tabindex="0" {
            table.cards {
                thead { tr { @for (at, head) in heads.iter().enumerate() { th.n[at > 0] { (head) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (at, (head, cell)) in heads.iter().zip(row).enumerate() {
                                @if at == 0 { td.name { (cell) } } @else { td.n data-name=(head) { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What was done to the machine, and how it was left.
pub(super) fn applied(proof: &Proof) -> Markup {
    html! {
        h2 { "What was done to the machine" }
        @if let Some(shield) = &proof.shield {
            p {
                "Shielded: " (cpus(&shield.cpus)) ". Left to everybody else: " (cpus(&shield.housekeeping)) ". "
                @if let Some(mechanism) = shield.mechanism {
                    @let how = match mechanism {
                        quiet_types::shield::Mechanism::PartitionV2 => "an isolated cgroup v2 partition",
                        quiet_types::shield::Mechanism::SetsV1 => "cgroup v1 cpusets",
                        quiet_types::shield::Mechanism::Affinity => "plain affinity of every thread that may be moved",
                    };
                    "Others were kept off by " (how) "."
                }
            }
            (super::maps::cpus_and_irqs(&proof.machine, shield))
            @if !shield.steps.is_empty() { (steps(&shield.steps)) }
        } @else {
            p { "No shield was put up." }
        }
        p { (text::restored(proof)) }
    }
}

/// `CPU 3`, `CPUs 0-2`.
fn cpus(set: &quiet_types::CpuSet) -> String {
    format!("{} {set}", if set.len() == 1 { "CPU" } else { "CPUs" })
}

/// A path that may break after its slashes.
fn path(path: &str) -> Markup {
    html! { @for part in path.split_inclusive('/') { (part) wbr; } }
}

fn steps(steps: &[StepTaken]) -> Markup {
    let shown = |value: &str| if value.is_empty() { "–".to_owned() } else { value.to_owned() };
    html! {
        div.box tabindex="0" {
            table.steps {
                thead { tr { th { "what, and why" } th { "old" } th { "new" } th { "read back" } } }
                tbody {
                    @for step in steps {
                        tr {
                            td.path { (path(&step.what)) br; small { (step.why) } }
                            td.value { (shown(&step.old)) }
                            td.value { (shown(&step.new)) }
                            td.value {
                                @if !step.outcome.holds() { span.verdict.worse { "did not hold" } " – " }
                                (words::outcome(&step.outcome))
                            }
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn stress(
    shared: &BTreeMap<String, f64>,
    other: &BTreeMap<String, f64>,
    setting: Setting,
) -> Markup {
    html! {
        @if !shared.is_empty() || !other.is_empty() {
            h2 { "The stress meanwhile" }
            p.why { "Operations a second, medians over runs: what each stressor really did." }
            div.box tabindex="0" {
                table {
                    thead { tr {
                        th { "stressor" } th.n { "shared" } th.n { (setting) } th.n { "ratio" }
                    } }
                    tbody {
                        @for stressor in shared.keys().chain(other.keys().filter(|k| !shared.contains_key(*k))) {
                            @let (a, b) = (shared.get(stressor), other.get(stressor));
                            tr {
                                td { (stressor) }
                                @for rate in [a, b] {
                                    td.n { (rate.map_or("–".into(), |r| words::count(r.max(0.0).round() as u64))) }
                                }
                                td.n {
                                    @if let (Some(a), Some(b)) = (a, b) { (words::ratio(b / a.max(1e-9))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Every arm, in the order measured. Maxima stand here and are never judged.
pub(super) fn arms(proof: &Proof) -> Markup {
    html! {
        @if !proof.arms.is_empty() {
            h2 { "Every run" }
            p.why {
                "In the order measured. The largest reading is shown with its time and never judged: "
                "it is one event, often the host's, and the ratio of two of them is chance."
            }
            div.box tabindex="0" {
                table.cards {
                    thead { tr {
                        th.n { "pair" } th { "setting" } th.n { "p50" } th.n { "p99" } th.n { "p99.9" }
                        th.n { "max" } th.n { "beyond" } th.n { "missed" } th.n { "gap time" } th {}
                    } }
                    tbody { @for arm in &proof.arms { (arm_row(arm)) } }
                }
            }
        }
    }
}

fn arm_row(arm: &Arm) -> Markup {
    let run = &arm.wakeup;
    let all = run.readings();
    let stolen = arm.gap.as_ref().and_then(Run::share_stolen).map(words::share);
    let latest = run.threads.iter().max_by_key(|thread| thread.readings.max);
    html! {
        tr class=[arm.void.is_some().then_some("void")] {
            td.n data-name="pair" { (arm.pair + 1) }
            td { (arm.setting) }
            @for (q, name) in [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")] {
                td.n data-name=(name) { (all.percentile(q).map_or("–".to_owned(), |v| run.figure(v))) }
            }
            td.n data-name="max" {
                (all.max.map_or("–".to_owned(), |v| run.figure(v)))
                @if let Some(at) = latest.and_then(|thread| thread.max_at) { " " small { "at " (at) } }
            }
            td.n data-name="beyond" { (known::or_not(run.share_beyond(&all).map(words::share))) }
            td.n data-name="missed" { (known::or_not(run.missed().map(words::count))) }
            td.n data-name="gap time" { (stolen.unwrap_or_else(|| "–".to_owned())) }
            td { @if let Some(why) = &arm.void { "void: " (why) } }
        }
    }
}

pub(super) fn machine(machine: &Machine, host: &Host) -> Markup {
    let cores = machine.cores().len();
    let governors: std::collections::BTreeSet<&str> =
        machine.cpus.iter().filter_map(|cpu| cpu.governor.as_deref()).collect();
    let governors: Vec<&str> = governors.into_iter().collect();
    let preemption = match machine.kernel.preemption {
        Preemption::Unknown => "not told",
        Preemption::None => "none",
        Preemption::Voluntary => "voluntary",
        Preemption::Lazy => "lazy",
        Preemption::Full => "full",
        Preemption::Dynamic => "dynamic, mode not told",
        Preemption::Rt => "PREEMPT_RT",
    };
    html! {
        h2 { "The machine" }
        dl.facts {
            (fact("name", &host.name))
            (fact("processor", &machine.processor))
            (fact("board", machine.board.as_deref().unwrap_or_default()))
            (fact("hypervisor", machine.hypervisor.as_deref().unwrap_or("none seen")))
            (fact("CPUs", &format!("{} online, {cores} cores", machine.online)))
            (fact("isolated at boot", &machine.isolated.as_ref().map_or(String::new(), ToString::to_string)))
            (fact("nohz_full", &machine.nohz_full.as_ref().map_or(String::new(), ToString::to_string)))
            (fact("governor", &governors.join(", ")))
            (fact("clock source", machine.clock_sources.first().map_or("", String::as_str)))
            (fact("kernel", &format!("{} {}", machine.kernel.release, machine.kernel.version)))
            (fact("preemption", preemption))
            (fact("boot parameters", &machine.kernel.boot_parameters.join(" ")))
        }
    }
}

pub(crate) fn host(host: &Host) -> Markup {
    html! {
        h2 { "The machine" }
        dl.facts {
            (fact("name", &host.name))
            (fact("processor", &host.processor))
            (fact("hypervisor", host.hypervisor.as_deref().unwrap_or("none seen")))
            (fact("kernel", &format!("{} {} {}", host.release, host.version, host.arch)))
        }
    }
}

/// The clock that stamped a run, and the stress that ran.
pub(super) fn clock(run: &Run) -> Markup {
    if let Some(origin) = &run.origin {
        return html! {
            h2 { "The instrument" }
            dl.facts {
                (fact("tool", &origin.program))
                (fact("finest step", &origin.resolution.to_string()))
                (fact(if run.is_imported() { "clock, own noise, stress" } else { "own noise" }, known::NOT_KNOWN))
            }
        };
    }
    html! {
        h2 { "The instrument" }
        dl.facts {
            @if let Some(clock) = &run.clock {
                (fact("clock", &clock.source))
                (fact("rate", &format!("{} MHz", words::significant(clock.hertz / 1e6))))
                (fact("one read", &clock.read.to_string()))
                @if clock.step.0 > 0 {
                    (fact("finest step", &clock.step.to_string()))
                }
                (fact("own noise", &clock.floor.to_string()))
                @if !clock.why.is_empty() {
                    (fact("why this clock", &clock.why))
                }
                (fact("drift", &format!("{} ppm against CLOCK_MONOTONIC", words::significant(clock.drift_ppm))))
            }
            @if let Some(stress) = &run.stress {
                (fact("stress", &format!("{} on CPUs {}", stress.command.join(" "), stress.cpus)))
                @for one in &stress.throughput {
                    (fact(&one.stressor, &format!("{} operations a second", words::significant(one.per_second))))
                }
            }
        }
    }
}

fn fact(name: &str, value: &str) -> Markup {
    html! { @if !value.trim().is_empty() { dt { (name) } dd { (value) } } }
}

/// The settings that a run's figures depend on, as read back before and after it.
pub(super) fn state(run: &Run) -> Markup {
    let (before, after) = (&run.before.files, &run.after.files);
    let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let shown = |value: Option<&String>| value.cloned().unwrap_or_else(|| "absent".to_owned());
    html! {
        @if !keys.is_empty() {
            h2 { "The state, read back" }
            details {
                summary { (keys.len()) " settings that the figures depend on, before and after "
                    @if run.label.is_empty() { "the run" } @else { "the first run (" (run.label) ")" } }
                div.box tabindex="0" {
                    table {
                        thead { tr { th { "setting" } th { "before" } th { "after" } } }
                        tbody {
                            @for key in keys {
                                @let (old, new) = (before.get(key), after.get(key));
                                tr {
                                    td.path { (path(key)) }
                                    td.wrap { code { (shown(old)) } }
                                    td.wrap {
                                        @if old == new { "same" }
                                        @else { span.verdict.worse { code { (shown(new)) } } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn commands(commands: &[String]) -> Markup {
    html! {
        @if !commands.is_empty() {
            h2 { "Do it again" }
            pre tabindex="0" { code { @for line in commands { (line) "\n" } } }
        }
    }
}

pub(crate) fn data(id: &str) -> Markup {
    html! {
        h2 { "The data" }
        p {
            "Every reading's bucket, every setting and every run stand in this page as JSON. "
            a.screen id="download" hidden download=(format!("{id}.json")) { "Save it as a file" }
        }
        p.why { "Id " code { (id) } }
    }
}
