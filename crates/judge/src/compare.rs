//! Any two sets of runs, compared figure by figure.

use crate::{
    figures::{self, Design, Taken},
    judge_run, known,
    stats::{self, LEVEL},
};
use quiet_types::words;
use quiet_types::{
    Finding, Nanos, Run, Severity,
    campaign::Cell,
    compared::{Compared, ComparedFigure, Difference, Method, SCHEMA, Side},
    printable,
    proof::{Role, Verdict},
    run::Measured,
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// More differences are not listed.
const MOST_DIFFERENCES: usize = 40;

/// Compares the runs of B with those of A.
///
/// Runs made in turn are compared in pairs, others as sets. The judge is the one of a proof: see [`crate::judge_proof`].
pub fn compare_runs<'a>(a: (&str, &'a [Run]), b: (&str, &'a [Run])) -> Compared {
    let (mut a_side, a_runs) = side(a.0, a.1);
    let (mut b_side, b_runs) = side(b.0, b.1);
    let (a_all, b_all) = (in_time(a.1), in_time(b.1));
    let mut findings = Vec::new();
    let all = || a_runs.iter().chain(&b_runs);
    let threshold = all().filter_map(|run| run.spec.threshold).max();
    let unlike = unlike(&a_runs, &b_runs);
    let paired = by_round(&a_all, &b_all).or_else(|| in_turn(&a_all, &b_all));
    let design = match paired.map(|paired| paired.valid(&a_runs, &b_runs)) {
        Some(paired) => {
            a_side.left_out.extend(paired.left_out_a.iter().cloned());
            b_side.left_out.extend(paired.left_out_b.iter().cloned());
            a_side.ids = paired.pairs.iter().map(|(a, ..)| a.id.clone()).collect();
            b_side.ids = paired.pairs.iter().map(|(_, b, _)| b.id.clone()).collect();
            let pairs = paired.pairs.iter();
            let pairs = pairs.map(|(a, b, first)| (Taken::one(a), Taken::one(b), *first)).collect();
            Design::Pairs { pairs, drawn: paired.drawn }
        }
        None => {
            let taken = |runs: &[&'a Run]| runs.iter().map(|run| Taken::one(run)).collect();
            Design::Sets(taken(&a_runs), taken(&b_runs))
        }
    };
    let withheld =
        unlike.as_ref().map(|why| format!("the two sides measure different things: {why}"));
    let mixed = all().any(|run| run.is_gap()) && all().any(|run| !run.is_gap());
    let found = if mixed {
        figures::judge(&Design::Sets(Vec::new(), Vec::new()), threshold, withheld.as_deref())
    } else {
        figures::judge(&design, threshold, withheld.as_deref())
    };
    if let Some(why) = &unlike {
        findings.push(
            Finding::new(
                Severity::Problem,
                "compare.unlike",
                "the two sides measure different things",
            )
            .evidence(why.clone())
            .effect("a verdict would be about the difference of the questions")
            .remedy("measure both sides with the same probe, interval and tool"),
        );
    }
    findings.extend(left_out(&a_side, &b_side));
    let (method, drawn) = match &design {
        Design::Pairs { drawn, .. } => (Method::Pairs, *drawn),
        Design::Sets(..) => (Method::Sets, false),
    };
    if method == Method::Sets && stats::sets_suffice(a_runs.len(), b_runs.len()) {
        findings.extend(apart(&a_runs, &b_runs));
    }
    if method == Method::Pairs && !drawn {
        findings.push(no_lot());
    }
    let figures: Vec<ComparedFigure> =
        found.figures.into_iter().map(|one| compared_figure(one, threshold)).collect();
    let sentence = sentence(&a_side, &b_side, &figures, found.verdict);
    let differs = differences(&a_runs, &b_runs);
    Compared {
        schema: SCHEMA.to_owned(),
        a: a_side,
        b: b_side,
        method,
        drawn,
        order: found.order,
        figures,
        verdict: found.verdict,
        p_value: Some(found.p_value),
        p_family: None,
        sentence,
        differs,
        findings,
    }
}

fn compared_figure(one: figures::Judged, threshold: Option<Nanos>) -> ComparedFigure {
    ComparedFigure {
        id: one.id.to_owned(),
        title: figures::title(one.id, threshold),
        unit: one.unit,
        role: one.role,
        a: one.base,
        b: one.other,
        ratio: one.ratio,
        verdict: one.verdict,
        p_value: one.p_value,
        p_family: (one.alone != Verdict::NotShown).then_some(one.p_family),
        note: one.note,
    }
}

/// Takes the verdict away where chance gives as much among all the comparisons that were made together; they are adjusted
/// by Holm.
pub(crate) fn together(all: &mut [&mut Compared]) {
    let p_values: Vec<f64> = all
        .iter()
        .map(|one| if one.verdict == Verdict::NotShown { 1.0 } else { one.p_value.unwrap_or(1.0) })
        .collect();
    let made = all.len();
    for (one, p) in all.iter_mut().zip(stats::holm(&p_values)) {
        let was = one.verdict;
        one.p_family = (was != Verdict::NotShown).then_some(p);
        if made < 2 || was == Verdict::NotShown || p <= LEVEL {
            continue;
        }
        one.verdict = Verdict::NotShown;
        let rest = one.sentence.split_once(": ").map_or("", |(_, rest)| rest).to_owned();
        let rest = rest.trim_end_matches('.');
        one.sentence = format!(
            "Not shown: {rest}; alone it would be {was}, among {made} comparisons chance gives as much in {:.0} % of cases.",
            p * 100.0
        );
        for figure in one.figures.iter_mut().filter(|figure| figure.verdict != Verdict::NotShown) {
            figure.note =
                format!("alone it would be {}; see the comparison as a whole", figure.verdict);
            figure.verdict = Verdict::NotShown;
        }
    }
}

/// The runs that count, oldest first, and what is said of the set.
fn side<'a>(name: &str, runs: &'a [Run]) -> (Side, Vec<&'a Run>) {
    let (mut counts, mut left_out) = (Vec::new(), Vec::new());
    for run in in_time(runs) {
        let changed = judge_run(run).into_iter().find(|f| f.id == "run.state_changed");
        if let Some(changed) = changed {
            left_out.push(format!("{}: {}", printable(&run.id, 60), changed.title));
        } else if run.partial {
            left_out.push(format!(
                "{}: its program was killed, and it is a checkpoint",
                printable(&run.id, 60)
            ));
        } else if run.interrupted == Some(true) {
            left_out.push(format!("{}: it was ended before its time", printable(&run.id, 60)));
        } else if run.readings().count == 0 {
            left_out.push(format!("{}: it holds no reading", printable(&run.id, 60)));
        } else {
            counts.push(run);
        }
    }
    let side = Side {
        name: name.to_owned(),
        ids: counts.iter().map(|run| run.id.clone()).collect(),
        left_out,
        readings: counts.iter().map(|run| run.readings().count).sum(),
        missed: counts.iter().map(|run| run.missed()).sum(),
        lasted: counts
            .iter()
            .map(|run| run.lasted.map(|time| time.0))
            .sum::<Option<u64>>()
            .map(Nanos),
        max: counts.iter().filter_map(|run| run.readings().max).max(),
    };
    (side, counts)
}

