//! What to know about a run: state changed, stalls that are the kernel's intention.

use crate::request::name;
use quiet_types::{
    Finding, Nanos, Severity,
    machine::Policy,
    run::{MeasuringThread, Run},
};

/// What only the one who ran it can know; the rest is judged from the run by whoever reads it.
pub(crate) fn judge(run: &Run) -> Vec<Finding> {
    let throttled = run.threads.iter().filter_map(|thread| throttled(run, thread));
    state_changed(run).into_iter().chain(throttled).collect()
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

/// The time that the kernel keeps for ordinary tasks, seen as stalls of a spinning thread.
fn throttled(run: &Run, thread: &MeasuringThread) -> Option<Finding> {
    let policy = thread.scheduling?.policy;
    if !run.is_gap() || !matches!(policy, Policy::Fifo | Policy::Rr) {
        return None;
    }
    let like = Nanos::from_millis(40)..Nanos::from_millis(120);
    let seen: Vec<_> = thread.worst.iter().filter(|r| like.contains(&r.value)).collect();
    let (Some(largest), Some(least)) = (seen.first(), seen.last()) else { return None };
    let seconds = run.lasted?.as_secs_f64().max(1e-3);
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
                thread.cpu, name(policy)),
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
