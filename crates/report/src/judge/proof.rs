//! The figures of a proof, and the verdict on the whole.

use super::judge_run;
use crate::{
    stats::{self, FEWEST_PAIRS, Resolution, Value},
    words,
};
use quiet_types::{
    Finding, Nanos, Proof, Run, Severity,
    proof::{Arm, Figure, Role, Setting, Unit, Verdict},
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
}

/// The findings that the judge itself makes, beside `SETTING.run.*`.
const OURS: [&str; 5] = [
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
        let ours = |id: &str| OURS.contains(&id) || id.contains(".run.");
        proof.findings.retain(|old| !ours(&old.id));
        proof.findings.extend(self.findings);
        proof.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    }
}

/// How a figure is taken from the runs of one arm.
struct Rule {
    id: &'static str,
    unit: Unit,
    role: Role,
    take: fn(&Arm) -> Option<Value>,
}

/// Width of a bucket of [`quiet_types::histogram::layout`], as a part of its value.
const BUCKET: f64 = 1.0 / 64.0;

/// The figures, declared before anything is measured. Maxima are not among them: the largest of
/// 20 000 readings is one event, most often the host's, and its ratio is the ratio of two
/// accidents. They are shown by arm.
const RULES: [Rule; 6] = [
    Rule {
        id: "wakeup.p99",
        unit: Unit::Nanoseconds,
        role: Role::Primary,
        take: |arm| percentile(&arm.wakeup, 0.99),
    },
    Rule { id: "wakeup.beyond", unit: Unit::Share, role: Role::Primary, take: beyond },
    Rule {
        id: "wakeup.p99.9",
        unit: Unit::Nanoseconds,
        role: Role::Guard,
        take: |arm| percentile(&arm.wakeup, 0.999),
    },
    Rule { id: "wakeup.missed", unit: Unit::Share, role: Role::Guard, take: missed },
    Rule { id: "gap.stolen", unit: Unit::Share, role: Role::Guard, take: stolen },
    Rule {
        id: "wakeup.p50",
        unit: Unit::Nanoseconds,
        role: Role::Context,
        take: |arm| percentile(&arm.wakeup, 0.5),
    },
];

/// Judges a proof by its arms alone.
///
/// Each figure is compared over the valid pairs ([`stats::compare`]). The whole is **better** when
/// both primary figures (p99, share beyond the threshold) are better and no guard (p99.9, missed
/// periods, stolen time) is worse; **worse** when a primary figure is worse and none is better;
/// else **not shown**. p50 is context: a shielded CPU may sleep deeper and wake a little later,
/// which costs no deadline; the sentence says so where it is shown.
pub fn judge_proof(proof: &Proof) -> Judgement {
    let pairs = proof.pairs();
    let floor = pairs.iter().flat_map(|(a, b)| [a.wakeup.clock.floor, b.wakeup.clock.floor]).max();
    let figures: Vec<Figure> = RULES
        .iter()
        .filter_map(|rule| figure(rule, &pairs, proof, floor.unwrap_or_default()))
        .collect();
    let verdict = overall(&figures);
    let sentence = sentence(proof, &figures, verdict, pairs.len());
    let findings = findings(proof, pairs.len());
    Judgement { figures, verdict, sentence, findings }
}

fn figure(rule: &Rule, pairs: &[(&Arm, &Arm)], proof: &Proof, floor: Nanos) -> Option<Figure> {
    let values: Vec<(Value, Value)> =
        pairs.iter().filter_map(|(a, b)| Some(((rule.take)(a)?, (rule.take)(b)?))).collect();
    if values.is_empty() {
        return None;
    }
    let smallest = values.iter().flat_map(|(a, b)| [a.half, b.half]).fold(0.0, f64::max) * 2.0;
    let resolution = match rule.unit {
        Unit::Nanoseconds => {
            Resolution { absolute: smallest.max(floor.0 as f64), relative: BUCKET }
        }
        Unit::Share => Resolution { absolute: smallest, relative: 0.0 },
    };
    let mut found = stats::compare(&values, resolution);
    let below = found.base.median.min(found.other.median) < floor.0 as f64;
    if rule.unit == Unit::Nanoseconds && below {
        found.verdict = Verdict::NotShown;
        found.note = format!("below the instrument's own noise of {floor}");
    }
    if rule.unit == Unit::Share && found.base.median == 0.0 && found.other.median == 0.0 {
        found.note = "none in most runs of either setting".to_owned();
    }
    Some(Figure {
        id: rule.id.to_owned(),
        title: title(rule.id, proof),
        unit: rule.unit,
        role: rule.role,
        shared: found.base,
        shielded: found.other,
        ratio: found.ratio,
        verdict: found.verdict,
        p_value: found.p_value,
        note: found.note,
    })
}

fn title(id: &str, proof: &Proof) -> String {
    match id {
        "wakeup.beyond" => format!("beyond {}", proof.spec.threshold),
        "wakeup.missed" => "missed periods".to_owned(),
        "gap.stolen" => "stolen time".to_owned(),
        other => other.strip_prefix("wakeup.").unwrap_or(other).to_owned(),
    }
}

fn percentile(run: &Run, q: f64) -> Option<Value> {
    let value = run.readings().percentile(q)?.0 as f64;
    Some(Value { value, half: 0.5 })
}