/// Runs of both sides, pair by pair.
struct Paired<'a> {
    /// A's, B's, and whether A's came first.
    pairs: Vec<(&'a Run, &'a Run, bool)>,
    /// Whether a lot drew the order of every pair.
    drawn: bool,
    left_out_a: Vec<String>,
    left_out_b: Vec<String>,
}

impl<'a> Paired<'a> {
    /// Those of which both runs count. A void run takes its neighbour with it.
    fn valid(mut self, a: &[&'a Run], b: &[&'a Run]) -> Paired<'a> {
        let ids = |side: &[&'a Run]| -> HashSet<&'a str> {
            side.iter().map(|run| run.id.as_str()).collect()
        };
        let (a, b) = (ids(a), ids(b));
        let lone = |run: &Run| format!("{}: its neighbour is left out", printable(&run.id, 60));
        self.pairs.retain(|(one, other, _)| {
            let (first, second) = (a.contains(one.id.as_str()), b.contains(other.id.as_str()));
            if first && !second {
                self.left_out_a.push(lone(one));
            } else if second && !first {
                self.left_out_b.push(lone(other));
            }
            first && second
        });
        self
    }
}

/// Oldest first.
fn in_time(runs: &[Run]) -> Vec<&Run> {
    let mut runs: Vec<&Run> = runs.iter().collect();
    runs.sort_by(|a, b| (&a.started, &a.id).cmp(&(&b.started, &b.id)));
    runs
}

