//! Any two sets of runs, compared figure by figure.

use crate::{
    judge_run,
    stats::{self, FEWEST_PAIRS, Resolution, Value},
    words,
};
use quiet_types::{
    Finding, Nanos, Run, Severity,
    compared::{Compared, ComparedFigure, Difference, Method, SCHEMA, Side},
    printable,
    proof::{Role, Unit, Verdict},
    run::Probe,
};
use std::{collections::BTreeMap, fmt::Write};

/// A percentile with fewer readings beyond it is an anecdote.
const FEWEST_BEYOND: f64 = 10.0;
/// Width of a bucket, as a part of its value.
const BUCKET: f64 = 1.0 / 64.0;
/// More differences are not listed.
const MOST_DIFFERENCES: usize = 40;

struct Rule {
    id: &'static str,
    unit: Unit,
    role: Role,
    take: fn(&Run, Nanos) -> Option<Value>,
}

/// Declared before anything is looked at. Maxima are shown by side and never judged.
const WAKEUP: [Rule; 5] = [
    Rule {
        id: "wakeup.p99",
        unit: Unit::Nanoseconds,
        role: Role::Primary,
        take: |r, _| percentile(r, 0.99),
    },
    Rule { id: "wakeup.beyond", unit: Unit::Share, role: Role::Primary, take: beyond },
    Rule {
        id: "wakeup.p99.9",
        unit: Unit::Nanoseconds,
        role: Role::Guard,
        take: |r, _| percentile(r, 0.999),
    },
    Rule { id: "wakeup.missed", unit: Unit::Share, role: Role::Guard, take: missed },
    Rule {
        id: "wakeup.p50",
        unit: Unit::Nanoseconds,
        role: Role::Context,
        take: |r, _| percentile(r, 0.5),
    },
];

const GAP: [Rule; 2] = [
    Rule { id: "gap.stolen", unit: Unit::Share, role: Role::Primary, take: stolen },
    Rule {
        id: "gap.p99.99",
        unit: Unit::Nanoseconds,
        role: Role::Guard,
        take: |r, _| percentile(r, 0.9999),
    },
];

/// Compares the runs of B with those of A.
///
/// Runs made in turn are compared in pairs ([`stats::compare`]), others as sets
/// ([`stats::compare_sets`]). The whole is **better** when every primary figure is and no guard is
/// worse; **worse** when a primary figure is and none is better; else **not shown**.
pub fn compare_runs(a: (&str, &[Run]), b: (&str, &[Run])) -> Compared {
    let (a_side, a_runs) = side(a.0, a.1);
    let (b_side, b_runs) = side(b.0, b.1);
    let mut findings = Vec::new();
    let all = || a_runs.iter().chain(&b_runs);
    let gap = all().next().is_some_and(|run| run.spec.probe == Probe::Gap);
    let unlike = unlike(&a_runs, &b_runs);
    let pairs = in_turn(&a_runs, &b_runs);
    let method = if pairs { Method::Pairs } else { Method::Sets };
    let threshold = all().map(|run| run.spec.threshold).max().unwrap_or_default();
    let rules: &[Rule] = if gap { &GAP } else { &WAKEUP };
    let mut figures: Vec<ComparedFigure> = Vec::new();
    if !all().any(|run| (run.spec.probe == Probe::Gap) != gap) {
        figures = rules
            .iter()
            .filter_map(|rule| figure(rule, &a_runs, &b_runs, method, threshold))
            .collect();
    }
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
        for figure in &mut figures {
            figure.verdict = Verdict::NotShown;
            figure.note = format!("the two sides measure different things: {why}");
        }
    }
    findings.extend(left_out(&a_side, &b_side));
    if !pairs && stats::sets_suffice(a_runs.len(), b_runs.len()) {
        findings.extend(apart(&a_runs, &b_runs));
    }
    let verdict = overall(&figures);
    let sentence = sentence(&a_side, &b_side, &figures, verdict);
    let differs = differences(&a_runs, &b_runs);
    Compared {
        schema: SCHEMA.to_owned(),
        a: a_side,
        b: b_side,
        method,
        figures,
        verdict,
        sentence,
        differs,
        findings,
    }
}

