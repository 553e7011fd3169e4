//! The figures of a proof, and the verdict on the whole.

use crate::stats::{self, FEWEST_PAIRS, LEVEL};
use crate::{
    figures::{self, Design, Taken},
    judge_run,
};
use quiet_types::words;
use quiet_types::{
    Finding, Nanos, Proof, Run, Severity,
    proof::{Arm, Figure, OrderEffect, Role, Setting, Verdict},
};
use std::collections::BTreeMap;

/// What is to be said of a proof; to be put into it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Every figure, most important first.
    pub figures: Vec<Figure>,
    /// The verdict on the whole.
    pub verdict: Verdict,
    /// The same in one sentence.
    pub sentence: String,
    /// What weakens the figures, or is to be known beside them. Worst first.
    pub findings: Vec<Finding>,
    /// What the order within a pair did.
    pub order: Option<OrderEffect>,
}

/// The findings that the judge itself makes, beside `SETTING.run.*`.
const OURS: [&str; 9] = [
    "proof.interrupted",
    "proof.no_lot",
    "proof.lot_broken",
    "proof.order",
    "proof.void",
    "proof.not_restored",
    "proof.steps_refused",
    "proof.stress_differs",
    "proof.few_pairs",
];

impl Judgement {
    /// Puts the judgement into the proof it was made of, in place of an earlier one; findings
    /// that others made stay.
    pub fn into_proof(self, proof: &mut Proof) {
        (proof.figures, proof.verdict, proof.sentence) =
            (self.figures, self.verdict, self.sentence);
        proof.order = self.order;
        let ours = |id: &str| OURS.contains(&id) || id.contains(".run.");
        proof.findings.retain(|old| !ours(&old.id));
        proof.findings.extend(self.findings);
        proof.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    }
}

/// Judges a proof by its arms alone, as [`crate::compare_runs`] judges the same runs.
///
/// p50 is context: a shielded CPU may sleep deeper and wake a little later, which costs no deadline;
/// the sentence says so where it is shown. A proof that was ended before its time has figures and
/// no verdict: who may stop when it looks good finds what chance gave him.
pub fn judge_proof(proof: &Proof) -> Judgement {
    let (pairs, drawn) = in_order(proof);
    let count = pairs.len();
    let stopped = stopped(proof);
    let threshold = proof.spec.threshold;
    let found = figures::judge(
        &Design::Pairs { pairs, drawn },
        Some(threshold),
        stopped.then_some(INTERRUPTED),
    );
    let figures: Vec<Figure> =
        found.figures.into_iter().map(|one| figure(one, threshold)).collect();
    let sentence = sentence(proof, &figures, found.verdict, count);
    let findings = findings(proof, count, drawn, found.order.as_ref());
    Judgement { figures, verdict: found.verdict, sentence, findings, order: found.order }
}

/// Why no figure of an interrupted proof is judged.
const INTERRUPTED: &str = "interrupted: none is given";

/// Whether the proof was ended before all of its pairs were measured.
fn stopped(proof: &Proof) -> bool {
    let whole = proof.lot.is_some_and(|lot| proof.arms.len() as u64 >= 2 * u64::from(lot.pairs));
    proof.interrupted && !whole
}

/// The pairs that count, each with whether its shared arm was measured first, and whether a lot decided that.
fn in_order(proof: &Proof) -> (Vec<(Taken<'_>, Taken<'_>, bool)>, bool) {
    let at = |arm: &Arm| proof.arms.iter().position(|one| std::ptr::eq(one, arm));
    let mut drawn = proof.lot.is_some();
    let pairs = proof.pairs().into_iter().map(|(a, b)| {
        let first = at(a) < at(b);
        drawn &= proof.lot.is_some_and(|lot| lot.shared_first(a.pair) == first);
        (Taken::of(a), Taken::of(b), first)
    });
    let pairs = pairs.collect();
    (pairs, drawn)
}

