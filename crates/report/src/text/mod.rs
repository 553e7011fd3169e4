//! Text for people at a terminal: aligned tables, wrapped sentences, no colour.

mod explain;
mod proof;
mod run;
mod table;

pub use explain::explained_text;
pub(crate) use explain::part;
pub use proof::proof_text;
pub(crate) use proof::{lot, restored};
pub use run::run_text;
pub(crate) use run::{asked, findings};
pub use table::{Column, Table, fit, wrap};

use quiet_types::{Finding, Severity, printable};
use std::fmt::Write;

/// How a finding of this severity begins.
pub fn severity_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Problem => "PROBLEM",
    }
}

/// Findings as a list: a mark, the sentence, then evidence, effect and remedy indented.
pub fn findings_text(findings: &[Finding], width: usize) -> String {
    let mut text = String::new();
    for finding in findings {
        let mark = severity_word(finding.severity);
        let _ = writeln!(
            text,
            "{}",
            wrap(&format!("{mark}: {}", printable(&finding.title, 400)), width, 2)
        );
        for part in [&finding.evidence, &finding.effect, &finding.remedy] {
            if !part.is_empty() {
                let _ = writeln!(text, "  {}", wrap(&printable(part, 2000), width - 2, 2));
            }
        }
    }
    text
}