/// The runs that count, oldest first, and what is said of the set.
fn side<'a>(name: &str, runs: &'a [Run]) -> (Side, Vec<&'a Run>) {
    let (mut counts, mut left_out) = (Vec::new(), Vec::new());
    for run in runs {
        let changed = judge_run(run).into_iter().find(|f| f.id == "run.state_changed");
        if let Some(changed) = changed {
            left_out.push(format!("{}: {}", printable(&run.id, 60), changed.title));
        } else if run.readings().count == 0 {
            left_out.push(format!("{}: it holds no reading", printable(&run.id, 60)));
        } else {
            counts.push(run);
        }
    }
    counts.sort_by(|a, b| (&a.started, &a.id).cmp(&(&b.started, &b.id)));
    let side = Side {
        name: name.to_owned(),
        ids: counts.iter().map(|run| run.id.clone()).collect(),
        left_out,
        readings: counts.iter().map(|run| run.readings().count).sum(),
        missed: counts.iter().map(|run| run.missed()).sum(),
        lasted: Nanos(counts.iter().map(|run| run.lasted.0).sum()),
        max: counts.iter().filter_map(|run| run.readings().max).max(),
    };
    (side, counts)
}

/// Whether the runs were made in turn: by time, each two neighbours are one of either side.
fn in_turn(a: &[&Run], b: &[&Run]) -> bool {
    if a.len() != b.len() || a.len() < FEWEST_PAIRS {
        return false;
    }
    let mut all: Vec<(&str, bool)> = a.iter().map(|run| (run.started.as_str(), true)).collect();
    all.extend(b.iter().map(|run| (run.started.as_str(), false)));
    all.sort_unstable();
    let distinct = all.windows(2).all(|two| two[0].0 != two[1].0) && !all[0].0.is_empty();
    distinct && all.chunks_exact(2).all(|two| two[0].1 != two[1].1)
}