fn expected(run: &Run) -> u64 {
    run.threads.iter().map(|thread| thread.expected).sum()
}

fn of_expected(run: &Run, count: u64) -> Option<Value> {
    let expected = expected(run);
    (expected > 0)
        .then(|| Value { value: count as f64 / expected as f64, half: 0.5 / expected as f64 })
}

/// Counted in the corrected histogram: a missed period is beyond the threshold as well.
fn beyond(arm: &Arm) -> Option<Value> {
    of_expected(&arm.wakeup, arm.wakeup.readings().above(arm.wakeup.spec.threshold))
}

fn missed(arm: &Arm) -> Option<Value> {
    of_expected(&arm.wakeup, arm.wakeup.missed())
}

/// The smallest step is one gap of just the threshold: shorter ones are not counted as stolen.
fn stolen(arm: &Arm) -> Option<Value> {
    let gap = arm.gap.as_ref()?;
    let whole = gap.lasted.0 as f64 * gap.threads.len() as f64;
    let stolen: u64 = gap.threads.iter().map(|thread| thread.stolen.0).sum();
    (whole > 0.0).then(|| Value {
        value: stolen as f64 / whole,
        half: gap.spec.threshold.0.max(1) as f64 / 2.0 / whole,
    })
}

fn overall(figures: &[Figure]) -> Verdict {
    let count = |role: Role, verdict: Verdict| {
        figures.iter().filter(|f| f.role == role && f.verdict == verdict).count()
    };
    let primary = figures.iter().filter(|f| f.role == Role::Primary).count();
    let better = count(Role::Primary, Verdict::Better);
    let worse = count(Role::Primary, Verdict::Worse);
    if primary > 0 && better == primary && count(Role::Guard, Verdict::Worse) == 0 {
        Verdict::Better
    } else if worse > 0 && better == 0 {
        Verdict::Worse
    } else {
        Verdict::NotShown
    }
}

fn sentence(proof: &Proof, figures: &[Figure], verdict: Verdict, pairs: usize) -> String {
    let doing = match proof.other() {
        Setting::Confined => "keeping the stress off",
        _ => "shielding",
    };
    let cpus = match proof.spec.cpus.len() {
        1 => format!("CPU {}", proof.spec.cpus),
        _ => format!("CPUs {}", proof.spec.cpus),
    };
    if pairs < FEWEST_PAIRS {
        return format!(
            "Not shown: {pairs} valid pairs of runs; at least {FEWEST_PAIRS} are needed to show \
             anything, {} more.",
            FEWEST_PAIRS - pairs
        );
    }
    let primary: Vec<String> = figures
        .iter()
        .filter(|f| f.role == Role::Primary)
        .map(|f| format!("{} {} ({})", f.title, words::change(f), words::ratio(f.ratio.value)))
        .collect();
    let primary = primary.join(", and readings ");
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
                (true, true) => "no figure changed by more than chance does".to_owned(),
                (false, true) => format!("only {better} got better"),
                (true, false) => format!("{worse} got worse"),
                (false, false) => format!("{better} got better, but {worse} worse"),
            };
            format!("Not shown: {primary}; over {pairs} pairs of runs {but}.")
        }
    }
}

fn findings(proof: &Proof, pairs: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
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
        .filter(|step| !step.held)
        .map(|step| format!("{}: {}", step.what, step.outcome))
        .collect();
    let title = format!("{} of {} steps of the shield did not hold", refused.len(), steps.len());
    (!refused.is_empty()).then(|| {
        Finding::new(Severity::Note, "proof.steps_refused", title)
            .evidence(refused.join("; "))
            .effect("what they were to keep away may still reach the shielded CPUs")
    })
}

/// Operations a second of all stressors, medians over the arms of one setting, by stressor.
pub(crate) fn throughput(proof: &Proof, setting: Setting) -> BTreeMap<String, f64> {
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
                let share = |run: &Run| run.missed() as f64 / expected(run).max(1) as f64;
                let all: Vec<f64> = arms.iter().map(|arm| share(&arm.wakeup)).collect();
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
        for arm in &mut proof.arms {
            arm.setting = match arm.setting {
                Setting::Shared => Setting::Shielded,
                _ => Setting::Shared,
            };
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
                    thread.stolen = Nanos::from_millis(900);
                }
            }
        });
        assert_eq!(figure(&judgement, "gap.stolen").verdict, Verdict::Worse);
        assert_eq!(judgement.verdict, Verdict::NotShown);
        assert!(judgement.sentence.contains("but stolen time worse"), "{}", judgement.sentence);
    }

    #[test]
    fn a_figure_below_the_noise_of_the_instrument_is_not_shown() {
        let judgement = judged(|proof| {
            proof.arms.iter_mut().for_each(|arm| arm.wakeup.clock.floor = Nanos::from_millis(1));
        });
        let p99 = figure(&judgement, "wakeup.p99");
        assert_eq!(p99.verdict, Verdict::NotShown);
        assert_eq!(p99.note, "below the instrument's own noise of 1.00 ms");
    }

    #[test]
    fn missed_periods_count_as_beyond_the_threshold() {
        let proof = example::proof();
        let arm = &proof.arms[0];
        let (missed, beyond) = (missed(arm).unwrap().value, beyond(arm).unwrap().value);
        assert!(missed > 0.0 && beyond >= missed, "{missed} {beyond}");
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
