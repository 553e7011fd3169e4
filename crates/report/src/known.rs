//! What a run says, and what nobody knows of it: a tool's file holds what the tool wrote, and nothing is made up for the rest.

use quiet_types::{
    Histogram, Nanos, Run, histogram::layout, machine::Policy, run::Probe, run::Thread,
};

/// In place of what a file does not say.
pub(crate) const NOT_KNOWN: &str = "not known";

/// Whether more is known of the readings than their extremes, sum and number.
pub(crate) fn spread(all: &Histogram) -> bool {
    all.count == 0 || !all.buckets.is_empty() || all.min.is_some_and(|min| min.0 >= layout::END)
}

/// Periods missed by all threads.
pub(crate) fn missed(run: &Run) -> Option<u64> {
    let unknown = run.findings.iter().any(|finding| finding.id == "import.missed_unknown");
    (!unknown).then(|| run.missed())
}

/// What readings are counted against: of another tool's run nobody named one.
pub(crate) fn threshold(run: &Run) -> Option<Nanos> {
    run.origin.is_none().then_some(run.spec.threshold)
}

/// The share of the expected periods that is beyond the threshold.
pub(crate) fn beyond(run: &Run, all: &Histogram, expected: u64) -> Option<f64> {
    Some(all.above(threshold(run)?) as f64 / expected.max(1) as f64)
}

/// How long it measured.
pub(crate) fn lasted(run: &Run) -> Option<Nanos> {
    (run.origin.is_none() || run.lasted > Nanos::ZERO).then_some(run.lasted)
}

/// When the largest reading was.
pub(crate) fn max_at(run: &Run, thread: &Thread) -> Option<Nanos> {
    (run.origin.is_none() || thread.max_at > Nanos::ZERO).then_some(thread.max_at)
}

/// Time between wake-ups; the readers put a millisecond where a file says none.
pub(crate) fn interval(run: &Run) -> Option<Nanos> {
    let Probe::Wakeup { interval } = run.spec.probe else { return None };
    let says = |format: &str| ["cyclictest", "latmus", "csv", "gnuplot"].contains(&format);
    let said = run.origin.as_ref().is_none_or(|origin| says(&origin.format));
    (said || interval != Nanos::from_millis(1)).then_some(interval)
}

/// Policy and priority of a thread.
pub(crate) fn policy(run: &Run, thread: &Thread) -> String {
    const SILENT: [&str; 8] = [
        "cyclictest-histogram",
        "jitterdebugger",
        "hdr",
        "csv",
        "gnuplot",
        "openmetrics",
        "rtla",
        "rtla-analysis",
    ];
    let got = thread.scheduling;
    let silent = run.origin.as_ref().is_some_and(|origin| {
        SILENT.contains(&origin.format.as_str())
            || (got.policy == Policy::Fifo && got.priority == 0)
    });
    if silent { NOT_KNOWN.to_owned() } else { crate::text::policy(got.policy, got.priority) }
}

/// A text, or that it is not known.
pub(crate) fn or_not<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| NOT_KNOWN.to_owned(), |value| value.to_string())
}
