//! What a check comes to.

use quiet_types::{Finding, Severity, check::CheckOutcome};

/// What one check came to.
pub(super) enum Verdict {
    /// All is well; what was seen.
    Fine(String),
    /// It does not apply; why.
    Moot(String),
    /// The snapshot does not tell; what is missing.
    Unknown(String),
    /// Findings, whose ids the caller fills in.
    Found(Vec<Finding>),
}

/// Why a check of the chain's own CPUs does not apply.
pub(super) const NO_QUIET: &str = "no CPU is set apart for a chain";
/// Why a check of audio programs does not apply.
pub(super) const NO_AUDIO: &str = "no program that carries sound is running";

use Verdict::{Fine, Found, Moot, Unknown};

impl Verdict {
    /// The findings, or else `fine`.
    pub fn of(findings: Vec<Finding>, fine: impl Into<String>) -> Verdict {
        if findings.is_empty() { Fine(fine.into()) } else { Found(findings) }
    }

    pub fn outcome(&self) -> (CheckOutcome, String) {
        match self {
            Fine(seen) => (CheckOutcome::Fine, seen.clone()),
            Moot(why) => (CheckOutcome::Moot, why.clone()),
            Unknown(what) => (CheckOutcome::Unknown, what.clone()),
            Found(findings) => {
                let titles: Vec<&str> = findings.iter().map(|f| f.title.as_str()).collect();
                (CheckOutcome::Found, titles.join("; "))
            }
        }
    }
}

impl From<Finding> for Verdict {
    fn from(finding: Finding) -> Verdict {
        Found(vec![finding])
    }
}

pub(super) fn fine(seen: impl Into<String>) -> Verdict {
    Fine(seen.into())
}

pub(super) fn moot(why: impl Into<String>) -> Verdict {
    Moot(why.into())
}

pub(super) fn unknown(what: impl Into<String>) -> Verdict {
    Unknown(what.into())
}

pub(super) fn note(title: impl Into<String>) -> Finding {
    Finding::new(Severity::Note, "", title)
}

pub(super) fn warning(title: impl Into<String>) -> Finding {
    Finding::new(Severity::Warning, "", title)
}

pub(super) fn problem(title: impl Into<String>) -> Finding {
    Finding::new(Severity::Problem, "", title)
}
