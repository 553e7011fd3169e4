//! Runs as Markdown: what a pull request or a wiki shows.

use crate::text;
use quiet_judge::known;
use quiet_types::{Finding, Nanos, Proof, Run, run::MeasuringThread, words};
use std::fmt::Write;

/// Text that no viewer takes for markup: names come from anywhere.
pub(crate) fn cell(text: &str) -> String {
    let mut safe = String::new();
    for c in quiet_types::printable(text, 400).chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '!' | '~' => {
                safe.push('\\');
                safe.push(c);
            }
            c => safe.push(c),
        }
    }
    safe
}

pub(crate) fn row(text: &mut String, cells: &[&str]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

pub(crate) fn findings(findings: &[Finding]) -> String {
    let mut text = String::new();
    if !findings.is_empty() {
        text.push_str("\n## Findings\n\n");
    }
    for finding in findings {
        let severity = format!("{:?}", finding.severity).to_lowercase();
        let _ = write!(text, "- **{}** ({severity})", cell(&finding.title));
        for more in [&finding.evidence, &finding.effect, &finding.remedy] {
            if !more.is_empty() {
                let _ = write!(text, " {}", cell(more));
                if !more.ends_with('.') {
                    text.push('.');
                }
            }
        }
        text.push('\n');
    }
    text
}

/// Runs as Markdown: a row a thread, causes where they were asked for, findings.
pub fn runs_markdown(runs: &[Run]) -> String {
    let title = match runs {
        [one] => text::asked(one),
        many => format!("{} runs", many.len()),
    };
    let mut text = format!("# {}\n", cell(&title));
    if let Some(run) = runs.first() {
        let host = &run.host;
        let _ = write!(
            text,
            "\n{}, {}, Linux {}, {}\n",
            cell(&host.name),
            cell(&host.processor),
            cell(&host.release),
            cell(run.started.as_deref().map_or("undated", |at| at.get(..16).unwrap_or(at)))
        );
    }
    for gap in [false, true] {
        let these: Vec<&Run> = runs.iter().filter(|run| run.is_gap() == gap).collect();
        if these.is_empty() {
            continue;
        }
        let _ = write!(text, "\n## {}\n\n", if gap { "Gaps" } else { "Wakeup latency" });
        let last = if gap { "gap time" } else { "missed" };
        row(
            &mut text,
            &["run", "CPU", "policy", "min", "p50", "p99", "p99.9", "max", "beyond", last],
        );
        text.push_str("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
        for run in these {
            for thread in &run.threads {
                thread_row(&mut text, run, thread);
            }
        }
    }
    for run in runs {
        causes(&mut text, run);
    }
    let mut found: Vec<Finding> = Vec::new();
    for finding in runs.iter().flat_map(text::findings) {
        if !found.iter().any(|known| known.id == finding.id) {
            found.push(finding);
        }
    }
    text.push_str(&findings(&found));
    text
}

/// A thread's figures; of a gap run what was stolen, of the others what was missed.
fn thread_row(text: &mut String, run: &Run, thread: &MeasuringThread) {
    let gap = run.is_gap();
    let all = thread.corrected.as_ref().unwrap_or(&thread.readings);
    let shown = |time: Option<Nanos>| time.map_or("–".into(), |t| run.figure(t));
    let name = if run.label.is_empty() { &run.id } else { &run.label };
    let share = |count: u64, whole: u64| words::share(count as f64 / whole.max(1) as f64);
    row(
        text,
        &[
            &cell(name),
            &thread.cpu.to_string(),
            &known::policy(thread),
            &shown(thread.readings.min),
            &shown(all.percentile(0.5)),
            &shown(all.percentile(0.99)),
            &shown(all.percentile(0.999)),
            &shown(thread.readings.max),
            &known::or_not(if gap {
                thread.beyond.map(words::count)
            } else {
                let of = run.spec.threshold.zip(thread.expected);
                of.map(|(limit, expected)| share(all.above(limit), expected))
            }),
            &known::or_not(if gap {
                let of = thread.stolen.zip(run.lasted);
                of.map(|(stolen, lasted)| share(stolen.0, lasted.0))
            } else {
                thread.missed.map(words::count)
            }),
        ],
    );
}

/// Who took time, a table for each CPU, where it was asked for.
fn causes(text: &mut String, run: &Run) {
    let Some(explained) = &run.explained else { return };
    for cpu in &explained.cpus {
        let _ = write!(
            text,
            "\n## Who took time from CPU {}\n\n{} readings above {}, {} in all, {} of it named, {} the host's, {} unexplained.\n\n",
            cpu.cpu,
            cpu.readings,
            explained.threshold,
            cpu.total,
            cpu.named,
            cpu.host,
            cpu.unexplained
        );
        row(text, &["who", "time", "times", "longest", "what removes it"]);
        text.push_str("| --- | ---: | ---: | ---: | --- |\n");
        for share in cpu.causes.iter().take(15) {
            row(
                text,
                &[
                    &cell(&share.title),
                    &share.total.map_or("–".to_owned(), |total| total.to_string()),
                    &share.times.to_string(),
                    &share.longest.to_string(),
                    &cell(&share.knob),
                ],
            );
        }
    }
}

/// A proof as Markdown: verdict, figures, findings.
pub fn proof_markdown(proof: &Proof) -> String {
    let mut text = format!("# {}\n\n{}\n\n", cell(&proof.sentence), cell(&proof.question));
    row(&mut text, &["figure", "shared", &proof.other().to_string(), "ratio", "p", "verdict"]);
    text.push_str("| --- | ---: | ---: | --- | ---: | --- |\n");
    for figure in &proof.figures {
        row(
            &mut text,
            &[
                &cell(&figure.title),
                &words::value(figure.unit, figure.shared.median),
                &words::value(figure.unit, figure.shielded.median),
                &words::ratio_between(figure.ratio),
                &words::p_value(figure.p_value),
                &figure.verdict.to_string(),
            ],
        );
    }
    let _ = write!(text, "\n{}\n", cell(&text::restored(proof)));
    text.push_str(&findings(&proof.findings));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_judge::example;

    #[test]
    fn a_proof_and_a_run_become_tables_of_equal_rows_and_hostile_names_stay_text() {
        let mut run = example::run();
        run.label = "a|b <script>*x*".into();
        for page in [runs_markdown(&[run]), proof_markdown(&example::proof())] {
            let tables = page.lines().filter(|line| line.starts_with('|'));
            let bars = |line: &str| line.replace("\\|", "").matches('|').count();
            let widths: Vec<usize> = tables.map(bars).collect();
            assert!(widths.len() >= 3 && widths.iter().all(|w| *w == widths[0]), "{page}");
            assert!(page.starts_with("# ") && !page.contains("<script>"), "{page}");
        }
    }
}
