//! What to know about one run before its figures are believed.

use crate::known;
use quiet_types::{
    Finding, Nanos, Run, Severity, counters::steal_path, machine::Policy, printable,
    run::MeasuringThread, words,
};

/// Readings beyond p99.9 that make it more than an anecdote.
const TAIL_READINGS: u64 = 10;

/// A clock that runs so far from `CLOCK_MONOTONIC` is not slewed by NTP (500 ppm at most): its
/// calibration is wrong.
const MOST_DRIFT_PPM: f64 = 500.0;

/// What to know about a run: settings refused, state changed, periods missed, figures that the
/// instrument or the number of readings does not carry. Worst first.
pub fn judge_run(run: &Run) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(state_changed(run));
    findings.extend(accounts(run));
    findings.extend(interrupted(run));
    findings.extend(run.threads.iter().flat_map(|thread| settings(run, thread)));
    findings.extend(in_band(run));
    findings.extend(missed(run));
    if known::spread(&run.readings()) {
        findings.extend(over_scale(run));
        findings.extend(few_readings(run));
    }
    findings.extend(clock(run));
    findings.extend(steal(run));
    findings.extend(stress(run));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

/// A thread of the EVL core's that the kernel scheduled for a while.
fn in_band(run: &Run) -> Option<Finding> {
    let of = |thread: &MeasuringThread| thread.counters.get("in_band_switches").copied();
    let strayed: Vec<String> = run
        .threads
        .iter()
        .filter_map(|thread| Some((thread.cpu, of(thread).filter(|times| *times > 0)?)))
        .map(|(cpu, times)| format!("{times} on CPU {cpu}"))
        .collect();
    (!strayed.is_empty()).then(|| {
        Finding::new(
            Severity::Warning,
            "run.in-band",
            "the EVL core's thread did not stay out of band",
        )
        .evidence(format!("switches in band: {}", strayed.join(", ")))
        .effect("some figures are those of the kernel's scheduler")
        .remedy("a page fault, a signal or a debugger does that; measure again without one")
    })
}

fn state_changed(run: &Run) -> Option<Finding> {
    if run.partial {
        return None;
    }
    let (before, after) = (&run.before.files, &run.after.files);
    let shown = |value: Option<&String>| value.map_or("absent".into(), |v| printable(v, 60));
    let changed: Vec<String> = before
        .keys()
        .chain(after.keys().filter(|path| !before.contains_key(*path)))
        .filter(|path| before.get(*path) != after.get(*path))
        .map(|path| {
            let (old, new) = (shown(before.get(path)), shown(after.get(path)));
            format!("{}: {old} -> {new}", printable(path, 120))
        })
        .collect();
    (!changed.is_empty()).then(|| {
        Finding::new(
            Severity::Problem,
            "run.state_changed",
            "a setting that the figures depend on changed while the run was made",
        )
        .evidence(changed.join("; "))
        .effect("the figures mix two states of the machine and belong to neither")
        .remedy("find what changed it (power profile daemons, irqbalance), stop it, run again")
    })
}

/// Every expected period is either obtained or missed, and each stands in the corrected histogram.
fn accounts(run: &Run) -> Option<Finding> {
    let (thread, expected, missed, corrected) = run.threads.iter().find_map(|thread| {
        let (all, expected, missed) =
            (thread.corrected.as_ref()?.count, thread.expected?, thread.missed?);
        let right = expected == thread.obtained.saturating_add(missed) && all == expected;
        (!right).then_some((thread, expected, missed, all))
    })?;
    Some(
        Finding::new(
            Severity::Problem,
            "run.unaccounted",
            format!("CPU {}: periods are unaccounted for", thread.cpu),
        )
        .evidence(format!(
            "{expected} expected, {} obtained, {missed} missed, {corrected} in the histogram",
            thread.obtained
        ))
        .effect("percentiles and shares are of an unknown whole")
        .remedy("this is a fault of the program that made the run: please report it"),
    )
}

fn interrupted(run: &Run) -> Option<Finding> {
    let measured = run.lasted.zip(run.spec.length);
    let measured = measured.map_or_else(String::new, |(of, all)| format!("{of} of {all} measured"));
    if run.partial {
        let title = "the program was killed while it measured: this is its last checkpoint";
        return Some(
            Finding::new(Severity::Problem, "run.partial", title)
                .evidence(measured)
                .effect(
                    "what came after is not known, and nobody read back whether the settings held; \
                     it counts in no comparison",
                )
                .remedy("measure again"),
        );
    }
    (run.interrupted == Some(true)).then(|| {
        Finding::new(Severity::Warning, "run.interrupted", "the run was ended before its time")
            .evidence(measured)
            .effect("the figures are of what there is; rare events had less time to come")
    })
}