fn figure(one: figures::Judged, threshold: Nanos) -> Figure {
    Figure {
        id: one.id.to_owned(),
        title: figures::title(one.id, Some(threshold)),
        unit: one.unit,
        role: one.role,
        shared: one.base,
        shielded: one.other,
        ratio: one.ratio,
        verdict: one.verdict,
        p_value: one.p_value,
        p_family: (one.alone != Verdict::NotShown).then_some(one.p_family),
        note: one.note,
    }
}

fn sentence(proof: &Proof, figures: &[Figure], verdict: Verdict, pairs: usize) -> String {
    let doing = match proof.other() {
        Setting::Confined => "keeping the stress off",
        Setting::Sliced => "asking for a short slice on",
        _ => "shielding",
    };
    let cpus = match proof.spec.cpus.len() {
        1 => format!("CPU {}", proof.spec.cpus),
        _ => format!("CPUs {}", proof.spec.cpus),
    };
    let so_far = || -> String {
        let primary = figures.iter().filter(|f| f.role == Role::Primary);
        let each = primary
            .map(|f| format!("{} {} ({})", f.title, words::change(f), words::ratio(f.ratio.value)));
        each.collect::<Vec<_>>().join(", and readings ")
    };
    if stopped(proof) {
        let of = proof.lot.map_or(String::new(), |lot| format!(" of {}", lot.pairs));
        let so_far = match so_far() {
            none if none.is_empty() => none,
            some => format!(" So far {doing} {cpus} takes {some}."),
        };
        return format!(
            "Interrupted: none is given. The proof was ended after {pairs}{of} pairs, and who may stop when it \
             looks good finds what chance gave.{so_far}"
        );
    }
    if pairs < FEWEST_PAIRS {
        return format!(
            "Not shown: {pairs} valid pairs of runs; at least {FEWEST_PAIRS} are needed to show \
             anything, {} more.",
            FEWEST_PAIRS - pairs
        );
    }
    let primary = so_far();
    let named = |verdict: Verdict| {
        let names: Vec<&str> =
            figures.iter().filter(|f| f.verdict == verdict).map(|f| f.title.as_str()).collect();
        names.join(", ")
    };
    match verdict {
        Verdict::Better => {
            let price = figures
                .iter()
                .find(|f| f.role == Role::Context && f.verdict == Verdict::Worse)
                .map(|f| format!("; its price is {} {}", f.title, words::change(f)));
            let price = price.unwrap_or_default();
            format!("Better: {doing} {cpus} takes {primary}, over {pairs} pairs of runs{price}.")
        }
        Verdict::Worse => {
            format!("Worse: {doing} {cpus} takes {primary}, over {pairs} pairs of runs.")
        }
        Verdict::NotShown => {
            let (better, worse) = (named(Verdict::Better), named(Verdict::Worse));
            let but = match (better.is_empty(), worse.is_empty()) {
                (true, true) => match spoiler(figures) {
                    Some(guard) => format!("the change is clear, but {guard} may be worse"),
                    None => "no figure changed by more than chance does".to_owned(),
                },
                (false, true) => match spoiler(figures) {
                    Some(guard) => format!("{better} got better, but {guard} may be worse"),
                    None => format!("only {better} got better"),
                },
                (true, false) => format!("{worse} got worse"),
                (false, false) => format!("{better} got better, but {worse} worse"),
            };
            format!("Not shown: {primary}; over {pairs} pairs of runs {but}.")
        }
    }
}