fn unlike(a: &[&Run], b: &[&Run]) -> Option<String> {
    let kinds = |runs: &[&Run]| {
        let kind = |run: &&Run| match run.spec.probe {
            Probe::Gap => "gap".to_owned(),
            Probe::Wakeup { interval } => format!("wakeup every {interval}"),
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

fn figure(
    rule: &Rule,
    a: &[&Run],
    b: &[&Run],
    method: Method,
    threshold: Nanos,
) -> Option<ComparedFigure> {
    let take = |runs: &[&Run]| -> Option<Vec<Value>> {
        runs.iter().map(|run| (rule.take)(run, threshold)).collect()
    };
    let (of_a, of_b) = (take(a)?, take(b)?);
    if of_a.is_empty() || of_b.is_empty() {
        return None;
    }
    let runs = || a.iter().chain(b);
    let floor = runs().map(|run| run.clock.floor.max(run.resolution())).max().unwrap_or_default();
    let smallest = of_a.iter().chain(&of_b).map(|v| v.half).fold(0.0, f64::max) * 2.0;
    let resolution = match rule.unit {
        Unit::Nanoseconds => {
            Resolution { absolute: smallest.max(floor.0 as f64), relative: BUCKET }
        }
        Unit::Share => Resolution { absolute: smallest, relative: 0.0 },
    };
    let mut found = match method {
        Method::Pairs => {
            let pairs: Vec<(Value, Value)> = of_a.into_iter().zip(of_b).collect();
            stats::compare(&pairs, resolution)
        }
        Method::Sets => stats::compare_sets(&of_a, &of_b, resolution),
    };
    if rule.unit == Unit::Share && found.base.median == 0.0 && found.other.median == 0.0 {
        (found.verdict, found.note) =
            (Verdict::NotShown, "none in most runs of either side".to_owned());
    }
    if rule.unit == Unit::Nanoseconds && found.base.median.min(found.other.median) < floor.0 as f64
    {
        found.verdict = Verdict::NotShown;
        found.note = format!("below the instrument's own step or noise of {floor}");
    }
    let title = match rule.id {
        "wakeup.beyond" => format!("beyond {threshold}"),
        "wakeup.missed" => "missed periods".to_owned(),
        "gap.stolen" => "stolen time".to_owned(),
        other => other.split_once('.').map_or(other, |(_, rest)| rest).to_owned(),
    };
    Some(ComparedFigure {
        id: rule.id.to_owned(),
        title,
        unit: rule.unit,
        role: rule.role,
        a: found.base,
        b: found.other,
        ratio: found.ratio,
        verdict: found.verdict,
        p_value: found.p_value,
        note: found.note,
    })
}

fn percentile(run: &Run, q: f64) -> Option<Value> {
    let all = run.readings();
    if all.count as f64 * (1.0 - q) < FEWEST_BEYOND {
        return None;
    }
    Some(Value { value: all.percentile(q)?.0 as f64, half: 0.5 })
}

fn expected(run: &Run) -> u64 {
    run.threads.iter().map(|thread| thread.expected).sum()
}

fn share(run: &Run, count: u64) -> Option<Value> {
    let all = expected(run);
    (all > 0).then(|| Value { value: count as f64 / all as f64, half: 0.5 / all as f64 })
}

fn beyond(run: &Run, threshold: Nanos) -> Option<Value> {
    let all = run.readings();
    (!all.buckets.is_empty() || all.over == 0).then_some(())?;
    share(run, all.above(threshold))
}

fn missed(run: &Run, _: Nanos) -> Option<Value> {
    let unknown = run.findings.iter().any(|finding| finding.id == "import.missed_unknown");
    if unknown { None } else { share(run, run.missed()) }
}

fn stolen(run: &Run, _: Nanos) -> Option<Value> {
    let whole = run.lasted.0 as f64 * run.threads.len() as f64;
    let own: u64 = run.threads.iter().map(|thread| thread.stolen.0).sum();
    let half = run.spec.threshold.0.max(1) as f64 / 2.0 / whole;
    (whole > 0.0 && run.origin.is_none()).then_some(Value { value: own as f64 / whole, half })
}

fn overall(figures: &[ComparedFigure]) -> Verdict {
    let count = |role: Role, verdict: Verdict| {
        figures.iter().filter(|f| f.role == role && f.verdict == verdict).count()
    };
    let primary = figures.iter().filter(|f| f.role == Role::Primary).count();
    let (better, worse) =
        (count(Role::Primary, Verdict::Better), count(Role::Primary, Verdict::Worse));
    if primary > 0 && better == primary && count(Role::Guard, Verdict::Worse) == 0 {
        Verdict::Better
    } else if worse > 0 && better == 0 {
        Verdict::Worse
    } else {
        Verdict::NotShown
    }
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
        let first = runs.iter().map(|run| run.started.clone()).min()?;
        Some((first, runs.iter().map(|run| run.started.clone()).max()?))
    };
    let ((a_first, a_last), (b_first, b_last)) = (ends(a)?, ends(b)?);
    (a_last < b_first || b_last < a_first).then(|| {
        Finding::new(
            Severity::Note,
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
            let scheduling = run.threads.first().map(|t| t.scheduling);
            let scheduling = scheduling.map(|s| crate::text::policy(s.policy, s.priority));
            put("policy", scheduling.unwrap_or_default());
            let names = run.stress.as_ref().map(|stress| stress.names.join(","));
            put("stress", names.unwrap_or_else(|| "none".to_owned()));
            put("idle", format!("{:?}", run.spec.idle));
            put("shield", if run.entry.is_some() { "inside" } else { "none" }.to_owned());
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

/// A comparison as text, at most `width` columns wide.
pub fn compared_text(compared: &Compared, width: usize) -> String {
    use crate::text::{Column, Table, findings_text, wrap};
    let width = width.max(20);
    let mut text = format!("{}\n\n", wrap(&printable(&compared.sentence, 1000), width, 0));
    let mut table = Table::new([
        Column::Left("figure"),
        Column::Right("A"),
        Column::Right("B"),
        Column::Left("ratio [interval]"),
        Column::Right("p"),
        Column::Left("verdict"),
    ])
    .yields(&["p"]);
    for figure in &compared.figures {
        let show = |value| words::value(figure.unit, value);
        table.row([
            figure.title.clone(),
            show(figure.a.median),
            show(figure.b.median),
            words::ratio_between(figure.ratio),
            words::p_value(figure.p_value),
            figure.verdict.to_string(),
        ]);
    }
    let max = |side: &Side| side.max.map_or("-".to_owned(), |max| max.to_string());
    table.row([
        "max".to_owned(),
        max(&compared.a),
        max(&compared.b),
        String::new(),
        String::new(),
        "not judged".to_owned(),
    ]);
    text.push_str(&table.text(width));
    let mut notes: Vec<(&str, Vec<&str>)> = Vec::new();
    for figure in compared.figures.iter().filter(|figure| !figure.note.is_empty()) {
        match notes.iter_mut().find(|(note, _)| *note == figure.note) {
            Some((_, titles)) => titles.push(&figure.title),
            None => notes.push((&figure.note, vec![&figure.title])),
        }
    }
    for (note, titles) in notes {
        let line = format!("{}: {note}", titles.join(", "));
        let _ = writeln!(text, "{}", wrap(&printable(&line, 600), width, 2));
    }
    let how = match compared.method {
        Method::Pairs => "runs made in turn, compared in pairs: exact sign-flip test",
        Method::Sets => {
            "two sets of runs: Hodges and Lehmann's shift, Mann and Whitney's exact test"
        }
    };
    let _ = writeln!(text, "{}", wrap(&format!("{how}; 95 % intervals"), width, 0));
    let side = |letter: char, side: &Side| {
        let name = printable(&side.name, 60);
        let runs = side.ids.len();
        format!(
            "{letter}  {name}: {runs} runs, {} readings, {} missed, {} in all\n",
            words::count(side.readings),
            words::count(side.missed),
            side.lasted
        )
    };
    text.push('\n');
    text.push_str(&side('A', &compared.a));
    text.push_str(&side('B', &compared.b));
    if !compared.differs.is_empty() {
        text.push('\n');
        let mut table =
            Table::new([Column::Left("what differs"), Column::Left("A"), Column::Left("B")]);
        for one in &compared.differs {
            table.row([one.what.clone(), printable(&one.a, 40), printable(&one.b, 40)]);
        }
        text.push_str(&table.text(width));
    }
    if !compared.findings.is_empty() {
        text.push('\n');
        text.push_str(&findings_text(&compared.findings, width));
    }
    text
}

/// A comparison as JUnit XML: a test case a figure; a figure that got worse failed, one that is
/// not shown was skipped.
pub fn compared_junit(compared: &Compared) -> String {
    let count = |verdict: Verdict| compared.figures.iter().filter(|f| f.verdict == verdict).count();
    let (name, class) = (xml(&compared.b.name), "quietcores.compare");
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{name} against {}\" \
         tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\">\n",
        xml(&compared.a.name),
        compared.figures.len(),
        count(Verdict::Worse),
        count(Verdict::NotShown)
    );
    for figure in &compared.figures {
        let said = xml(&said(figure));
        let inside = match figure.verdict {
            Verdict::Better => format!("\n      <system-out>{said}</system-out>\n    "),
            Verdict::Worse => format!("\n      <failure message=\"worse: {said}\"/>\n    "),
            Verdict::NotShown => format!("\n      <skipped message=\"not shown: {said}\"/>\n    "),
        };
        let id = xml(&figure.id);
        let _ =
            writeln!(text, "    <testcase classname=\"{class}\" name=\"{id}\">{inside}</testcase>");
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

/// A comparison in the Test Anything Protocol, version 13.
pub fn compared_tap(compared: &Compared) -> String {
    let mut text = format!("TAP version 13\n1..{}\n", compared.figures.len());
    for (at, figure) in compared.figures.iter().enumerate() {
        let (ok, more) = match figure.verdict {
            Verdict::Better => ("ok", ""),
            Verdict::Worse => ("not ok", ""),
            Verdict::NotShown => ("ok", " # SKIP not shown"),
        };
        let _ = writeln!(text, "{ok} {} - {}{more}", at + 1, figure.id);
        let _ = writeln!(text, "# {}", printable(&said(figure), 400).replace('#', " "));
    }
    text
}

fn said(figure: &ComparedFigure) -> String {
    let show = |value| words::value(figure.unit, value);
    let note = if figure.note.is_empty() { String::new() } else { format!("; {}", figure.note) };
    format!(
        "{} from {} to {}, {}, p {}{note}",
        figure.title,
        show(figure.a.median),
        show(figure.b.median),
        words::ratio_between(figure.ratio),
        words::p_value(figure.p_value)
    )
}

/// Text fit for an attribute of XML: markup escaped, characters that XML forbids left out.
fn xml(text: &str) -> String {
    let plain: String =
        text.chars().filter(|c| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}')).collect();
    crate::svg::escape(&plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{example, stats::Random};
    use quiet_types::Histogram;

    /// Runs around `center` ns, one every `step` seconds from `first`.
    fn runs(seed: u64, count: usize, center: f64, first: u32, step: u32) -> Vec<Run> {
        let mut random = Random::new(seed);
        let example = example::run();
        (0..count)
            .map(|at| {
                let mut run = example.clone();
                let second = first + at as u32 * step;
                run.id = format!("r{second:04}");
                run.started = format!("2026-11-21T21:{:02}:{:02}.000Z", second / 60, second % 60);
                let level = center * (0.7 + 0.6 * random.unit());
                let all = Histogram::of(
                    (0..20_000).map(|_| Nanos((level * (1.0 - random.unit()).powf(-0.25)) as u64)),
                );
                let thread = &mut run.threads[0];
                (thread.expected, thread.obtained, thread.missed) = (4_000, 4_000, 0);
                thread.corrected = Some(all.clone());
                thread.readings = all;
                run
            })
            .collect()
    }

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
        let (a, b) = (runs(1, 8, 80e3, 0, 10), runs(2, 8, 20e3, 5, 10));
        let got = compare_runs(("a", &a), ("b", &b));
        assert_eq!((got.verdict, got.method), (Verdict::Better, Method::Pairs));
        assert!(!got.findings.iter().any(|finding| finding.id == "compare.apart"));
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
            run.spec.probe = Probe::Wakeup { interval: Nanos::from_millis(1) };
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
        let text = compared_text(&got, 100);
        assert!(text.contains("what differs") && text.contains("6.18.0"), "{text}");
    }

    #[test]
    fn machines_read_the_verdict() {
        let (a, b) = (runs(1, 6, 20e3, 0, 10), runs(2, 6, 80e3, 600, 10));
        let got = compare_runs(("<a>&\"\u{1b}", &a), ("b", &b));
        let junit = compared_junit(&got);
        assert!(junit.contains("failures=\"") && junit.contains("<failure message=\"worse: p99"));
        assert!(junit.contains("&lt;a&gt;&amp;&quot;\" tests="), "{junit}");
        let tap = compared_tap(&got);
        assert!(
            tap.starts_with(&format!(
                "TAP version 13\n1..{}\nnot ok 1 - wakeup.p99\n",
                got.figures.len()
            )),
            "{tap}"
        );
    }
}