/// What another tool's file does not say is not known, and nothing follows from it.
fn settings(run: &Run, thread: &MeasuringThread) -> Vec<Finding> {
    let mut findings = Vec::new();
    let asked = run.spec.policy.zip(run.spec.priority).map(|(asked, priority)| {
        let real_time = matches!(asked, Policy::Fifo | Policy::Rr);
        (asked, if real_time { priority } else { 0 })
    });
    if let (Some((asked, priority)), Some(got)) = (asked, thread.scheduling)
        && (got.policy, got.priority) != (asked, priority)
    {
        findings.push(
            Finding::new(
                Severity::Warning,
                "run.policy",
                format!(
                    "CPU {}: the measuring thread did not get the policy asked for",
                    thread.cpu
                ),
            )
            .evidence(format!(
                "asked for {}, and the kernel says that it is {}",
                words::policy(asked, priority),
                words::policy(got.policy, got.priority)
            ))
            .effect("other tasks delay it: the figures are of another policy")
            .remedy(
                "run it as root, or allow real-time priorities to your user (`rtprio` in \
                 /etc/security/limits.conf)",
            ),
        );
    }
    if let Some(allowed) = &thread.allowed
        && (allowed.len() != 1 || !allowed.contains(thread.cpu))
    {
        findings.push(
            Finding::new(
                Severity::Warning,
                "run.affinity",
                format!("CPU {}: the measuring thread was not bound to its CPU", thread.cpu),
            )
            .evidence(format!("it was allowed CPUs {allowed}"))
            .effect("the figures may be of another CPU"),
        );
    }
    if thread.memory_locked == Some(false) {
        findings.push(
            Finding::new(
                Severity::Warning,
                "run.memory",
                format!("CPU {}: memory was not locked", thread.cpu),
            )
            .effect("a page fault may stand among the readings")
            .remedy("run as root, or allow locked memory (ulimit -l unlimited)"),
        );
    }
    findings
}

fn missed(run: &Run) -> Option<Finding> {
    let (missed, expected) = (run.missed()?, run.expected()?);
    (missed > 0).then(|| {
        Finding::new(
            Severity::Warning,
            "run.missed",
            format!(
                "{} of the expected periods expired while the thread was still late from an earlier one",
                words::share(missed as f64 / expected.max(1) as f64)
            ),
        )
        .evidence(format!("{missed} of {expected} missed"))
        .effect("for sound each is a period without output; percentiles and shares count them")
    })
}

fn over_scale(run: &Run) -> Option<Finding> {
    let over: u64 = run.threads.iter().map(|thread| thread.readings.over).sum();
    (over > 0).then(|| {
        Finding::new(
            Severity::Warning,
            "run.over",
            format!("{over} readings are off the scale of the histogram"),
        )
        .effect("they are counted in every share, and percentiles among them print as the maximum")
    })
}

fn clock(run: &Run) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(clock) = &run.clock else { return findings };
    if clock.drift_ppm.abs() > MOST_DRIFT_PPM {
        findings.push(
            Finding::new(
                Severity::Warning,
                "run.clock_drift",
                "the counter and CLOCK_MONOTONIC disagree",
            )
            .evidence(format!("{:.0} ppm over the run", clock.drift_ppm))
            .effect("every reading is off by as much"),
        );
    }
    if clock.floor == Nanos::ZERO {
        findings.push(Finding::new(
            Severity::Note,
            "run.no_floor",
            "the instrument's own noise was not measured",
        ));
        return findings;
    }
    if let Some(limit) = run
        .spec
        .threshold
        .filter(|limit| run.is_gap() && clock.step > Nanos(1) && limit.0 < clock.step.0 * 4)
    {
        findings.push(
            Finding::new(Severity::Warning, "run.clock_step", "the threshold is close to the clock's own step")
                .evidence(format!("gaps above {limit} are counted, by a clock ({}) with a step of {}", clock.source, clock.step))
                .effect("a gap is told longer or shorter by up to a step: of those near the threshold, who is counted is chance")
                .remedy(format!("a threshold of {} or more", Nanos(clock.step.0 * 10))),
        );
    }
    let middle = run.readings().percentile(0.5);
    if !run.is_gap() && middle.is_some_and(|p50| p50 <= clock.floor) {
        findings.push(
            Finding::new(
                Severity::Warning,
                "run.floor",
                "half of the readings are below the instrument's own noise",
            )
            .evidence(format!("p50 {}, own noise {}", middle.unwrap_or_default(), clock.floor))
            .effect("figures below the noise are of the instrument, not of the machine"),
        );
    }
    findings
}