/// A guard that would be worse if it stood alone: enough to take a verdict away.
fn spoiler(figures: &[Figure]) -> Option<String> {
    let lone = |f: &&Figure| {
        f.role == Role::Guard
            && f.verdict == Verdict::NotShown
            && f.p_family.is_some()
            && f.ratio.value > 1.0
    };
    let names: Vec<&str> = figures.iter().filter(lone).map(|f| f.title.as_str()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn findings(proof: &Proof, pairs: usize, drawn: bool, order: Option<&OrderEffect>) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(interrupted(proof));
    findings.extend(lot(proof, drawn, pairs));
    findings.extend(order.and_then(|order| order_effect(order, drawn)));
    findings.extend(void_arms(proof));
    findings.extend(not_restored(proof));
    findings.extend(steps_refused(proof));
    findings.extend(stress_differs(proof));
    for setting in [Setting::Shared, proof.other()] {
        findings.extend(of_runs(proof, setting));
    }
    if pairs < FEWEST_PAIRS {
        findings.push(
            Finding::new(
                Severity::Warning,
                "proof.few_pairs",
                format!(
                    "{pairs} valid pairs are fewer than the {FEWEST_PAIRS} that can show anything"
                ),
            )
            .remedy("measure longer, or find out why arms are void"),
        );
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

fn interrupted(proof: &Proof) -> Option<Finding> {
    stopped(proof).then(|| {
        Finding::new(
            Severity::Warning,
            "proof.interrupted",
            "the proof was ended before its time: it has figures and no verdict",
        )
        .effect("figures are shown while it runs: stopping when they look good would make chance a verdict")
        .remedy("let it run to its end; fewer pairs take less time (--pairs)")
    })
}

/// Whether the order of each pair was drawn, and is as it was drawn.
fn lot(proof: &Proof, drawn: bool, pairs: usize) -> Option<Finding> {
    if drawn || pairs == 0 {
        return None;
    }
    let (id, title) = match proof.lot {
        None => ("proof.no_lot", "the order within each pair was not drawn by lot"),
        Some(_) => ("proof.lot_broken", "the order within some pair is not the one that was drawn"),
    };
    Some(
        Finding::new(Severity::Warning, id, title)
            .effect("what drifts while a pair is measured may be taken for the setting")
            .remedy("prove it again: from 0.2 on `quietcores prove` draws each pair's order"),
    )
}

fn order_effect(order: &OrderEffect, drawn: bool) -> Option<Finding> {
    (order.p_value <= LEVEL).then(|| {
        let effect = if drawn {
            "the lot decided which setting that was: it widens the figures, and favours neither"
        } else {
            "no lot decided which setting that was: it may favour one"
        };
        Finding::new(
            Severity::Note,
            "proof.order",
            format!(
                "the second run of a pair had {} the p99 of the first, whichever setting it had",
                words::ratio(order.ratio)
            ),
        )
        .evidence(format!(
            "shared first in {} pairs, second in {}; p {}",
            order.base_first,
            order.other_first,
            words::p_value(order.p_value)
        ))
        .effect(effect)
    })
}

fn void_arms(proof: &Proof) -> Option<Finding> {
    let why: Vec<String> = proof
        .arms
        .iter()
        .filter_map(|arm| {
            let why = arm.void.as_ref()?;
            Some(format!("pair {}, {}: {why}", arm.pair + 1, arm.setting))
        })
        .collect();
    let title = format!("{} of {} arms are void", why.len(), proof.arms.len());
    (!why.is_empty()).then(|| {
        Finding::new(Severity::Warning, "proof.void", title)
            .evidence(why.join("; "))
            .effect("they and their neighbours are left out of every figure")
    })
}

fn not_restored(proof: &Proof) -> Option<Finding> {
    let restored = proof.restored.as_ref().filter(|restored| !restored.exact)?;
    Some(
        Finding::new(
            Severity::Problem,
            "proof.not_restored",
            "the machine is not as it was before the proof",
        )
        .evidence(restored.differences.join("; "))
        .remedy("quietcores revert; what somebody else changed meanwhile is theirs to put back"),
    )
}

fn steps_refused(proof: &Proof) -> Option<Finding> {
    let steps = &proof.shield.as_ref()?.steps;
    let refused: Vec<String> = steps
        .iter()
        .filter(|step| !step.outcome.holds())
        .map(|step| format!("{}: {}", step.what, words::outcome(&step.outcome)))
        .collect();
    let title = format!("{} of {} steps of the shield did not hold", refused.len(), steps.len());
    (!refused.is_empty()).then(|| {
        Finding::new(Severity::Note, "proof.steps_refused", title)
            .evidence(refused.join("; "))
            .effect("what they were to keep away may still reach the shielded CPUs")
    })
}

/// Operations a second of all stressors, medians over the arms of one setting, by stressor.
pub fn throughput(proof: &Proof, setting: Setting) -> BTreeMap<String, f64> {
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for arm in proof.arms_of(setting) {
        for one in arm.wakeup.stress.iter().flat_map(|stress| &stress.throughput) {
            all.entry(one.stressor.clone()).or_default().push(one.per_second);
        }
    }
    all.into_iter().map(|(stressor, rates)| (stressor, stats::median(&rates))).collect()
}

fn stress_differs(proof: &Proof) -> Option<Finding> {
    let shared = throughput(proof, Setting::Shared);
    let other = throughput(proof, proof.other());
    let far: Vec<String> = shared
        .iter()
        .filter_map(|(stressor, a)| {
            let ratio = other.get(stressor)? / a;
            let far = ratio.is_finite() && !(0.67..=1.5).contains(&ratio);
            far.then(|| format!("{stressor} {}", words::ratio(ratio)))
        })
        .collect();
    (!far.is_empty()).then(|| {
        Finding::new(
            Severity::Note,
            "proof.stress_differs",
            format!("the stress did not do the same work in the {} arms", proof.other()),
        )
        .evidence(far.join(", "))
        .effect("a stress on fewer CPUs does less; part of the difference may come from that")
    })
}

/// The findings of the runs of one setting, each kind once, with how many runs it concerns.
fn of_runs(proof: &Proof, setting: Setting) -> Vec<Finding> {
    let arms: Vec<&Arm> = proof.arms_of(setting).collect();
    let mut kinds: Vec<(Finding, usize)> = Vec::new();
    for run in arms.iter().map(|arm| &arm.wakeup) {
        let mut seen: Vec<String> = Vec::new();
        for finding in judge_run(run).into_iter().filter(|f| f.id != "run.state_changed") {
            if seen.contains(&finding.id) {
                continue;
            }
            seen.push(finding.id.clone());
            match kinds.iter_mut().find(|(known, _)| known.id == finding.id) {
                Some((_, runs)) => *runs += 1,
                None => kinds.push((finding, 1)),
            }
        }
    }
    let of = arms.len();
    kinds
        .into_iter()
        .map(|(mut finding, runs)| {
            finding.id = format!("{setting}.{}", finding.id);
            let first = std::mem::take(&mut finding.title);
            finding.title = match finding.id.rsplit('.').next() {
                Some("missed") => format!("periods were missed in {runs} of {of} {setting} runs"),
                _ => format!("{first} (in {runs} of {of} {setting} runs)"),
            };
            if finding.id.ends_with(".run.missed") {
                let share = |run: &Run| Some(run.missed()? as f64 / run.expected()?.max(1) as f64);
                let all: Vec<f64> = arms.iter().filter_map(|arm| share(&arm.wakeup)).collect();
                finding.evidence = format!("median {}", words::share(stats::median(&all)));
                finding.severity = Severity::Note;
            }
            finding
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn judged(change: impl FnOnce(&mut Proof)) -> Judgement {
        let mut proof = example::proof();
        change(&mut proof);
        judge_proof(&proof)
    }

    fn figure<'a>(judgement: &'a Judgement, id: &str) -> &'a Figure {
        judgement.figures.iter().find(|figure| figure.id == id).unwrap()
    }

    /// Puts the shielded arms' runs into the shared arms and the reverse.
    fn swapped(proof: &mut Proof) {
        for two in proof.arms.chunks_exact_mut(2) {
            let [one, other] = two else { unreachable!() };
            std::mem::swap(&mut one.wakeup, &mut other.wakeup);
            std::mem::swap(&mut one.gap, &mut other.gap);
        }
    }

    #[test]
    fn a_clear_gain_is_better_and_the_same_swapped_is_worse() {
        let gain = judged(|_| {});
        assert_eq!(gain.verdict, Verdict::Better);
        assert!(
            gain.sentence.starts_with("Better: shielding CPU 3 takes p99 from "),
            "{}",
            gain.sentence
        );
        let p99 = figure(&gain, "wakeup.p99");
        assert!(p99.ratio.high < 0.1 && p99.shared.median > 300e3, "{p99:?}");
        assert_eq!(judged(swapped).verdict, Verdict::Worse);
    }

    #[test]
    fn an_arm_against_itself_shows_nothing() {
        let same = judged(|proof| {
            let shared: Vec<Arm> = proof.arms_of(Setting::Shared).cloned().collect();
            let twin = |arm: &Arm| Arm { setting: Setting::Shielded, ..arm.clone() };
            proof.arms = shared.iter().cloned().chain(shared.iter().map(twin)).collect();
        });
        assert_eq!(same.verdict, Verdict::NotShown);
        assert!(same.figures.iter().all(|f| f.verdict == Verdict::NotShown));
        assert!(same.figures.iter().all(|f| f.ratio.value == 1.0 && f.p_value == 1.0));
    }

    #[test]
    fn a_void_arm_takes_its_neighbour_with_it() {
        let judgement = judged(|proof| proof.arms[3].void = Some("an IRQ moved".into()));
        assert_eq!(figure(&judgement, "wakeup.p99").shared.runs.len(), 7);
        assert_eq!(judgement.verdict, Verdict::Better);
        assert!(judgement.findings.iter().any(|f| f.id == "proof.void"));
    }

    #[test]
    fn five_valid_pairs_show_nothing_and_say_how_many_are_missing() {
        let judgement = judged(|proof| proof.arms.retain(|arm| arm.pair < 5));
        assert_eq!(judgement.verdict, Verdict::NotShown);
        assert!(judgement.sentence.ends_with("needed to show anything, 1 more."));
        let none = judged(|proof| proof.arms.clear());
        assert!(none.figures.is_empty());
        assert_eq!(none.verdict, Verdict::NotShown);
    }

    #[test]
    fn a_guard_that_gets_worse_takes_the_verdict_away() {
        let judgement = judged(|proof| {
            for arm in proof.arms.iter_mut().filter(|arm| arm.setting == Setting::Shielded) {
                for thread in arm.gap.iter_mut().flat_map(|gap| &mut gap.threads) {
                    thread.stolen = Some(Nanos::from_millis(900));
                }
            }
        });
        assert_eq!(figure(&judgement, "gap.stolen").verdict, Verdict::Worse);
        assert_eq!(judgement.verdict, Verdict::NotShown);
        assert!(judgement.sentence.contains("but gap time worse"), "{}", judgement.sentence);
    }

    #[test]
    fn a_figure_below_the_noise_of_the_instrument_is_not_shown() {
        let judgement = judged(|proof| {
            proof
                .arms
                .iter_mut()
                .for_each(|arm| arm.wakeup.clock.as_mut().unwrap().floor = Nanos::from_millis(1));
        });
        let p99 = figure(&judgement, "wakeup.p99");
        assert_eq!(p99.verdict, Verdict::NotShown);
        assert_eq!(p99.note, "below the instrument's own step or noise of 1.00 ms");
    }

    #[test]
    fn missed_periods_count_as_beyond_the_threshold() {
        let judgement = judged(|_| {});
        let of = |id: &str| figure(&judgement, id).shared.median;
        let (missed, beyond) = (of("wakeup.missed"), of("wakeup.beyond"));
        assert!(missed > 0.0 && beyond >= missed, "{missed} {beyond}");
    }

    #[test]
    fn an_interrupted_proof_has_figures_and_no_verdict() {
        // Six good pairs of eight, then Ctrl-C.
        let judgement = judged(|proof| {
            proof.arms.retain(|arm| arm.pair < 6);
            proof.interrupted = true;
        });
        assert_eq!(judgement.verdict, Verdict::NotShown);
        assert!(judgement.figures.iter().all(|f| f.verdict == Verdict::NotShown));
        assert!(judgement.figures.iter().all(|f| f.note == "interrupted: none is given"));
        assert!(figure(&judgement, "wakeup.p99").ratio.high < 0.1);
        let wanted = "Interrupted: none is given. The proof was ended after 6 of 8 pairs";
        assert!(judgement.sentence.starts_with(wanted), "{}", judgement.sentence);
        assert!(judgement.findings.iter().any(|f| f.id == "proof.interrupted"));
        // The same six pairs, asked for from the beginning.
        let asked = judged(|proof| {
            proof.arms.retain(|arm| arm.pair < 6);
            proof.lot = proof.lot.map(|lot| quiet_types::lot::Lot { pairs: 6, ..lot });
        });
        assert_eq!(asked.verdict, Verdict::Better, "{}", asked.sentence);
        // A signal after the last arm ends nothing.
        assert_eq!(judged(|proof| proof.interrupted = true).verdict, Verdict::Better);
        // Nor does a worse one stand, or one that says nothing of its lot.
        let worse = judged(|proof| {
            swapped(proof);
            (proof.lot, proof.interrupted) = (None, true);
        });
        assert_eq!(worse.verdict, Verdict::NotShown);
    }

    #[test]
    fn an_order_that_was_not_drawn_or_not_kept_is_said() {
        let has = |judgement: &Judgement, id: &str| judgement.findings.iter().any(|f| f.id == id);
        assert!(!has(&judged(|_| {}), "proof.no_lot"));
        // Shared first in every pair, as released 0.1.0 did it.
        let fixed = judged(|proof| {
            proof.lot = None;
            proof.arms.sort_by_key(|arm| (arm.pair, arm.setting));
        });
        assert!(has(&fixed, "proof.no_lot") && fixed.verdict == Verdict::NotShown);
        let note = &figure(&fixed, "wakeup.p99").note;
        assert!(note.contains("one side was measured first in 8 of 8 pairs"), "{note}");
        let broken = judged(|proof| proof.arms.sort_by_key(|arm| (arm.pair, arm.setting)));
        assert!(has(&broken, "proof.lot_broken") && broken.verdict == Verdict::NotShown);
    }

    #[test]
    fn an_order_effect_is_found_and_said() {
        assert_eq!(judged(|_| {}).order.unwrap().figure, "wakeup.p99");
        let judgement = judged(|proof| {
            let lot = quiet_types::lot::Lot { seed: 3, pairs: 8 };
            proof.lot = Some(lot);
            for arm in &mut proof.arms {
                let second = lot.shared_first(arm.pair) != (arm.setting == Setting::Shared);
                let scale = if second { 3 } else { 1 };
                let level = 40_000 + 300 * u64::from(arm.pair) + arm.setting as u64;
                let all =
                    quiet_types::Histogram::of((0..15_000u64).map(|n| Nanos(scale * (level + n))));
                arm.wakeup.threads[0].corrected = Some(all);
            }
            proof.arms.sort_by_key(|arm| {
                (arm.pair, lot.shared_first(arm.pair) != (arm.setting == Setting::Shared))
            });
        });
        let order = judgement.order.unwrap();
        assert!((2.9..3.1).contains(&order.ratio) && order.p_value <= 0.05, "{order:?}");
        assert!(judgement.findings.iter().any(|f| f.id == "proof.order"));
        assert_eq!(judgement.verdict, Verdict::NotShown, "{}", judgement.sentence);
    }

    #[test]
    fn too_few_readings_beyond_a_percentile_are_no_figure_of_a_proof_either() {
        let judgement = judged(|proof| {
            for arm in &mut proof.arms {
                let thread = &mut arm.wakeup.threads[0];
                let slow = if arm.setting == Setting::Shared { 9 } else { 1 };
                let few =
                    quiet_types::Histogram::of((0..900u64).map(|n| Nanos(slow * (20_000 + n))));
                (thread.expected, thread.obtained, thread.missed) = (Some(900), 900, Some(0));
                thread.corrected = Some(few);
            }
        });
        let p99 = figure(&judgement, "wakeup.p99");
        assert_eq!(p99.verdict, Verdict::NotShown);
        assert_eq!(p99.note, "in some run 9 readings lie beyond it; it takes 10 to be judged");
        assert_eq!(judgement.verdict, Verdict::NotShown);
    }

    #[test]
    fn judging_twice_changes_nothing() {
        let mut once = example::proof();
        judge_proof(&once).into_proof(&mut once);
        let mut twice = once.clone();
        judge_proof(&twice).into_proof(&mut twice);
        assert_eq!(once, twice);
    }
}