/// By time, each two neighbours are one of either side.
fn in_turn<'a>(a: &[&'a Run], b: &[&'a Run]) -> Option<Paired<'a>> {
    if a.len() != b.len() || a.len() < 2 {
        return None;
    }
    let pairs: Vec<(&Run, &Run, bool)> =
        a.iter().zip(b).map(|(a, b)| (*a, *b, a.started < b.started)).collect();
    apart_in_time(&pairs).then_some(Paired {
        pairs,
        drawn: false,
        left_out_a: Vec::new(),
        left_out_b: Vec::new(),
    })
}

/// Whether every pair was over before the next one began.
fn apart_in_time(pairs: &[(&Run, &Run, bool)]) -> bool {
    let ends = |(a, b, _): &(&Run, &Run, bool)| {
        let (a, b) = (a.started.clone(), b.started.clone());
        if a < b { (a, b) } else { (b, a) }
    };
    let known = pairs
        .iter()
        .all(|(a, b, _)| a.started.is_some() && b.started.is_some() && a.started != b.started);
    known && pairs.windows(2).all(|two| ends(&two[0]).1 < ends(&two[1]).0)
}

/// The rounds of one campaign, one setting on each side, where they stand beside each other in time.
fn by_round<'a>(a: &[&'a Run], b: &[&'a Run]) -> Option<Paired<'a>> {
    let asked = |cell: &'a Cell| [&cell.campaign, &cell.probe, &cell.stress];
    let of = |runs: &[&'a Run]| -> Option<Vec<(&'a Run, &'a Cell)>> {
        let cells: Vec<(&Run, &Cell)> =
            runs.iter().map(|run| Some((*run, run.cell.as_ref()?))).collect::<Option<_>>()?;
        let (_, first) = cells.first()?;
        let same = |cell: &'a Cell| asked(cell) == asked(first) && cell.setting == first.setting;
        cells.iter().all(|(_, cell)| same(cell)).then_some(cells)
    };
    let (a, b) = (of(a)?, of(b)?);
    if asked(a.first()?.1) != asked(b.first()?.1) {
        return None;
    }
    let mut paired =
        Paired { pairs: Vec::new(), drawn: true, left_out_a: Vec::new(), left_out_b: Vec::new() };
    let lone = |run: &Run| {
        format!("{}: its round has no valid run of the other side", printable(&run.id, 60))
    };
    let mut of_round: HashMap<u32, Vec<(&'a Run, &'a Cell)>> = HashMap::new();
    for (run, cell) in &b {
        of_round.entry(cell.round).or_default().push((run, cell));
    }
    for (run, cell) in &a {
        let others = of_round.get(&cell.round).map(Vec::as_slice);
        let Some([(other, at)]) = others else {
            paired.left_out_a.push(lone(run));
            continue;
        };
        let first = run.started < other.started;
        if let (Some(mine), Some(theirs)) = (cell.lot, at.lot)
            && mine == theirs
        {
            // Measured later than its turn, after a failure: no lot decided that.
            if (cell.place < at.place) != first {
                let why = "it was not measured in the order that was drawn";
                paired.left_out_a.push(format!("{}: {why}", printable(&run.id, 60)));
                paired.left_out_b.push(format!("{}: {why}", printable(&other.id, 60)));
                continue;
            }
        } else {
            paired.drawn = false;
        }
        paired.pairs.push((run, other, first));
    }
    let rounds: HashSet<u32> = a.iter().map(|(_, cell)| cell.round).collect();
    let missing = b.iter().filter(|(_, cell)| !rounds.contains(&cell.round));
    paired.left_out_b.extend(missing.map(|(run, _)| lone(run)));
    paired.pairs.sort_by(|one, next| {
        let begin = |pair: &(&Run, &Run, bool)| pair.0.started.clone().min(pair.1.started.clone());
        begin(one).cmp(&begin(next))
    });
    (!paired.pairs.is_empty() && apart_in_time(&paired.pairs)).then_some(paired)
}

fn no_lot() -> Finding {
    Finding::new(
        Severity::Note,
        "compare.no_lot",
        "the order within each pair of runs was not drawn by lot",
    )
    .effect("what drifts within a pair and happens to follow the order is in the ratio too")
    .remedy("`quietcores prove` and `quietcores campaign` draw it")
}

fn unlike(a: &[&Run], b: &[&Run]) -> Option<String> {
    let kinds = |runs: &[&Run]| {
        let kind = |run: &&Run| match run.spec.probe {
            Measured::Gap => "gap".to_owned(),
            Measured::Wakeup { interval: Some(interval) } => format!("wakeup every {interval}"),
            Measured::Wakeup { interval: None } => "wakeup, the interval not known".to_owned(),
        };
        let tool = |run: &&Run| {
            let format = run.origin.as_ref().map_or("quietcores", |o| o.format.as_str());
            format.split('-').next().unwrap_or_default().to_owned()
        };
        let all = runs.iter().map(|run| format!("{} by {}", kind(run), tool(run)));
        all.collect::<std::collections::BTreeSet<String>>()
    };
    let (a, b) = (kinds(a), kinds(b));
    if a.is_empty() || b.is_empty() || (a.len() == 1 && a == b) {
        return None;
    }
    let list =
        |set: std::collections::BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(", ");
    Some(format!("A: {}; B: {}", list(a), list(b)))
}

fn sentence(a: &Side, b: &Side, figures: &[ComparedFigure], verdict: Verdict) -> String {
    let runs = |n: usize| if n == 1 { "1 run".to_owned() } else { format!("{n} runs") };
    let of = format!("{} against {}", runs(b.ids.len()), runs(a.ids.len()));
    let primary: Vec<String> = figures
        .iter()
        .filter(|f| f.role == Role::Primary)
        .map(|f| {
            let show = |value| words::value(f.unit, value);
            let ratio = words::ratio(f.ratio.value);
            format!("{} from {} to {} ({ratio})", f.title, show(f.a.median), show(f.b.median))
        })
        .collect();
    let primary = if primary.is_empty() {
        "there is no figure that both sides have".to_owned()
    } else {
        primary.join(", ")
    };
    let word = match verdict {
        Verdict::Better => "Better",
        Verdict::Worse => "Worse",
        Verdict::NotShown => "Not shown",
    };
    format!("{word}: {primary}, {of}.")
}

fn left_out(a: &Side, b: &Side) -> Option<Finding> {
    let all: Vec<&str> = a.left_out.iter().chain(&b.left_out).map(String::as_str).collect();
    let are = if all.len() == 1 { "run is" } else { "runs are" };
    (!all.is_empty()).then(|| {
        let title = format!("{} {are} left out", all.len());
        Finding::new(Severity::Warning, "compare.left_out", title).evidence(all.join("; "))
    })
}

/// All of one side before all of the other: what drifted meanwhile is in the ratio.
fn apart(a: &[&Run], b: &[&Run]) -> Option<Finding> {
    let ends = |runs: &[&Run]| {
        let begun = runs.iter().map(|run| run.started.clone()).collect::<Option<Vec<_>>>()?;
        Some((begun.iter().min()?.clone(), begun.iter().max()?.clone()))
    };
    let ((a_first, a_last), (b_first, b_last)) = (ends(a)?, ends(b)?);
    (a_last < b_first || b_last < a_first).then(|| {
        Finding::new(
            Severity::Warning,
            "compare.apart",
            "one side was measured before the other, not in turn with it",
        )
        .effect(
            "what else changed between them (heat, other tenants, the host) is in the ratio too",
        )
        .remedy("`quietcores campaign` measures settings in turn")
    })
}

fn differences(a: &[&Run], b: &[&Run]) -> Vec<Difference> {
    let facts = |runs: &[&Run]| {
        let mut all: BTreeMap<String, std::collections::BTreeSet<String>> = BTreeMap::new();
        for run in runs {
            let mut put = |what: &str, value: String| {
                all.entry(what.to_owned()).or_default().insert(printable(&value, 120));
            };
            put("host", run.host.name.clone());
            put("kernel", run.host.release.clone());
            put("processor", run.host.processor.clone());
            put("program", run.host.program.clone());
            put("cpus", run.spec.cpus.to_string());
            put("policy", run.threads.first().map_or_else(String::new, known::policy));
            let ours = !run.is_imported();
            let names = run.stress.as_ref().map(|stress| stress.names.join(","));
            put("stress", known::or_not(names.or(ours.then(|| "none".to_owned()))));
            put("core", known::or_not(run.spec.core.map(|core| format!("{core:?}"))));
            put("idle", known::or_not(run.spec.idle.map(|idle| format!("{idle:?}"))));
            let inside = if run.entry.is_some() { "inside" } else { "none" };
            put("shield", known::or_not(ours.then_some(inside)));
            for (path, value) in &run.before.files {
                put(path, value.clone());
            }
        }
        all
    };
    let (a, b) = (facts(a), facts(b));
    let list = |set: Option<&std::collections::BTreeSet<String>>| {
        let values: Vec<&str> = set.into_iter().flatten().map(String::as_str).collect();
        if values.is_empty() { "absent".to_owned() } else { values.join(" | ") }
    };
    let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let mut differs: Vec<Difference> = keys
        .into_iter()
        .filter(|what| a.get(*what) != b.get(*what))
        .map(|what| Difference { what: what.clone(), a: list(a.get(what)), b: list(b.get(what)) })
        .collect();
    // Named facts before paths.
    differs.sort_by_key(|difference| difference.what.contains('/'));
    differs.truncate(MOST_DIFFERENCES);
    differs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        example::{self, runs, runs_of},
        stats::Random,
    };
    use quiet_types::{
        campaign::{CellStanding, CellState},
        proof::{Arm, Setting},
    };

    #[test]
    fn a_fourfold_gain_between_sets_is_better_and_backwards_worse() {
        let (a, b) = (runs(1, 6, 80e3, 0, 10), runs(2, 6, 20e3, 600, 10));
        let got = compare_runs(("a", &a), ("b", &b));
        assert_eq!((got.verdict, got.method), (Verdict::Better, Method::Sets), "{}", got.sentence);
        assert!(got.findings.iter().any(|finding| finding.id == "compare.apart"));
        let back = compare_runs(("b", &b), ("a", &a));
        assert_eq!(back.verdict, Verdict::Worse);
        let p99 = |c: &Compared| c.figures[0].ratio.value;
        assert!((p99(&got) * p99(&back) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn runs_in_turn_are_compared_in_pairs() {
        let (mut a, mut b) = (runs(1, 8, 80e3, 0, 10), runs(2, 8, 20e3, 5, 10));
        // A first in every pair: what drifts within a pair cannot be told from the sides.
        let fixed = compare_runs(("a", &a), ("b", &b));
        assert_eq!((fixed.verdict, fixed.method), (Verdict::NotShown, Method::Pairs));
        turn_about(&mut a, &mut b);
        let got = compare_runs(("a", &a), ("b", &b));
        assert_eq!((got.verdict, got.method), (Verdict::Better, Method::Pairs));
        assert!(!got.findings.iter().any(|finding| finding.id == "compare.apart"));
        assert!(got.findings.iter().any(|finding| finding.id == "compare.no_lot"));
        // Five in turn are pairs too, and five show nothing, as in a proof.
        let five = compare_runs(("a", &a[..5]), ("b", &b[..5]));
        assert_eq!((five.verdict, five.method), (Verdict::NotShown, Method::Pairs));
    }

    /// Swaps the times of every second pair.
    fn turn_about(a: &mut [Run], b: &mut [Run]) {
        for (a, b) in a.iter_mut().zip(b).skip(1).step_by(2) {
            std::mem::swap(&mut a.started, &mut b.started);
        }
    }

    /// The same runs as arms of a proof, as runs by themselves, and as cells of a campaign.
    fn three_judges(a: &[Run], b: &[Run]) -> [Vec<(String, Verdict, f64, f64)>; 3] {
        let mut proof = example::proof();
        proof.lot = None;
        proof.spec.threshold = a[0].spec.threshold.unwrap();
        proof.arms.clear();
        let (mut cells, mut runs) = (Vec::new(), Vec::new());
        for (round, (one, other)) in a.iter().zip(b).enumerate() {
            let first = one.started < other.started;
            let arm = |setting, run: &Run| Arm {
                pair: round as u32,
                setting,
                wakeup: run.clone(),
                gap: None,
                void: None,
            };
            let mut two = [arm(Setting::Shared, one), arm(Setting::Shielded, other)];
            if !first {
                two.reverse();
            }
            proof.arms.extend(two);
            for (rank, run) in [one, other].into_iter().enumerate() {
                let setting = ["shared", "shielded"][rank].to_owned();
                let cell = Cell {
                    campaign: "c".into(),
                    key: format!("{round} {setting}"),
                    setting,
                    round: round as u32 + 1,
                    rank: rank as u32,
                    ..Cell::default()
                };
                let (state, why, line) = (CellStanding::Done, String::new(), None);
                cells.push(CellState { cell: cell.clone(), state, why, run: line });
                runs.push(Run { cell: Some(cell), ..run.clone() });
            }
        }
        let judged = crate::judge_proof(&proof);
        let whole = |verdict, p| ("whole".to_owned(), verdict, p, 0.0);
        let of = |compared: &Compared| {
            let figures = compared.figures.iter();
            let mut all: Vec<_> =
                figures.map(|f| (f.id.clone(), f.verdict, f.p_value, f.ratio.value)).collect();
            all.push(whole(compared.verdict, 0.0));
            all
        };
        let mut of_proof: Vec<_> = judged
            .figures
            .iter()
            .map(|f| (f.id.clone(), f.verdict, f.p_value, f.ratio.value))
            .collect();
        of_proof.push(whole(judged.verdict, 0.0));
        let campaign = crate::campaigned("c", cells, &runs, Nanos(0));
        [of_proof, of(&compare_runs(("a", a), ("b", b))), of(&campaign.compared[0].compared)]
    }

    #[test]
    fn the_same_runs_have_the_same_verdict_whoever_is_asked() {
        let mut random = Random::new(404);
        let mut seen = std::collections::BTreeSet::new();
        for (level, count, readings) in [
            (20e3, 8, 20_000),
            (70e3, 8, 20_000),
            (20e3, 6, 20_000),
            (20e3, 5, 20_000),
            (20e3, 8, 2_000),
            (320e3, 8, 20_000),
        ] {
            let mut a = runs_of(random.bits(), count, 80e3, 0, 10, readings);
            let mut b = runs_of(random.bits(), count, level, 5, 10, readings);
            turn_about(&mut a, &mut b);
            let [proof, compare, campaign] = three_judges(&a, &b);
            assert_eq!(proof, compare, "{level} {count} {readings}");
            assert_eq!(proof, campaign, "{level} {count} {readings}");
            seen.insert(format!("{:?}", proof.last().unwrap().1));
            // A run that was cut short takes its neighbour with it everywhere.
            b[1].interrupted = Some(true);
            let [proof, compare, campaign] = three_judges(&a, &b);
            assert_eq!((&proof, &proof), (&compare, &campaign), "{level} {count} {readings}");
        }
        assert_eq!(seen.len(), 3, "{seen:?}");
    }

    #[test]
    fn a_void_run_takes_its_neighbour_of_the_round_with_it_and_no_other() {
        let (cells, mut runs) = example::campaign();
        let void = |run: &mut Run| {
            run.after.files.insert("proc/sys/x".into(), "1".into());
        };
        let whole = crate::campaigned("c", cells.clone(), &runs, Nanos(0));
        let whole = &whole.compared[0].compared;
        assert_eq!((whole.method, whole.drawn, whole.a.ids.len()), (Method::Pairs, true, 6));
        assert_eq!(whole.verdict, Verdict::Better, "{}", whole.sentence);
        // One of either side, in different rounds: four rounds are left, and still pairs.
        let find = |runs: &[Run], setting: &str, round| {
            let is = |cell: &Cell| cell.setting == setting && cell.round == round;
            runs.iter().position(|run| run.cell.as_ref().is_some_and(is)).unwrap()
        };
        for (setting, round) in [("shared", 2), ("shielded", 4)] {
            let at = find(&runs, setting, round);
            void(&mut runs[at]);
        }
        let less = crate::campaigned("c", cells, &runs, Nanos(0));
        let less = &less.compared[0].compared;
        assert_eq!((less.method, less.a.ids.len(), less.b.ids.len()), (Method::Pairs, 4, 4));
        assert_eq!((less.a.left_out.len(), less.b.left_out.len()), (2, 2));
        assert!(
            less.a.ids.iter().chain(&less.b.ids).all(|id| runs.iter().any(|run| {
                run.id == *id && ![2, 4].contains(&run.cell.as_ref().unwrap().round)
            }))
        );
    }

    #[test]
    fn a_cell_that_was_measured_later_than_its_turn_forms_no_pair() {
        let (cells, mut runs) = example::campaign();
        let late =
            runs.iter_mut().find(|run| run.cell.as_ref().is_some_and(|c| c.place == 0)).unwrap();
        // It failed in its turn and was made at the end.
        late.started = Some("2026-11-21T23:59:00.000Z".into());
        let it = crate::campaigned("c", cells, &runs, Nanos(0));
        let compared = &it.compared[0].compared;
        assert_eq!((compared.method, compared.a.ids.len()), (Method::Pairs, 5), "{compared:?}");
        assert!(compared.findings[0].evidence.contains("not measured in the order that was drawn"));
    }

    /// Why six against six interleaved may show nothing of a change from 844 to 31 us: one wild pair of six leaves chance
    /// more than 5 %, by any exact test, and any judge says so; eight pairs that agree do not depend on one.
    #[test]
    fn one_wild_pair_of_six_hides_a_change_for_every_judge_alike_and_is_named() {
        let (mut a, mut b) = (runs(1, 6, 800e3, 0, 10), runs(2, 6, 30e3, 5, 10));
        turn_about(&mut a, &mut b);
        assert_eq!(three_judges(&a, &b)[0].last().unwrap().1, Verdict::Better);
        // In the third pair the host struck the shielded run, and the shared one was lucky.
        (a[2].threads, b[2].threads) = (b[2].threads.clone(), a[2].threads.clone());
        let [proof, compare, campaign] = three_judges(&a, &b);
        assert_eq!((&proof, &proof), (&compare, &campaign));
        assert_eq!(proof.last().unwrap().1, Verdict::NotShown);
        let note = &compare_runs(("a", &a), ("b", &b)).figures[0].note;
        assert!(note.contains("5 of 6 pairs agree"), "{note}");
    }

    #[test]
    fn the_more_comparisons_the_more_it_takes() {
        let (mut a, mut b) = (runs(1, 6, 80e3, 0, 10), runs(2, 6, 20e3, 5, 10));
        turn_about(&mut a, &mut b);
        let one = compare_runs(("a", &a), ("b", &b));
        assert_eq!(one.verdict, Verdict::Better);
        let mut alone = [one.clone()];
        together(&mut alone.iter_mut().collect::<Vec<_>>());
        assert_eq!(alone[0].verdict, Verdict::Better);
        // 2 of 64 is what six pairs can say at most: not enough for two comparisons.
        let mut two = [one.clone(), one];
        together(&mut two.iter_mut().collect::<Vec<_>>());
        assert!(two.iter().all(|one| one.verdict == Verdict::NotShown), "{}", two[0].sentence);
        assert!(two[0].sentence.contains("among 2 comparisons chance gives as much in 6 %"));
        assert_eq!(two[0].p_family, Some(0.0625));
    }

    #[test]
    fn equal_sets_are_called_better_in_less_than_one_of_twenty() {
        let mut random = Random::new(77);
        let better = (0..40)
            .filter(|_| {
                let (a, b) =
                    (runs(random.bits(), 6, 50e3, 0, 10), runs(random.bits(), 6, 50e3, 600, 10));
                compare_runs(("a", &a), ("b", &b)).verdict == Verdict::Better
            })
            .count();
        println!("{better} false `better` of 40");
        assert!(better <= 2, "{better} of 40");
    }

    #[test]
    fn different_questions_get_no_verdict() {
        let (a, mut b) = (runs(1, 6, 80e3, 0, 10), runs(2, 6, 20e3, 600, 10));
        for run in &mut b {
            run.spec.probe = Measured::Wakeup { interval: Some(Nanos::from_millis(1)) };
        }
        let got = compare_runs(("a", &a), ("b", &b));
        assert_eq!(got.verdict, Verdict::NotShown);
        assert_eq!(got.findings[0].id, "compare.unlike");
        assert!(
            compare_runs(("a", &[]), ("b", &b))
                .sentence
                .starts_with("Not shown: there is no figure")
        );
    }

    #[test]
    fn what_differs_is_named_and_a_void_run_left_out() {
        let (a, mut b) = (runs(1, 4, 80e3, 0, 10), runs(2, 4, 20e3, 600, 10));
        for run in &mut b {
            run.host.release = "6.18.0".into();
        }
        b[0].after.files.insert("proc/sys/x".into(), "1".into());
        let got = compare_runs(("a", &a), ("b", &b));
        assert!(got.differs.iter().any(|d| d.what == "kernel" && d.b == "6.18.0"));
        assert_eq!((got.b.ids.len(), got.b.left_out.len()), (3, 1));
    }
}
