//! An audit as text for people.

use crate::{machine::Colour, wrap};
use quiet_types::{
    Finding, Severity,
    check::{CheckOutcome, Checked, MeasuredHere},
    finding::When,
    printable,
};

/// Nothing in a finding is longer than this on a terminal.
const LONGEST: usize = 1_000;

/// How the text is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal, at least 40.
    pub width: usize,
    /// Whether titles stand out.
    pub colour: Colour,
}

/// Findings, greatest effect first, each with its evidence, effect and remedy; then, where the
/// audit holds it, what every check came to.
pub fn check_text(checked: &Checked, style: Style) -> String {
    let mut page = Page { text: String::new(), width: style.width.max(40), colour: style.colour };
    for finding in &checked.findings {
        page.finding(finding, &checked.measured);
    }
    if !checked.looked.is_empty() {
        looked(&mut page, checked);
    }
    page.text += &summary(&checked.findings);
    page.text
}

/// `2 problems, 3 warnings, 4 notes.`
fn summary(findings: &[Finding]) -> String {
    let count = |severity, one: &str| {
        let n = findings.iter().filter(|finding| finding.severity == severity).count();
        if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
    };
    if findings.is_empty() {
        return "Nothing found that stands in the way.\n".into();
    }
    format!(
        "{}, {}, {}.\n",
        count(Severity::Problem, "problem"),
        count(Severity::Warning, "warning"),
        count(Severity::Note, "note")
    )
}

/// From when on a remedy works, in words.
pub fn when(when: When) -> &'static str {
    match when {
        When::RunTime => "works at once",
        When::Login => "works after the next login",
        When::Reboot => "works after a reboot",
        When::Hands => "done by hand",
    }
}

fn severity(severity: Severity) -> (&'static str, &'static str) {
    match severity {
        Severity::Problem => ("problem", "1;31"),
        Severity::Warning => ("warning", "1;33"),
        Severity::Note => ("note", "1"),
    }
}

struct Page {
    text: String,
    width: usize,
    colour: Colour,
}

impl Page {
    fn finding(&mut self, finding: &Finding, measured: &[MeasuredHere]) {
        let (word, code) = severity(finding.severity);
        let id = printable(&finding.id, 60);
        let title = format!("{word}: {}", printable(&finding.title, LONGEST));
        self.paragraph("", &title, Some(code));
        self.paragraph("  read    ", &finding.evidence, None);
        self.paragraph("  effect  ", &finding.effect, None);
        let remedy = match finding.when {
            Some(moment) if !finding.remedy.is_empty() => {
                format!("{} ({})", finding.remedy, when(moment))
            }
            _ => finding.remedy.clone(),
        };
        self.paragraph("  remedy  ", &remedy, None);
        for here in measured.iter().filter(|here| here.finding == finding.id) {
            let day = here.started.get(..10).unwrap_or_default();
            let said = format!(
                "{} (measured on this machine, {day}, kernel {}, stress {})",
                here.said, here.kernel, here.stress
            );
            self.paragraph("  here    ", &said, None);
        }
        self.paragraph("  id      ", &id, None);
        self.text.push('\n');
    }

    /// `first`, then the words of `text`, wrapped; later lines begin under the first word.
    fn paragraph(&mut self, first: &str, text: &str, code: Option<&str>) {
        if text.is_empty() {
            return;
        }
        let blank = " ".repeat(first.chars().count());
        let lines = wrap(&printable(text, LONGEST), self.width - blank.len(), 0);
        for (at, line) in lines.lines().enumerate() {
            let indent = if at == 0 { first } else { &blank };
            match (code, self.colour) {
                (Some(code), Colour::Ansi) => {
                    self.text += &format!("{indent}\x1b[{code}m{line}\x1b[0m\n");
                }
                _ => self.text += &format!("{indent}{line}\n"),
            }
        }
    }
}

fn looked(page: &mut Page, checked: &Checked) {
    let groups = [
        (CheckOutcome::Fine, "Fine"),
        (CheckOutcome::Unknown, "Not told by this snapshot"),
        (CheckOutcome::Moot, "Does not apply here"),
    ];
    for (outcome, heading) in groups {
        let of: Vec<_> = checked.looked.iter().filter(|look| look.result == outcome).collect();
        if of.is_empty() {
            continue;
        }
        page.paragraph(
            "",
            &format!("{heading}: {} of {}", of.len(), checked.looked.len()),
            Some("1"),
        );
        for look in of {
            let id = printable(&look.id, 60);
            page.paragraph(
                &format!("  {id:<26} "),
                &format!("{}: {}", look.about, look.because),
                None,
            );
        }
        page.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::check::{Looked, SCHEMA};

    fn audit() -> Checked {
        let finding = Finding::new(
            Severity::Warning,
            "power.governor",
            "the frequency of CPUs 0-3 changes with use",
        )
        .evidence("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor is powersave\x1b[31m")
        .effect("each change stops the core for some microseconds")
        .remedy("write performance there")
        .when(When::RunTime);
        let looked = Looked {
            id: "kernel.timers".into(),
            about: "high-resolution timers".into(),
            result: CheckOutcome::Fine,
            because: "CONFIG_HIGH_RES_TIMERS=y".into(),
        };
        Checked {
            schema: SCHEMA.into(),
            measured: vec![MeasuredHere {
                finding: finding.id.clone(),
                said: "watchdog: not shown, p99 x0.99 [0.9, 1.1]".into(),
                tune: "a-tune-b".into(),
                started: "2026-11-21T21:30:00.000Z".into(),
                kernel: "6.18".into(),
                stress: "kernel".into(),
            }],
            findings: vec![finding],
            looked: vec![looked],
        }
    }

    #[test]
    fn a_finding_reads_as_a_paragraph_and_no_escape_gets_through() {
        let text = check_text(&audit(), Style { width: 60, colour: Colour::Plain });
        assert_eq!(
            text,
            "warning: the frequency of CPUs 0-3 changes with use\n\
             \x20 read    /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor\n\
             \x20         is powersave\u{fffd}[31m\n\
             \x20 effect  each change stops the core for some microseconds\n\
             \x20 remedy  write performance there (works at once)\n\
             \x20 here    watchdog: not shown, p99 x0.99 [0.9, 1.1]\n\
             \x20         (measured on this machine, 2026-11-21, kernel\n\
             \x20         6.18, stress kernel)\n\
             \x20 id      power.governor\n\
             \n\
             Fine: 1 of 1\n\
             \x20 kernel.timers              high-resolution timers:\n\
             \x20                            CONFIG_HIGH_RES_TIMERS=y\n\
             \n\
             0 problems, 1 warning, 0 notes.\n"
        );
    }

    #[test]
    fn no_line_is_wider_than_asked_but_for_a_single_word() {
        for width in [40, 60, 100] {
            let text = check_text(&audit(), Style { width, colour: Colour::Plain });
            for line in text.lines().filter(|line| line.split_whitespace().count() > 2) {
                assert!(line.chars().count() <= width, "{line}");
            }
        }
    }

    #[test]
    fn nothing_found_is_said() {
        let none =
            Checked { schema: SCHEMA.into(), findings: vec![], looked: vec![], measured: vec![] };
        let text = check_text(&none, Style { width: 80, colour: Colour::Plain });
        assert_eq!(text, "Nothing found that stands in the way.\n");
    }
}
