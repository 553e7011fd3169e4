//! What to know about a run: settings refused, state changed, noise above the figures.

use crate::{request::name, run::expected};
use quiet_types::{
    Finding, Nanos, Severity,
    machine::Policy,
    run::{Probe, Run, Thread},
};

/// Findings beyond those that the threads made themselves.
pub(crate) fn judge(run: &Run) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(state_changed(run));
    findings.extend(missed(run));
    findings.extend(below_floor(run));
    findings.extend(run.threads.iter().filter_map(|t| throttled(run, t)));
    findings.extend(drift(run));
    if run.interrupted {
        let asked = match expected(&run.spec) {
            Some(n) => format!("{n} periods a thread were asked for"),
            None => format!("{} were asked for", run.spec.length),
        };
        findings.push(
            Finding::new(Severity::Note, "run.interrupted", "The run ended before its time")
                .evidence(format!("It lasted {}; {asked}.", run.lasted)),
        );
    }
    findings
}

fn state_changed(run: &Run) -> Option<Finding> {
    let (before, after) = (&run.before.files, &run.after.files);
    let mut changed: Vec<&String> = before.keys().chain(after.keys()).collect();
    changed.sort_unstable();
    changed.dedup();
    changed.retain(|path| before.get(*path) != after.get(*path));
    if changed.is_empty() {
        return None;
    }
    let show = |value: Option<&String>| match value {
        Some(text) => format!("`{}`", quiet_types::printable(text, 60)),
        None => "nothing".to_owned(),
    };
    let shown: Vec<String> = changed
        .iter()
        .take(5)
        .map(|path| {
            format!("/{path}: {} became {}", show(before.get(*path)), show(after.get(*path)))
        })
        .collect();
    let title = match changed.len() {
        1 => "A setting changed during the run".to_owned(),
        n => format!("{n} settings changed during the run"),
    };
    Some(
        Finding::new(Severity::Problem, "run.state_changed", title)
            .evidence(shown.join("; "))
            .effect("The figures are of two machines in one.")
            .remedy("Find who changes it (irqbalance, a tuning daemon), then measure again."),
    )
}

fn missed(run: &Run) -> Option<Finding> {
    let missed = run.missed();
    if missed == 0 {
        return None;
    }
    let due: u64 = run.threads.iter().map(|t| t.expected).sum();
    let share = missed as f64 / due.max(1) as f64 * 100.0;
    let worst = run.threads.iter().flat_map(|t| &t.worst).max_by_key(|r| r.missed);
    let longest = worst.map_or(String::new(), |r| {
        format!(" The longest stall, {} at {}, cost {}.", r.value, r.at, r.missed)
    });
    Some(
        Finding::new(
            Severity::Warning,
            "run.missed",
            format!("{missed} of {due} periods were missed"),
        )
        .evidence(format!(
            "{share:.2} % of the periods expired while the thread was still late.{longest}"
        ))
        .effect("For audio, a missed period is a drop-out unless the buffer covers it."),
    )
}

/// A figure below the instrument's own noise says nothing about the machine.
fn below_floor(run: &Run) -> Option<Finding> {
    let floor = run.clock.floor;
    let all = run.readings();
    let figures = [
        ("min", all.min),
        ("p50", all.percentile(0.5)),
        ("p99", all.percentile(0.99)),
        ("p99.9", all.percentile(0.999)),
    ];
    let below: Vec<&str> =
        figures.iter().filter(|f| f.1.is_some_and(|v| v <= floor)).map(|f| f.0).collect();
    if below.is_empty() {
        return None;
    }
    let title = format!("{} lie at or below the instrument's own noise", below.join(", "));
    Some(
        Finding::new(Severity::Note, "run.floor", title)
            .evidence(format!("One turn of the measuring loop alone takes {floor}."))
            .effect("They say how fast the loop is, not how quiet the machine is."),
    )
}

/// The time that the kernel keeps for ordinary tasks, seen as stalls of a spinning thread.
fn throttled(run: &Run, thread: &Thread) -> Option<Finding> {
    let real_time = matches!(thread.scheduling.policy, Policy::Fifo | Policy::Rr);
    if run.spec.probe != Probe::Gap || !real_time {
        return None;
    }
    let like = Nanos::from_millis(40)..Nanos::from_millis(120);
    let seen: Vec<_> = thread.worst.iter().filter(|r| like.contains(&r.value)).collect();
    let (Some(largest), Some(least)) = (seen.first(), seen.last()) else { return None };
    let seconds = run.lasted.as_secs_f64().max(1e-3);
    let runtime = run.before.files.get("proc/sys/kernel/sched_rt_runtime_us");
    let server = run
        .before
        .files
        .get(&format!("sys/kernel/debug/sched/fair_server/cpu{}/runtime", thread.cpu));
    let told = |value: Option<&String>| value.map_or("not readable".to_owned(), Clone::clone);
    Some(
        Finding::new(
            Severity::Warning,
            "gap.throttled",
            format!("The kernel takes CPU {} from a spinning {} thread for ordinary tasks",
                thread.cpu, name(thread.scheduling.policy)),
        )
        .evidence(format!(
            "{} stalls of {} to {} in {seconds:.1} s; sched_rt_runtime_us is {}, the fair server's \
             runtime is {}.",
            seen.len(), least.value, largest.value, told(runtime), told(server)
        ))
        .effect(
            "About 50 ms of each second go to ordinary tasks that wait on this CPU: the fair server \
             (Linux 6.12 and later) or real-time throttling.",
        )
        .remedy("Keep ordinary tasks off this CPU (a shield), so that none waits; or let the loop sleep."),
    )
}

fn drift(run: &Run) -> Option<Finding> {
    // The clock itself is slewed by up to 500 ppm; more is a counter that cannot be trusted.
    if run.clock.drift_ppm < 500.0 || run.lasted < Nanos::from_millis(200) {
        return None;
    }
    Some(
        Finding::new(
            Severity::Warning,
            "run.clock_drift",
            "The counter and the system clock disagree",
        )
        .evidence(format!("{:.0} parts per million over the run.", run.clock.drift_ppm))
        .effect("Times of this run are wrong by that share."),
    )
}