fn few_readings(run: &Run) -> Option<Finding> {
    let count = run.readings().count;
    let needed = TAIL_READINGS * 1000;
    (count < needed).then(|| {
        Finding::new(
            Severity::Note,
            "run.few_readings",
            format!("{count} readings are few for p99.9"),
        )
        .evidence(format!("{} lie beyond it; {needed} readings give {TAIL_READINGS}", count / 1000))
        .remedy("measure longer")
    })
}

fn steal(run: &Run) -> Option<Finding> {
    let (before, after) = (&run.before.counters, &run.after.counters);
    let more = |cpu| {
        let ticks = after.since(before, cpu).steal.filter(|ticks| *ticks > 0)?;
        Some(format!("{}: +{ticks}", steal_path(cpu)))
    };
    let mut grown: Vec<String> = after.cpus().filter_map(more).collect();
    // As the paths are sorted in the run.
    grown.sort_unstable();
    (!grown.is_empty()).then(|| {
        Finding::new(Severity::Note, "run.steal", "the host took time from this virtual machine")
            .evidence(grown.join("; "))
            .effect("such gaps are the host's: no setting in here removes them")
    })
}

/// A stress that was asked for and of whose work nothing is known.
fn stress(run: &Run) -> Option<Finding> {
    let stress = run.stress.as_ref().filter(|stress| stress.throughput.is_empty())?;
    let names = printable(&stress.names.join(", "), 80);
    (!names.is_empty()).then(|| {
        Finding::new(
            Severity::Note,
            "run.stress_unknown",
            "what the stress really did is not known",
        )
        .evidence(format!("no throughput was read of {names}"))
        .effect("a stress that stood still would make any setting look good")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use quiet_types::{CpuSet, Histogram, machine::Scheduling};

    fn ids(run: &Run) -> Vec<String> {
        judge_run(run).into_iter().map(|finding| finding.id).collect()
    }

    fn sound() -> Run {
        let mut run = example::proof().arms[1].wakeup.clone();
        for thread in &mut run.threads {
            thread.missed = Some(0);
            thread.obtained = thread.expected.unwrap();
        }
        run
    }

    #[test]
    fn a_thread_that_was_taken_in_band_is_told_with_its_cpu() {
        let mut run = sound();
        let cpu = run.threads[0].cpu;
        for (times, told) in [(0, false), (2, true)] {
            run.threads[0].counters.insert("in_band_switches".into(), times);
            let found = in_band(&run);
            assert_eq!(found.is_some(), told);
            assert!(!told || found.unwrap().evidence.contains(&format!("2 on CPU {cpu}")));
        }
    }

    #[test]
    fn a_sound_run_has_no_findings() {
        assert_eq!(ids(&sound()), Vec::<String>::new());
    }

    #[test]
    fn every_doubt_is_named_once() {
        type Spoil = fn(&mut Run);
        let cases: [(&str, Spoil); 13] = [
            ("run.stress_unknown", |run| {
                run.stress.iter_mut().for_each(|stress| stress.throughput.clear());
            }),
            ("run.interrupted", |run| run.interrupted = Some(true)),
            ("run.partial", |run| run.partial = true),
            ("run.missed", |run| {
                run.threads[0].missed = Some(5);
                run.threads[0].obtained -= 5;
            }),
            ("run.unaccounted", |run| run.threads[0].obtained -= 5),
            ("run.policy", |run| {
                run.threads[0].scheduling =
                    Some(Scheduling { policy: Policy::Other, priority: 0, nice: 0 });
            }),
            ("run.affinity", |run| run.threads[0].allowed = "0-1".parse::<CpuSet>().ok()),
            ("run.memory", |run| run.threads[0].memory_locked = Some(false)),
            ("run.over", |run| run.threads[0].readings.over = 2),
            ("run.floor", |run| run.clock.as_mut().unwrap().floor = Nanos::from_secs(1)),
            ("run.clock_drift", |run| run.clock.as_mut().unwrap().drift_ppm = -900.0),
            ("run.state_changed", |run| {
                run.after.files.insert("sys/x".into(), "new".into());
            }),
            ("run.few_readings", |run| {
                let thread = &mut run.threads[0];
                thread.corrected = Some(Histogram::of([Nanos(20_000)]));
                (thread.expected, thread.obtained) = (Some(1), 1);
            }),
        ];
        for (id, spoil) in cases {
            let mut run = sound();
            spoil(&mut run);
            assert_eq!(ids(&run), [id]);
        }
    }
}
